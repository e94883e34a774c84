"""The table of statistics."""

import math

import numpy as np
import pytest
import torch

from sonde.kernels import tensor_stats
from sonde.probes.statistics import STATISTICS, tags, values


def _found(tensor: torch.Tensor) -> dict[str, float]:
    rows = tensor_stats([tensor]).rows.numpy()
    return dict(zip(STATISTICS, map(float, values(rows, list(STATISTICS))), strict=True))


def test_values_stand_in_the_order_of_their_tags() -> None:
    rows = tensor_stats([torch.tensor([3.0, 4.0]), torch.tensor([-1.0, 0.0])]).rows.numpy()
    statistics = ["absmax", "norm", "zeros"]
    found = dict(zip(tags("grad", ["a", "b"], statistics), values(rows, statistics), strict=True))
    assert found == pytest.approx(
        {"grad/absmax@a": 4, "grad/norm@a": 5, "grad/zeros@a": 0}
        | {"grad/absmax@b": 1, "grad/norm@b": 1, "grad/zeros@b": 0.5}
    )


def test_tensor_without_a_finite_value_has_nothing_but_counts() -> None:
    found = _found(torch.tensor([math.nan, math.inf]))
    assert found.pop("nonfinite") == 2
    assert found.pop("zeros") == 0
    assert np.isnan(list(found.values())).all(), found


def test_finite_values_are_measured_beside_others() -> None:
    found = _found(torch.tensor([1.0, math.nan, -3.0, -math.inf]))
    assert (found["min"], found["max"], found["mean"], found["absmax"], found["nonfinite"]) == (-3, 1, -1, 3, 2)
    assert math.isnan(found["norm"])
    assert math.isnan(found["rms"])
