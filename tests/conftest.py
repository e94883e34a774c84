"""Settings of the whole test run."""

import os
import signal
import tempfile

from hypothesis import settings

# A process for each of the hundreds of trainings here would take minutes; tests of findings ask for one.
os.environ.setdefault("SONDE_DOCTOR", "off")

# Nobody's own settings and trusted files count here; tests that want some name another folder.
os.environ["XDG_CONFIG_HOME"] = os.path.join(tempfile.gettempdir(), "sonde-tests-without-settings")  # noqa: PTH118

# A shell starts its background jobs with Ctrl-C ignored, and so would be every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Hypothesis' deadline is a timing assert: on a busy machine it fails tests that are right.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
