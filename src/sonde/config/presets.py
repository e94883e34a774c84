"""Settings that go together, by the name of what they are for. Whatever else is set goes before them."""

from collections.abc import Mapping
from typing import Any

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    # Nothing is printed, and only what ruins a training is told.
    "quiet": {"console": "quiet", "alerts": {"severity": "critical"}},
    # One long training that must not be lost: more is looked at more often, for more of the time.
    "stability": {
        "budget": 0.03,
        "cadence": {"layers": 1, "cosines": 10, "blocks": 25, "batches": 25, "spectra": 200},
    },
    # Many short trainings to be compared: cheap, silent, without detail that nobody will open.
    "tuning": {
        "console": "quiet",
        "cadence": {"histograms": 1000, "spectra": 10_000},
        "alerts": {"severity": "critical", "resolve": False},
    },
}
