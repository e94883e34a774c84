"""What a signal is: settings that turn a state and a row of values into the next state and a row of results."""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from sonde.core.records import Float64

Bool = npt.NDArray[np.bool_]


class Signal(Protocol):
    """A statistic of many series at once: one value a tag comes in, one result a tag goes out.

    Rows of a run are float32: make them float64 before the first signal, so that nothing is rounded on the way.
    The settings are frozen, the state is a named tuple of arrays (with the tags along their first axis) and is never
    changed in place, so a checkpoint is `sonde.signals.states.dump(state)`. A value that is NaN, infinite or was not
    measured leaves the state of its tag as it is; what would judge that value is NaN.
    """

    def init(self, num_tags: int) -> Any:
        """The state before the first value."""

    def step(self, state: Any, values: Float64) -> tuple[Any, Any]:
        """Take a value of each tag."""


class TimedSignal(Protocol):
    """A signal that must know *when* a value was measured, since samples may be irregular."""

    def init(self, num_tags: int) -> Any:
        """The state before the first value."""

    def step(self, state: Any, values: Float64, at: int) -> tuple[Any, Any]:
        """Take a value of each tag, measured at training step `at`, which must rise from call to call."""
