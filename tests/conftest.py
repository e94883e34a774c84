"""Settings of the whole test run."""

from hypothesis import settings

# Hypothesis' deadline is a timing assert: on a busy machine it fails tests that are right.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
