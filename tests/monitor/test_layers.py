"""Statistics of many steps at once, against those of each step alone."""

import numpy as np
import pytest

from sonde.core.records import Float64
from sonde.kernels.columns import Column, finite_norm, norm
from sonde.monitor.layers import SERIES, Step, layers
from sonde.monitor.sheets import Key
from sonde.probes.statistics import values

GRAD, WEIGHT = Key("grad", "", ("a", "b")), Key("weight", "", ("a", "b"))
UPDATE = Key("update", "", ("b",), 1)


def _rows(seed: int, num: int) -> Float64:
    random = np.random.default_rng(seed)
    rows = random.normal(size=(num, 7))
    rows[:, [Column.COUNT, Column.NONFINITE, Column.ZEROS]] = random.integers((2, 0, 0), (5, 3, 3), (num, 3))
    rows[:, Column.M2] **= 2
    return rows


def test_many_steps_are_each_as_alone() -> None:
    steps = [
        Step({GRAD: _rows(1, 2), WEIGHT: _rows(2, 2)}, {}),
        Step({GRAD: _rows(3, 2), UPDATE: _rows(4, 1)}, {"": 0.25}),
        Step({}, {}),
        Step({WEIGHT: _rows(5, 2)}, {}),
    ]
    for step, found in zip(steps, layers(steps), strict=True):
        assert list(found) == [key for key in (GRAD, WEIGHT, UPDATE) if key in step.rows]
        for key, rows in step.rows.items():
            np.testing.assert_array_equal(found[key].norms, norm(rows))
            np.testing.assert_array_equal(found[key].finite_norms, finite_norm(rows))
            assert found[key].num_nonfinite == rows[:, Column.NONFINITE].sum()
            if not step.factors:
                np.testing.assert_array_equal(found[key].values, values(rows, SERIES[key.kind]))


def test_gradients_are_rescaled_and_nothing_else_is() -> None:
    (found,) = layers([Step({GRAD: _rows(1, 2), UPDATE: _rows(2, 1)}, {"": 0.25})])
    plain, other = (values(rows, SERIES[kind]) for kind, rows in (("grad", _rows(1, 2)), ("update", _rows(2, 1))))
    unscaled = [SERIES["grad"].index(name) for name in ("zeros", "nonfinite")]
    factors = np.full((2, len(SERIES["grad"])), 0.25)
    factors[:, unscaled] = 1
    assert found[GRAD].values == pytest.approx(plain * factors.reshape(-1), rel=1e-6, nan_ok=True)
    np.testing.assert_array_equal(found[UPDATE].values, other)
