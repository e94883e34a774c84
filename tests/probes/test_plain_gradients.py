"""Steps of which nothing but gradients was read are told as all others are."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch

from sonde.kernels import TensorStats
from sonde.kernels.native import library
from sonde.probes.gradient_flow import GradientFlow
from sonde.probes.optimizer_numbers import Key, Part, StepNote
from sonde.probes.optimizer_report import OptimizerReport
from sonde.probes.plain_gradients import plain_norm
from sonde.probes.probe import Row

_BAD = {"finite": 1.0, "nan": float("nan"), "infinite": float("inf"), "unusual": 1e6}
native = pytest.mark.skipif(library.load().trouble is not None, reason="the native kernel is not there")


def _gradients(num: int) -> list[torch.Tensor]:
    return [torch.randn(5, 3, generator=torch.Generator().manual_seed(i)) for i in range(num)]


def _vector(gradients: list[torch.Tensor]) -> Any:
    stats = TensorStats(gradients)
    stats(gradients)
    return stats.vector(gradients)


def _plain(rows: Iterable[Row]) -> list[Any]:
    return [
        (row.columns.table, tuple(row.columns.tags), np.float32(row.values).view(np.uint32).tolist()) for row in rows
    ]


@native
@pytest.mark.parametrize("num", [1, 6, 32, 33, 100])
def test_a_plain_norm_is_that_of_all_gradients(num: int) -> None:
    gradients = _gradients(num)
    found = plain_norm(_vector(gradients)[: 7 * num])
    assert found == pytest.approx(float(torch.cat([g.flatten() for g in gradients]).double().norm()))


@pytest.mark.parametrize("num", [2, 40])
def test_there_is_no_plain_norm_where_a_gradient_is_empty_or_not_finite(num: int) -> None:
    rows = np.tile([4.0, 0.0, 0.0, 0.5, 1.0, 0.0, 1.0], (num, 1))
    assert plain_norm(rows.reshape(-1)) is not None
    for column, value in ((0, 0.0), (1, 1.0), (4, np.inf)):
        other = rows.copy()
        other[1, column] = value
        assert plain_norm(other.reshape(-1)) is None


@native
@pytest.mark.parametrize("last", _BAD)
@pytest.mark.parametrize("num", [3, 40])
def test_plain_steps_give_the_rows_of_others(num: int, last: str) -> None:
    names = tuple(f"{i}.weight" for i in range(num))
    key = Key(Part.GRADIENTS, names)
    plain, other = (OptimizerReport("", "", histogram_steps=100, flow=GradientFlow([])) for _ in range(2))
    for iteration in range(40):
        gradients = _gradients(num)
        gradients[1] *= 1 + iteration / 100 if iteration < 39 else _BAD[last]
        vector = _vector(gradients)
        numbers = vector[: 7 * num]
        infinite = {key: frozenset({"1.weight"})} if iteration == 39 and last == "infinite" else {}
        # More than that is said of it, which makes it no plain step.
        note = StepNote(
            keys=[key, Key(Part.SCALE)],
            sizes=[len(numbers), 1],
            iteration=iteration,
            has_layers=False,
            infinite=infinite,
        )
        found = _plain(plain.plain(iteration, names, vector, np.empty(0)))
        assert found == _plain(other(note, numbers))
    assert len(found) == (1 if last == "finite" else 2)


@native
def test_tensors_that_lie_otherwise_are_not_read_plainly() -> None:
    gradients = _gradients(3)
    stats = TensorStats(gradients)
    assert stats.vector(gradients) is None, "nobody has looked at any before"
    rows, _, _, norms = stats(gradients)
    assert norms is not None
    assert stats.vector(gradients).tolist() == [*rows.flatten().tolist(), *norms.tolist()]  # type: ignore[union-attr]
    others: list[Any] = [gradients[0].T, gradients[0].double(), None]
    for other in others:
        assert stats.vector([other, *gradients[1:]]) is None
