"""Every signal of the catalogue: missing values, memory, checkpoints, and vectors that are loops of scalars."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import sonde.signals
from sonde.core import strict_json
from sonde.signals import windows
from sonde.signals.catalogue import SIGNALS, TIMED_SIGNALS
from sonde.signals.signal import Signal
from sonde.signals.states import dump, load

NUM_TAGS, NUM_STEPS = 6, 300
HOLES = [np.nan, np.inf, -np.inf]


class AtSteps:
    """A timed signal driven as a plain one: the calls are numbered as irregular training steps."""

    def __init__(self, signal: Any) -> None:
        self.signal = signal

    def init(self, num_tags: int) -> Any:
        return (0, self.signal.init(num_tags))

    def step(self, state: Any, values: npt.NDArray[np.float64]) -> tuple[Any, Any]:
        call, inner = state
        inner, out = self.signal.step(inner, values, 5 * call + call % 3)
        return (call + 1, inner), out


def name(signal: Any) -> str:
    return type(signal).__name__


each_signal = pytest.mark.parametrize("signal", [*SIGNALS, *TIMED_SIGNALS], ids=name)


def as_plain(signal: Any) -> Signal:
    return AtSteps(signal) if signal in TIMED_SIGNALS else signal


def arrays(state: Any) -> list[npt.NDArray[Any]]:
    """All arrays of a state or result, however nested; the count of calls of `AtSteps` is not the signal's."""
    if isinstance(state, tuple):
        return [array for part in state if not isinstance(part, int) for array in arrays(part)]
    return [state]


def same(a: Any, b: Any) -> bool:
    return all(
        x.dtype == y.dtype and np.array_equal(x, y, equal_nan=x.dtype.kind == "f")
        for x, y in zip(arrays(a), arrays(b), strict=True)
    )


def trainings(seed: int) -> npt.NDArray[np.float64]:
    """Series as trainings have them: falling, flat, growing, jumping, constant, alternating; positive, with holes."""
    rng = np.random.default_rng(seed)
    t = np.arange(NUM_STEPS)
    clean = np.stack(
        (
            1 + 3 * (t + 1) ** -0.5,
            np.full(NUM_STEPS, 2.0),
            np.exp(0.05 * t),
            np.where(t < 150, 1.0, 4.0),
            np.full(NUM_STEPS, 0.3),
            1.0 + 0.5 * (t % 2),
        ),
        axis=1,
    )
    noise = np.exp(0.1 * rng.normal(size=clean.shape) * [1, 1, 1, 1, 0, 1])
    series = clean * noise
    holes = rng.random(series.shape) < 0.1
    series[holes] = rng.choice(HOLES, size=holes.sum())
    return series


@each_signal
def test_a_value_that_is_not_there_leaves_the_state_as_it_is(signal: Any) -> None:
    plain = as_plain(signal)
    state = plain.init(NUM_TAGS)
    for i, row in enumerate(trainings(0)):
        if i % 20 == 0:
            for hole in HOLES:
                after, _ = plain.step(state, np.full(NUM_TAGS, hole))
                assert same(after, state), f"{hole} at {i}"
        state, _ = plain.step(state, row)


@each_signal
def test_a_state_is_never_changed_in_place(signal: Any) -> None:
    plain = as_plain(signal)
    state = plain.init(NUM_TAGS)
    for row in trainings(1):
        before = [array.copy() for array in arrays(state)]
        values = row.copy()
        new, _ = plain.step(state, values)
        assert all(
            np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(before, arrays(state), strict=True)
        )
        assert np.array_equal(values, row, equal_nan=True)
        state = new


@each_signal
def test_memory_is_bounded(signal: Any) -> None:
    plain = as_plain(signal)
    state = fresh = plain.init(NUM_TAGS)
    for row in trainings(2):
        state, _ = plain.step(state, row)
    shapes = [(array.shape, array.dtype) for array in arrays(state)]
    assert shapes == [(array.shape, array.dtype) for array in arrays(fresh)]
    assert all(array.shape[0] == NUM_TAGS for array in arrays(state))


@each_signal
def test_a_checkpoint_in_the_middle_changes_nothing(signal: Any) -> None:
    plain = as_plain(signal)
    state = restored = plain.init(NUM_TAGS)
    for i, row in enumerate(trainings(3)):
        if i % 37 == 0:
            inner = restored[1] if isinstance(plain, AtSteps) else restored
            text = strict_json.dumps(dump(inner))
            inner = load(strict_json.loads(text), signal.init(NUM_TAGS))
            restored = (restored[0], inner) if isinstance(plain, AtSteps) else inner
        state, expected = plain.step(state, row)
        restored, out = plain.step(restored, row)
        assert same(out, expected), i
    assert same(restored, state)


@each_signal
def test_a_vector_of_tags_is_a_loop_over_them(signal: Any) -> None:
    plain = as_plain(signal)
    copies = 1 + windows.FEW // NUM_TAGS  # many tags, of which one is computed by other code than a few
    together = plain.init(copies * NUM_TAGS)
    alone = [plain.init(1) for _ in range(NUM_TAGS)]
    for row in trainings(4):
        together, out = plain.step(together, np.tile(row, copies))
        for tag in range(NUM_TAGS):
            alone[tag], single = plain.step(alone[tag], row[tag : tag + 1])
            for both, one in zip(arrays(out), arrays(single), strict=True):
                assert both[tag] == pytest.approx(one[0], rel=1e-9, abs=1e-12, nan_ok=True)


@each_signal
def test_no_tags_are_no_error(signal: Any) -> None:
    plain = as_plain(signal)
    _, out = plain.step(plain.init(0), np.empty(0))
    assert all(len(array) == 0 for array in arrays(out))


@each_signal
def test_the_largest_and_smallest_numbers_of_a_row_are_no_error(signal: Any) -> None:
    plain = as_plain(signal)
    extremes = np.array([3.4e38, 1e-45, 0.0, -3.4e38, -1e-45, 1.0])
    state = plain.init(NUM_TAGS)
    for i in range(NUM_STEPS):
        state, _ = plain.step(state, np.roll(extremes, i % 4))


@each_signal
def test_it_says_something_in_the_end(signal: Any) -> None:
    plain = as_plain(signal)
    state = plain.init(NUM_TAGS)
    said = False
    for row in trainings(5):
        state, out = plain.step(state, row)
        said |= all(np.isfinite(array[0]).all() for array in arrays(out))
    assert said or name(signal) == "Growth"  # of a series that falls it has nothing to say


@each_signal
def test_settings_are_frozen_and_by_name(signal: Any) -> None:
    field = dataclasses.fields(signal)[0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(signal, field.name, 1)
    with pytest.raises(TypeError):
        type(signal)(1, 2)


def test_every_signal_that_streams_is_in_the_catalogue() -> None:
    folder = Path(next(iter(sonde.signals.__path__)))
    streaming = {path.stem for path in folder.glob("*.py") if "    def step(" in path.read_text(encoding="utf-8")}
    listed = {type(signal).__module__.rpartition(".")[2] for signal in (*SIGNALS, *TIMED_SIGNALS)}
    # The protocol; one that takes a vector instead of tags; one that takes the rate and the loss of one training.
    assert streaming - {"signal", "trajectory", "phase_losses"} == listed
