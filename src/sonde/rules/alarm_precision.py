"""How often each rule's alarms were right: written by `python -m benchmarks.faults.space precision`, not by hand."""

from collections.abc import Mapping

PRECISION: Mapping[str, tuple[int, int]] = {}
"""By code: right alarms, and all that could be told right or wrong, in trainings of families that were left out."""
