"""Let the training thread have the interpreter."""

import time

# A sleep of zero is won back before the other thread wakes; this one lets it go for real.
_BREATH_S = 50e-6


def breathe() -> None:
    """Let go of the interpreter lock; the background calls it between short stretches of Python work."""
    time.sleep(_BREATH_S)
