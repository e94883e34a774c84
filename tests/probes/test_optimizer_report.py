"""The short way through a plain step, against the long one."""

from collections.abc import Mapping

import numpy as np
import pytest

from sonde.core.records import Float64
from sonde.kernels.columns import NUM_COLUMNS, Column
from sonde.probes.gradient_flow import GradientFlow
from sonde.probes.optimizer_numbers import Key, Part, StepNote
from sonde.probes.optimizer_report import OptimizerReport

_OTHER = Key(Part.TRAJECTORY)
"""Left behind where there is no room: its numbers never come, and the step goes the long way."""


def _report(name: str = "") -> OptimizerReport:
    return OptimizerReport(name, name.lower(), histogram_steps=100, flow=GradientFlow([["0", "1"]]))


def _told(report: OptimizerReport, iteration: int, numbers: Float64, *, is_long: bool) -> list[Mapping[str, bytes]]:
    key = Key(Part.GRADIENTS, tuple(f"{i}.weight" for i in range(len(numbers) // NUM_COLUMNS)))
    keys, sizes = ([key, _OTHER], [len(numbers), 8]) if is_long else ([key], [len(numbers)])
    note = StepNote(keys=keys, sizes=sizes, iteration=iteration, has_layers=False)
    return [
        {tag: value.tobytes() for tag, value in zip(row.columns.tags, row.values, strict=True)}
        for row in report(note, numbers)
    ]


@pytest.mark.parametrize("name", ["", "D"])
@pytest.mark.parametrize("num_tensors", [1, 6, 40])
def test_a_plain_step_is_told_bit_for_bit_as_any_other(name: str, num_tensors: int) -> None:
    generator = np.random.default_rng(num_tensors)
    short, long = _report(name), _report(name)
    for iteration in range(200):
        rows = generator.lognormal(sigma=3, size=(num_tensors, NUM_COLUMNS))
        rows[:, Column.COUNT], rows[:, Column.NONFINITE] = generator.integers(1, 1000, num_tensors), 0
        rows[:, Column.MEAN] *= generator.choice([-1, 1], num_tensors)
        odd = iteration % 20
        if odd == 3:
            rows[0, Column.NONFINITE] = 2
        elif odd == 7:
            rows[0, :3] = 0  # no value on any rank
        elif odd == 11:
            rows[:, Column.M2] *= 1e12  # far above what is usual
        elif odd == 13:
            rows[0, Column.MEAN] = 1e200
        elif odd == 17:
            rows[0, Column.M2] = np.inf
        with np.errstate(over="ignore"):
            found, wanted = (
                _told(report, iteration, rows.reshape(-1), is_long=is_long)
                for report, is_long in ((short, False), (long, True))
            )
        assert [list(row.items()) for row in found] == [list(row.items()) for row in wanted], iteration
    assert short.history.state_dict() == long.history.state_dict()
