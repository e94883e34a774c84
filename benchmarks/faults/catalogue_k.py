"""Scenarios of what the training itself does: rates, depth, generalisation, attention, and the healthy ones."""

from benchmarks.faults import depth, generalisation, healthy, optimisation, transformers
from benchmarks.faults.scenario import Scenario

SCENARIOS: list[Scenario] = [
    *optimisation.SCENARIOS,
    *depth.SCENARIOS,
    *generalisation.SCENARIOS,
    *transformers.SCENARIOS,
    *healthy.SCENARIOS,
]
