import math
from itertools import pairwise

import numpy as np
import pytest

from sonde.core.frames import Columns, Detail, Frame
from sonde.sinks.selections import Selection, Sieve

from .services import row

STEP = Columns("step", ("loss", "lr", "time/step"))
LAYERS = Columns("gradients", ("grad/norm@a", "grad/p99@a", "grad/norm@b"), Detail.LAYER)
SHAPES = Columns("shapes", ("grad/histogram@a", "other@a", "grad/histogram@b"), Detail.DISTRIBUTION, bins=2)


def test_by_default_all_of_the_run_and_every_tenth_row_of_the_layers_of_the_layout_is_sent() -> None:
    sieve = Sieve(Selection())
    sent = [(sieve(row(STEP, step, 1, 2, 3)), sieve(row(LAYERS, step, 1, 2, 3))) for step in range(30)]
    assert all(frame is not None and frame.columns.tags == STEP.tags for frame, _ in sent)
    layers = [frame for _, frame in sent if frame is not None]
    assert [frame.step for frame in layers] == [0, 10, 20]
    assert all(frame.columns.tags == ("grad/norm@a", "grad/norm@b") for frame in layers)
    assert all(frame.values.tolist() == [1, 3] for frame in layers)


def test_layers_that_take_turns_are_all_sent() -> None:
    turns = [Columns("gradients", (f"grad/norm@{i}",), Detail.LAYER) for i in range(10)]
    sieve = Sieve(Selection(layer_rows=10))
    sent = [sieve(row(turns[step % 10], step, 1)) for step in range(100)]
    assert {frame.columns.tags[0] for frame in sent if frame is not None} == {f"grad/norm@{i}" for i in range(10)}
    assert sum(frame is not None for frame in sent) == 10


def test_columns_made_anew_for_every_row_are_the_same_columns() -> None:
    sieve = Sieve(Selection(layer_rows=5))
    sent = [sieve(row(Columns("g", ("grad/norm@a",), Detail.LAYER), step, 1)) for step in range(1000)]
    assert sum(frame is not None for frame in sent) == 200


def test_histograms_keep_all_of_their_bins() -> None:
    frame = Sieve(Selection())(row(SHAPES, 1, 1, 2, 3, 4, 5, 6))
    assert frame is not None
    assert frame.columns.bins == 2
    assert frame.columns.tags == ("grad/histogram@a", "grad/histogram@b")
    assert frame.values.tolist() == [1, 2, 5, 6]


def test_what_is_sent_does_not_change_when_the_row_is_used_again() -> None:
    values = np.ones(3, np.float32)
    frame = Sieve(Selection())(Frame(STEP, 1, 0.0, values))
    values[:] = 5
    assert frame is not None
    assert frame.values.tolist() == [1, 1, 1]


def test_a_fast_loop_is_thinned_out_evenly_and_slow_tables_and_short_runs_are_not() -> None:
    sieve = Sieve(Selection(rows_per_s=10))
    slow = Columns("evaluation", ("val/loss",))
    sent, evaluations = [], 0
    for step in range(10_000):  # 100 rows a second
        if sieve(row(STEP, step, 1, 2, 3, time=step / 100)) is not None:
            sent.append(step)
        if step % 100 == 0:
            evaluations += sieve(row(slow, step, 1, time=step / 100)) is not None
    assert sent[:100] == list(range(100))
    assert 1050 < len(sent) < 1110
    assert {after - before for before, after in pairwise(sent[200:])} <= {9, 10, 11}
    assert evaluations == 100


def test_all_rows_are_sent_where_there_is_no_limit_and_a_clock_that_goes_back_stops_nothing() -> None:
    sieve = Sieve(Selection(rows_per_s=math.inf))
    assert all(sieve(row(STEP, step, 1, 2, 3, time=0.0)) is not None for step in range(5000))
    sieve = Sieve(Selection(rows_per_s=1))
    assert sum(sieve(row(STEP, step, 1, 2, 3, time=-step)) is not None for step in range(100)) == 10


def test_a_row_of_which_nothing_is_wanted_is_not_sent() -> None:
    sieve = Sieve(Selection(essential=("val/*",), layers=()))
    assert sieve(row(STEP, 1, 1, 2, 3)) is None
    assert sieve(row(LAYERS, 1, 1, 2, 3)) is None


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        Selection(layer_rows=0)
    with pytest.raises(ValueError, match="above 0, got 0"):
        Selection(rows_per_s=0)
    with pytest.raises(TypeError, match="tuple of patterns"):
        Selection(layers="grad/*")  # type: ignore[arg-type]
