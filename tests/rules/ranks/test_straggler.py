import numpy as np
from tests.rules.traces import judge, rows

from sonde.rules.ranks.rank_series import RankSeries
from sonde.rules.ranks.straggler import Straggler

STEPS = np.arange(2, 502, 10)


def ranks(own: dict[int, float], *, noise: float = 0.1, since: int = 0) -> dict[str, RankSeries]:
    """Ranks that wait for the slowest in their backward pass; before `since` all need 10 ms."""
    rng = np.random.default_rng(0)
    mine = {
        rank: np.where(since <= STEPS, seconds, 0.01) * (1 + noise * rng.random(len(STEPS)))
        for rank, seconds in own.items()
    }
    total = 0.01 + np.max(list(mine.values()), axis=0)
    return {
        "time/step": dict.fromkeys(own, (STEPS, total)),
        "time/backward": {rank: (STEPS, total - seconds) for rank, seconds in mine.items()},
    }


def test_the_rank_that_doubles_the_step_is_named_at_the_fifth_reading() -> None:
    seen = Straggler().judge(ranks({0: 0.01, 1: 0.01, 2: 0.06, 3: 0.01}))
    assert {sighting.where for _, sighting in seen} == {("rank 2",)}
    assert (seen[0][0], seen[0][1].since) == (42, 2)
    assert seen[-1][0] == STEPS[-1]


def test_a_rank_that_costs_a_third_of_the_step_is_named_at_the_tenth() -> None:
    seen = Straggler().judge(ranks({0: 0.02, 1: 0.01}))
    assert (seen[0][0], seen[0][1].since, seen[0][1].where) == (92, 2, ("rank 0",))


def test_a_rank_that_becomes_slow_is_found_five_readings_later() -> None:
    seen = Straggler().judge(ranks({0: 0.04, 1: 0.01}, since=122))
    assert (seen[0][0], seen[0][1].since, seen[0][1].where) == (162, 122, ("rank 0",))


def test_ranks_that_are_slow_in_turn_are_no_stragglers() -> None:
    for seed in range(50):
        rng = np.random.default_rng(seed)
        own = {rank: 0.002 * rng.lognormal(0, 0.7, len(STEPS)) for rank in range(2)}
        total = 0.002 + np.max(list(own.values()), axis=0)
        series: dict[str, RankSeries] = {
            "time/step": dict.fromkeys(own, (STEPS, total)),
            "time/backward": {rank: (STEPS, total - seconds) for rank, seconds in own.items()},
        }
        assert not Straggler().judge(series)


def test_ranks_that_exchange_gradients_by_themselves_wait_in_their_communication() -> None:
    told = ranks({0: 0.01, 1: 0.01, 2: 0.06, 3: 0.01})
    apart: dict[str, RankSeries] = {
        "time/step": told["time/step"],
        "time/backward": dict.fromkeys(range(4), (STEPS, np.full(len(STEPS), 1e-3))),
        "time/communication": told["time/backward"],
    }
    seen = Straggler().judge(apart)
    assert {sighting.where for _, sighting in seen} == {("rank 2",)}


def test_equal_ranks_one_rank_and_few_common_steps_are_silent() -> None:
    assert not Straggler().judge(ranks({0: 0.01, 1: 0.0105}))
    assert not Straggler().judge(ranks({0: 0.01}))
    assert not Straggler().judge({})
    few: dict[str, RankSeries] = {
        tag: {0: ([1, 2], [0.1, 0.1]), 1: ([1, 2], [0.3, 0.3])} for tag in ("time/step", "time/backward")
    }
    assert not Straggler().judge(few)
    assert judge(Straggler(), rows(100, time__step=0.1)) == []
