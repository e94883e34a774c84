"""For authors of plug-ins: a run in memory, and the tests that every store and every rule has to pass. Needs pytest."""

from sonde.testing.agreement import assert_records_agree, assert_series_agree, assert_window_sums_up
from sonde.testing.memory import MemoryRun
from sonde.testing.rule_suite import RuleSuite, sightings_of
from sonde.testing.store_suite import Store, StoreSuite

__all__ = [
    "MemoryRun",
    "RuleSuite",
    "Store",
    "StoreSuite",
    "assert_records_agree",
    "assert_series_agree",
    "assert_window_sums_up",
    "sightings_of",
]
