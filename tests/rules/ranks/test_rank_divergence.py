import numpy as np
import pytest
from tests.rules.traces import judge, rows

from sonde.core.records import Float64
from sonde.rules.ranks.rank_divergence import RankDivergence

READ = np.arange(1, 400, 10)
EVERY = np.arange(1, 400)


def _seen(weights: dict[int, Float64], gradients: dict[int, Float64] | None = None) -> list[tuple[int, int | None]]:
    """The steps of the sightings and what they are dated to; weights are read every ten steps, gradients at each."""
    series = {
        "weight/norm": {rank: (READ, values[READ - 1]) for rank, values in weights.items()},
        "grad/norm_applied": {rank: (EVERY, values) for rank, values in (gradients or {}).items()},
    }
    return [(step, sighting.since) for step, sighting in RankDivergence().judge(series)]


def _norms(seed: int = 0) -> Float64:
    """Of a training, as they are recorded: float32."""
    rng = np.random.default_rng(seed)
    return (np.linspace(6.0, 12.0, len(EVERY)) * (1 + 0.1 * rng.random(len(EVERY)))).astype(np.float32).astype(float)


def _from(step: int, factor: float = 1.001) -> Float64:
    return np.where(step <= EVERY, factor, 1.0)


def test_weights_that_differ_at_one_reading_are_found_at_it() -> None:
    seen = _seen({0: _norms(), 1: _norms() * _from(95)})
    assert seen[0] == (101, 101)
    assert len(seen) == 30


@pytest.mark.parametrize("step", [2, 94, 101, 108])
def test_ranks_that_part_between_readings_are_found_two_steps_later_by_the_gradients_they_apply(step: int) -> None:
    part = _from(step, 0.2)
    seen = _seen({0: _norms(), 1: _norms() * _from(step)}, {0: _norms(1), 1: _norms(1) * part})
    assert seen[0][1] == step
    assert seen[0][0] == (step if step % 10 == 1 else step + 1)


def test_gradients_that_were_never_averaged_are_found_with_the_first_weights() -> None:
    apart = 1 + 1e-4 * EVERY
    assert _seen({0: _norms(), 1: _norms() * apart}, {0: _norms(1), 1: _norms(2)})[0] == (1, 1)


def test_a_step_at_which_gradients_differed_dates_weights_that_differ_after_it() -> None:
    once = np.where(EVERY == 105, 0.5, 1.0)
    assert _seen({0: _norms(), 1: _norms() * _from(105)}, {0: _norms(1), 1: _norms(1) * once})[0] == (111, 105)


def test_gradients_that_are_averaged_after_they_were_read_are_no_finding() -> None:
    assert _seen({0: _norms(), 1: _norms()}, {0: _norms(1), 1: _norms(2)}) == []
    later = {0: _norms(), 1: _norms() * _from(201)}
    assert _seen(later, {0: _norms(1), 1: _norms(2)})[0] == (201, 201)


def test_pieces_of_one_model_are_not_compared() -> None:
    assert _seen({0: _norms(), 1: 1.2 * _norms()}, {0: _norms(1), 1: _norms(2)}) == []
    assert _seen({0: _norms(), 1: 1.2 * _norms()}, {0: _norms(1), 1: _norms(1)})[0] == (1, 1)  # replicas, not broadcast


def test_ranks_that_agree_to_rounding_are_silent_also_where_readings_are_missing() -> None:
    rounded = _norms() * (1 + 3 * np.finfo(np.float32).eps)
    assert _seen({0: _norms(), 1: rounded}, {0: _norms(1), 1: _norms(1)}) == []
    assert _seen({0: _norms()}, {0: _norms(1)}) == []
    some = {"weight/norm": {0: (READ, _norms()[READ - 1]), 1: (READ[::2], _norms()[READ - 1][::2])}}
    assert not RankDivergence().judge(some)
    assert not RankDivergence().judge({})
    assert judge(RankDivergence(), rows(100, weight__norm=1.0)) == []


def test_values_that_are_not_finite_or_0_are_no_difference() -> None:
    broken, idle = _norms(), np.zeros(len(EVERY))
    broken[50] = np.nan
    assert _seen({0: _norms(), 1: broken}, {0: idle, 1: idle}) == []


def test_the_rank_that_stands_out_is_named_and_of_two_both() -> None:
    def where(num: int) -> tuple[str, ...]:
        norms = {rank: ([1, 2], [3.0, 3.1 if rank == 1 else 3.0]) for rank in range(num)}
        return RankDivergence().judge({"weight/norm": norms})[0][1].where

    assert where(3) == ("rank 1",)
    assert where(2) == ("rank 0", "rank 1")


def test_nothing_later_than_a_step_is_known_at_it() -> None:
    weights, gradients = _norms() * _from(95), _norms(1) * _from(93, 0.5)
    series = {
        "weight/norm": {0: (READ, _norms()[READ - 1]), 1: (READ, weights[READ - 1])},
        "grad/norm_applied": {0: (EVERY, _norms(1)), 1: (EVERY, gradients)},
    }
    whole = RankDivergence().judge(series)
    for end in (90, 94, 99, 101, 250):
        cut = {
            tag: {rank: (steps[steps <= end], values[steps <= end]) for rank, (steps, values) in ranks.items()}
            for tag, ranks in series.items()
        }
        assert RankDivergence().judge(cut) == [one for one in whole if one[0] <= end]
