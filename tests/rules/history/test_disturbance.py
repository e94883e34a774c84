from collections.abc import Iterable

import numpy as np
import pytest

from sonde.core.findings import Severity
from sonde.core.frames import Columns, Frame
from sonde.rules.history.progress import is_lost, is_stuck
from sonde.rules.history.run_summary import RunSummaries, RunSummary
from sonde.rules.losses.loss_diverges import LossDiverges
from sonde.rules.step_view import Fact, StepViews

from ..traces import Row, flat, judge, rows, worst

_RISING = [*flat(60, 1.0, noise=0.02), *np.geomspace(1.0, 3.0, 140)]
_CALM = {"update__ratio": 3e-3, "weight__norm": 5.0, "grad__norm": 1.0}


def painted(given: Iterable[Row]) -> list[RunSummary]:
    views, runs = StepViews(), RunSummaries()
    state, seen = runs.init(), []
    for step, row in enumerate(given, 1):
        frame = Frame(Columns("step", tuple(row)), step, 0.0, np.array(list(row.values()), np.float32))
        state, run = runs.step(state, views.take(step, [frame], ()))
        seen.append(run)
    return seen


def test_a_loss_that_rises_under_calm_steps_is_no_measure_and_no_alarm() -> None:
    given = rows(200, loss=_RISING, **_CALM)
    last = painted(given)[-1]
    assert last.is_moved
    assert not last.is_upset
    assert not last.is_measure
    assert not is_lost(last)
    assert not is_stuck(last)
    assert worst(judge(LossDiverges(), given)) is Severity.INFO


@pytest.mark.parametrize(
    "wrong",
    [
        {"update__ratio": [3e-3] * 60 + [0.3] * 140},
        {"weight__norm": [5.0] * 60 + [11.0] * 140},
        {"weight__norm": [5.0] * 60 + [2.0] * 140},
        {"grad__norm": [1.0] * 60 + [30.0] * 140},
        {"update__ratio_at_deep.weight": [3e-3] * 60 + [0.09] * 140},
    ],
)
def test_a_loss_that_rises_with_the_steps_is_an_alarm(wrong: dict[str, list[float]]) -> None:
    given = rows(200, loss=_RISING, **{**_CALM, **wrong})
    last = painted(given)[-1]
    assert last.is_upset
    assert last.is_measure
    assert is_lost(last)
    assert worst(judge(LossDiverges(), given)) is Severity.WARNING


def test_slow_growth_of_the_weights_is_no_upheaval() -> None:
    last = painted(rows(1000, loss=np.linspace(1, 3, 1000), weight__norm=np.geomspace(1, 8, 1000), update__ratio=3e-3))
    assert not last[-1].is_upset


def test_large_steps_of_a_bias_and_one_high_gradient_are_no_upheaval() -> None:
    norms = [1.0] * 60 + [50.0] + [1.0] * 139
    bias = {"update__ratio_at_deep.bias": 0.5}
    assert not painted(rows(200, loss=_RISING, **{**_CALM, **bias, "grad__norm": norms}))[-1].is_upset


def test_an_upheaval_that_the_loss_survives_is_over() -> None:
    ratios = [0.3] * 10 + [3e-3] * 190
    seen = painted(rows(200, loss=np.linspace(2, 1, 200), update__ratio=ratios))
    assert seen[9].is_upset
    assert not seen[-1].is_upset


def test_a_loss_alone_is_judged_by_itself() -> None:
    given = rows(200, loss=_RISING)
    assert painted(given)[-1].is_upset
    assert worst(judge(LossDiverges(), given)) is Severity.WARNING


def test_a_loss_that_was_below_zero_is_no_measure() -> None:
    given = rows(200, loss=[1.0] * 5 + [-0.2] + [1.0] * 50 + [30.0] * 144, update__ratio=0.5)
    last = painted(given)[-1]
    assert last.is_upset
    assert not last.is_measure
    assert not is_stuck(last)


def test_another_player_makes_a_rising_loss_no_alarm() -> None:
    given = rows(200, loss=_RISING, **{**_CALM, "update__ratio": 0.3})
    fact = Fact("preflight", {"check": "other-player", "where": [], "num": 4})
    assert worst(judge(LossDiverges(), given)) is Severity.WARNING
    assert judge(LossDiverges(), given, facts={2: [fact]}) == []
