import json

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sonde.kernels import tensor_stats
from sonde.signals.trajectory import Trajectory, TrajectoryOut, TrajectoryState

Vectors = npt.NDArray[np.float64]


def followed(trajectory: Trajectory, vectors: Vectors) -> TrajectoryOut:
    state = trajectory.init(vectors.shape[1])
    for vector in vectors:
        state, out = trajectory.step(state, vector)
    return out


def by_svd(vectors: Vectors) -> tuple[float, float]:
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    squares = np.linalg.svd(units, compute_uv=False) ** 2
    return float(squares.sum() ** 2 / (squares**2).sum()), float(squares[0] / squares.sum())


@given(st.integers(2, 12), st.integers(1, 20), st.integers(0, 2**32 - 1))
def test_it_is_the_participation_ratio_of_the_last_window(window: int, size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(window + 5, size)) * 10 ** rng.uniform(-9, 9, size=(window + 5, 1))
    out = followed(Trajectory(window=window), vectors)
    assert tuple(out) == pytest.approx(by_svd(vectors[-window:]))
    assert out.dimension * (1 + 1e-12) >= 1
    assert 1 / window <= out.share * (1 + 1e-12)


def test_a_path_in_three_dimensions_has_at_most_three() -> None:
    rng = np.random.default_rng(0)
    out = followed(Trajectory(), rng.normal(size=(64, 3)) @ rng.normal(size=(3, 500)))
    assert 2 < out.dimension < 3


def test_gradients_that_turn_back_and_forth_have_one() -> None:
    signs = np.where(np.arange(64) % 2, 1.0, -1.0)
    out = followed(Trajectory(), signs[:, None] * np.arange(1.0, 41.0))
    assert tuple(out) == pytest.approx((1, 1))


def test_nothing_is_said_until_the_window_is_full() -> None:
    vectors = np.random.default_rng(1).normal(size=(8, 5))
    assert np.isnan(followed(Trajectory(window=8), vectors[:7])).all()
    assert np.isfinite(followed(Trajectory(window=8), vectors)).all()


@pytest.mark.parametrize("bad", [np.zeros(5), np.full(5, np.nan), np.array([1.0, 2, np.inf, 3, 4])])
def test_a_sketch_without_a_direction_changes_nothing(bad: Vectors) -> None:
    trajectory = Trajectory(window=6)
    vectors = np.random.default_rng(2).normal(size=(6, 5))
    with_bad = np.vstack([bad, vectors[:3], bad, vectors[3:], bad])
    assert followed(trajectory, with_bad) == followed(trajectory, vectors)


@pytest.mark.parametrize("factor", [1e-300, 1e300])
def test_lengths_do_not_count_however_far_from_one(factor: float) -> None:
    vectors = np.random.default_rng(3).normal(size=(10, 4))
    expected = followed(Trajectory(window=10), vectors)
    assert tuple(followed(Trajectory(window=10), vectors * factor)) == pytest.approx(tuple(expected))


def test_a_state_that_went_through_json_goes_on_without_a_jump() -> None:
    trajectory = Trajectory(window=5)
    vectors = np.random.default_rng(4).normal(size=(9, 3))
    for cut in range(9):
        state = trajectory.init(3)
        for vector in vectors[:cut]:
            state, _ = trajectory.step(state, vector)
        text = json.dumps([array.tolist() for array in state], allow_nan=False)
        state = TrajectoryState(*map(np.asarray, json.loads(text)))
        for vector in vectors[cut:]:
            state, out = trajectory.step(state, vector)
        assert out == followed(trajectory, vectors)


def test_a_step_leaves_the_state_before_as_it_was() -> None:
    trajectory = Trajectory(window=2)
    state = trajectory.init(2)
    trajectory.step(state, np.ones(2))
    assert not state.directions.any()
    assert not state.num_values.any()


@pytest.mark.parametrize("rank", [1, 2, 10, 40, 5000])
def test_sketches_tell_the_dimension_of_full_vectors_with_the_stated_bias(rank: int) -> None:
    rng = np.random.default_rng(rank)
    full = rng.normal(size=(64, 5000))
    if rank < 5000:
        full = rng.normal(size=(64, rank)) @ rng.normal(size=(rank, 5000))
    sketches = [tensor_stats([torch.from_numpy(vector)], sketch=True).sketch for vector in full]
    rows = np.stack([sketch.numpy()[0] for sketch in sketches if sketch is not None]).astype(np.float64)
    (dimension, share), out = by_svd(full), followed(Trajectory(), rows)
    stated = 1 / (1 / dimension + (1 - 1 / 64) / 256)
    assert out.dimension == pytest.approx(stated, rel=0.05)
    assert out.dimension <= dimension * 1.02
    assert out.share == pytest.approx(share, abs=0.03)


@pytest.mark.parametrize("window", [1, 0, -3])
def test_a_window_without_a_path_is_refused(window: int) -> None:
    with pytest.raises(ValueError, match="window"):
        Trajectory(window=window)
