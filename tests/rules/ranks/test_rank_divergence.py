import numpy as np
from tests.rules.traces import judge, rows

from sonde.rules.ranks.rank_divergence import RankDivergence

STEPS = list(range(1, 400, 10))
NORMS = np.linspace(6.0, 12.0, len(STEPS))


def test_ranks_that_part_at_a_step_are_found_and_dated() -> None:
    other = NORMS * np.where(np.array(STEPS) > 100, 1.001, 1.0)
    seen = RankDivergence().judge({0: (STEPS, NORMS), 1: (STEPS, other)})
    assert seen[0].since == 101


def test_ranks_that_agree_to_rounding_are_silent_also_where_readings_are_missing() -> None:
    rounded = NORMS.astype(np.float32).astype(np.float64)
    assert not RankDivergence().judge({0: (STEPS, NORMS), 1: (STEPS[::2], rounded[::2])})
    assert not RankDivergence().judge({0: (STEPS, NORMS)})
    assert judge(RankDivergence(), rows(100, weight__norm=1.0)) == []


def test_values_that_are_not_finite_are_left_out() -> None:
    broken = NORMS.copy()
    broken[5] = np.nan
    assert not RankDivergence().judge({0: (STEPS, NORMS), 1: (STEPS, broken)})
