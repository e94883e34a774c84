"""A run that schema 1 wrote, committed once and never made anew: whatever comes later must still open it."""

from pathlib import Path

import numpy as np
import pytest

import sonde
from sonde.core.records import Branch, Ending
from sonde.store.runs import list_runs

GOLDEN = Path(__file__).parents[1] / "golden" / "run-schema-1"


@pytest.fixture
def run() -> sonde.Run:
    return sonde.load(GOLDEN)


def test_a_run_of_schema_1_still_opens(run: sonde.Run) -> None:
    assert run.info["schema"] == 1
    assert run.name == "golden"
    assert run.info["config"] == {"lr": 0.1, "nan": "NaN"}
    assert run.state.ending is Ending.DIED
    assert run.branches == [Branch(0, None, 0), Branch(1, 0, 150)]
    assert run.tags() == ["late", "loss", "lr", "val/loss"]
    assert run.histogram_tags() == ["grad/shape@a"]
    assert [(event.kind, event.step, event.data) for event in run.events()] == [("note", 7, {"text": "golden"})]
    assert list_runs(GOLDEN)[0].steps == 179


def test_its_numbers_are_those_that_were_recorded(run: sonde.Run) -> None:
    steps = np.arange(180)
    expected = (1 / (steps + 1)).astype(np.float32)
    expected[50], expected[150:] = np.nan, 2.0
    loss = run.series("loss")
    assert np.array_equal(loss.step, steps)
    assert np.array_equal(loss.value, expected, equal_nan=True)
    assert np.array_equal(loss.time, 1.7e9 + steps)
    assert len(run.series("loss", branch=0).step) == 200
    assert run.series("late").value.tolist() == [np.inf] * 30
    assert run.series("val/loss").step.tolist() == list(range(0, 150, 10))
    assert run.window("loss", points=10).nonfinite.sum() == 1
    assert run.last()["lr"].step == 149
    steps, counts, _ = run.histogram("grad/shape@a")
    assert counts.tolist() == [[float(step), 1, 2] for step in steps]
    assert not run.problems
