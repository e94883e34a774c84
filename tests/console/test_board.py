import math

import numpy as np
import pytest
from tests.console.views import finding

from sonde.console.board import Board
from sonde.console.view import Memory, Value
from sonde.core.findings import Severity
from sonde.core.frames import MISSING, Columns, Detail, Frame


def row(
    table: str, step: int, values: dict[str, float], *, when: float = 0.0, detail: Detail = Detail.ESSENTIAL
) -> Frame:
    return Frame(Columns(table, tuple(values), detail), step, when, np.array(list(values.values()), np.float32))


def test_before_the_first_row_nothing_is_known() -> None:
    view = Board("runs/x", began=10.0).view(12.0, ())
    assert (view.step, view.losses, view.curve, view.layers.names, view.steps_per_s) == (0, (), (), (), None)
    assert view.elapsed_s == 2.0


def test_the_last_value_of_each_series_is_shown_whichever_row_had_it() -> None:
    board = Board("runs/x", began=0.0)
    board.take(row("step", 1, {"loss": 2.0, "lr": 0.1, "grad/norm": 5.0}))
    board.take(row("evaluation", 1, {"val/loss": 3.0}))
    board.take(row("process", 1, {"host/rss": 1e9}))
    board.take(row("step", 2, {"loss": 1.0, "lr": 0.1}))
    view = board.view(1.0, ())
    assert (view.step, view.losses, view.validation) == (2, (Value("", 1.0),), 3.0)
    assert view.gradient_norms == (Value("", 5.0),)
    assert view.memory == Memory("process", 1e9)
    board.take(row("step", 3, {"loss": 0.5, "lr": float(MISSING)}))
    assert board.view(2.0, ()).learning_rates == (Value("", float(np.float32(0.1))),)
    board.take(row("resources", 3, {"memory/reserved": 2e9, "memory/total": 8e9}))
    assert board.view(2.0, ()).memory == Memory("GPU", 2e9, 8e9)


def test_a_loss_that_was_not_finite_stays_in_the_curve_however_long_it_gets() -> None:
    board = Board("runs/x", began=0.0)
    for step in range(1, 5001):
        board.take(row("step", step, {"loss": math.inf if step == 7 else 1.0}))
    curve = board.view(1.0, ()).curve
    assert 64 <= len(curve) <= 128
    assert math.isnan(curve[0])
    assert set(curve[1:]) == {1.0}


def test_several_optimisers_have_a_value_each_and_groups_are_not_among_them() -> None:
    board = Board("runs/x", began=0.0)
    values = {"loss/part@G": 1.0, "loss/part@D": 2.0, "lr@G": 0.1, "lr@G.0": 0.1, "lr@G.1": 0.2, "lr@D": 0.3}
    board.take(row("step", 1, {**values, "grad/norm@G": 4.0, "grad/norm@D": 5.0}))
    view = board.view(1.0, ())
    assert [loss.name for loss in view.losses] == ["G", "D"]
    assert [rate.name for rate in view.learning_rates] == ["G", "D"]
    assert view.gradient_norms == (Value("G", 4.0), Value("D", 5.0))


def test_the_pace_counts_pauses_and_begins_anew_where_a_run_goes_back() -> None:
    board = Board("runs/x", began=0.0)
    for step in range(1, 101):
        board.take(row("step", step, {"loss": 1.0}, when=step / 10))
    assert board.view(10.0, ()).steps_per_s == pytest.approx(10.0)
    board.take(row("step", 101, {"loss": 1.0}, when=19.9))  # an evaluation lay between
    assert board.view(20.0, ()).steps_per_s == pytest.approx(100 / 19.8)
    board.take(row("step", 51, {"loss": 1.0}, when=30.0))
    assert board.view(31.0, ()).steps_per_s is None


def test_a_rate_is_smoothed_over_steps() -> None:
    board = Board("runs/x", began=0.0)
    for step in range(1, 301):
        board.take(row("step", step, {"loss": 1.0, "throughput/tokens_per_s": 100.0 + 50 * (-1) ** step}))
    assert board.view(1.0, ()).tokens_per_s == pytest.approx(100.0, abs=5.0)


def test_the_length_is_that_of_the_epochs_once_one_is_over() -> None:
    board = Board("runs/x", began=0.0, total_epochs=10)
    board.take(row("step", 50, {"loss": 1.0}))
    assert board.view(1.0, ()).total_steps is None
    board.take(row("epoch", 50, {"epoch": 1.0, "epoch/steps": 50.0}))
    board.take(row("step", 75, {"loss": 1.0}))
    view = board.view(1.0, ())
    assert (view.epoch, view.total_epochs, view.total_steps, view.share) == (1, 10, 500, 0.15)


def layers(step: int, values: dict[str, float]) -> Frame:
    return row("gradients", step, {f"grad/rms@{name}": value for name, value in values.items()}, detail=Detail.LAYER)


def test_a_layer_is_a_module_with_the_gradient_of_its_first_parameter() -> None:
    board = Board("runs/x", began=0.0)
    board.take(
        layers(1, {"a.weight": 1.0, "a.bias": 9.0, "b.weight": 2.0, "b.bias": math.inf, "scale": float(MISSING)})
    )
    shown = board.view(1.0, ()).layers
    assert shown.names == ("a", "b", "scale")
    assert shown.values[0] == 1.0
    assert shown.values[1] == math.inf
    assert shown.values[2] is None
    board.take(layers(2, {"b.weight": 3.0, "b.bias": 3.0}))  # others have no turn now
    assert board.view(1.0, ()).layers.values == (1.0, 3.0, None)


def test_open_alarms_mark_the_layers_that_they_name() -> None:
    board = Board("runs/x", began=0.0)
    names = [f"blocks.{i}.{part}.weight" for i in (1, 10) for part in ("up", "down")]
    board.take(layers(1, dict.fromkeys(names, 1.0)))
    found = [
        finding("AAA001", "of-a-parameter", Severity.WARNING, 5, "blocks.1.up.weight"),
        finding("AAA002", "of-a-block", Severity.CRITICAL, 3, "blocks.1"),
        finding("AAA003", "of-a-module", Severity.WARNING, 4, "blocks.10.down"),
        finding("AAA004", "closed", Severity.CRITICAL, 2, "blocks.10", still=False),
        finding("AAA005", "information", Severity.INFO, 2, "blocks.10"),
        finding("AAA006", "of-nothing-here", Severity.WARNING, 2, "head"),
    ]
    view = board.view(1.0, found)
    assert view.layers.marks == ("critical", "critical", "", "warning")
    assert [one.code for one in view.findings or ()] == ["AAA002", "AAA001", "AAA003", "AAA006"]
    assert board.view(1.0, ()).layers.marks == ("", "", "", "")
    assert board.view(1.0, None).findings is None
