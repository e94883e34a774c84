"""What rules see of a step."""

from typing import Any

import numpy as np

from sonde.core.frames import MISSING, Columns, Frame
from sonde.rules.history.tracking import Tracked, track
from sonde.rules.step_view import Fact, Layers, StepViews
from sonde.signals.ema import Ema


def _frame(step: int, **values: Any) -> Frame:
    tags = tuple(name.replace("__", "/").replace("_at_", "@") for name in values)
    return Frame(Columns("step", tags), step, 0.0, np.array(list(values.values()), np.float32))


def test_a_measured_nan_is_there_and_a_missing_value_is_not() -> None:
    view = StepViews().take(
        1, [_frame(1, loss=float("nan"), lr=MISSING, grad__rms_at_a=MISSING, grad__rms_at_b=2.0)], []
    )
    assert "loss" in view
    assert np.isnan(view.value("loss"))
    assert "lr" not in view
    layers = view.layers("grad/rms")
    assert layers is not None
    assert layers.names == ("b",)


def test_layers_of_several_tables_are_one() -> None:
    view = StepViews().take(1, [_frame(1, grad__rms_at_a=1.0), _frame(1, grad__rms_at_b=2.0)], [Fact("note", {})])
    layers = view.layers("grad/rms")
    assert layers is not None
    assert (layers.names, layers.values.tolist()) == (("a", "b"), [1.0, 2.0])
    assert view.facts[0].kind == "note"


def test_the_latest_value_of_each_layer_is_remembered_with_its_step() -> None:
    views = StepViews()
    views.take(1, [_frame(1, act__rms_at_a=1.0)], [])
    views.take(2, [_frame(2, act__rms_at_b=5.0)], [])
    views.take(3, [_frame(3, act__rms_at_a=2.0)], [])
    latest = views.latest("act/rms")
    assert latest is not None
    assert latest.steps is not None
    assert (latest.names, latest.values.tolist(), latest.steps.tolist()) == (("a", "b"), [2.0, 5.0], [3, 2])
    assert views.latest("act/dead") is None


def test_layers_that_come_later_do_not_disturb_those_that_are_there() -> None:
    ema = Ema()
    tracked, out = track(ema, Tracked(), Layers(("a",), np.array([1.0])))
    tracked, out = track(ema, tracked, Layers(("b", "a"), np.array([5.0, 1.0])))
    assert tracked.names == ("a", "b")
    np.testing.assert_allclose(out, [1.0, 5.0])
    tracked, out = track(ema, tracked, Layers(("b",), np.array([5.0])))
    np.testing.assert_allclose(out, [1.0, 5.0])


def test_what_was_given_away_does_not_change_with_the_next_rows() -> None:
    views = StepViews()
    views.take(1, [_frame(1, act__rms_at_a=1.0, act__rms_at_b=2.0)], [])
    before = views.latest("act/rms")
    views.take(2, [_frame(2, act__rms_at_b=5.0)], [])
    after = views.latest("act/rms")
    assert before is not None
    assert after is not None
    assert before.values.tolist() == [1.0, 2.0]
    assert after.values.tolist() == [1.0, 5.0]


def test_a_sum_of_several_optimisers_losses_is_not_looked_at() -> None:
    own = Columns("step", ("loss", "loss/part@D", "loss/part@G", "loss/part@real", "lr@D", "lr@G"))
    view = StepViews().take(1, [Frame(own, 1, 0.0, np.array([3.0, 1.0, 2.0, 0.5, 0.1, 0.1], np.float32))], [])
    assert "loss" not in view
    parts = view.layers("loss/part")
    assert parts is not None
    assert parts.names == ("D", "G", "real")
    # Parts of one loss are something else, and so is one loss for several optimisers.
    for tags in (("loss", "loss/part@D", "loss/part@G", "lr"), ("loss", "lr@D", "lr@G", "loss/part@penalty")):
        frame = Frame(Columns("step", tags), 1, 0.0, np.ones(4, np.float32))
        assert StepViews().take(1, [frame], []).value("loss") == 1.0
