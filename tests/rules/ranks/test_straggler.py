import numpy as np
from tests.rules.traces import judge, rows

from sonde.rules.ranks.rank_series import RankSeries
from sonde.rules.ranks.straggler import Straggler

STEPS = list(range(1, 51))


def ranks(own: dict[int, float], *, noise: float = 0.1) -> dict[str, RankSeries]:
    """Ranks that wait for the slowest in their backward pass."""
    rng = np.random.default_rng(0)
    total = 0.01 + max(own.values()) * (1 + noise * rng.random(50))
    mine = {rank: seconds * (1 + noise * rng.random(50)) for rank, seconds in own.items()}
    return {
        "time/step": {rank: (STEPS, list(total)) for rank in own},
        "time/backward": {rank: (STEPS, list(np.maximum(total - seconds, 0.01))) for rank, seconds in mine.items()},
    }


def test_the_rank_that_computes_longer_is_named() -> None:
    seen = Straggler().judge(ranks({0: 0.01, 1: 0.01, 2: 0.03, 3: 0.01}))
    assert [sighting.where for sighting in seen] == [("rank 2",)]


def test_equal_ranks_one_rank_and_few_common_steps_are_silent() -> None:
    assert not Straggler().judge(ranks({0: 0.01, 1: 0.0105}))
    assert not Straggler().judge(ranks({0: 0.01}))
    few: dict[str, RankSeries] = {
        tag: {0: ([1, 2], [0.1, 0.1]), 1: ([1, 2], [0.3, 0.3])} for tag in ("time/step", "time/backward")
    }
    assert not Straggler().judge(few)
    assert judge(Straggler(), rows(100, time__step=0.1)) == []
