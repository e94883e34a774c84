"""Settings of the whole test run."""

import os

from hypothesis import settings

# A process for each of the hundreds of trainings here would take minutes; tests of findings ask for one.
os.environ.setdefault("SONDE_DOCTOR", "off")

# Hypothesis' deadline is a timing assert: on a busy machine it fails tests that are right.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
