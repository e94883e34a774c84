"""How long the phases of an iteration take, on the device where there is one, without ever waiting for it."""

import itertools
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, final

import numpy as np
import torch
from torch import nn

from sonde.core.frames import MISSING, Columns
from sonde.core.records import Float64
from sonde.probes.probe import Reading, Row
from sonde.probes.roots import Roots
from sonde.probes.stopwatch import Stopwatch

Moment = Literal["forward", "forward-done", "backward-done", "optimizer", "optimizer-done"]

_YIELDS = {
    "time/forward": "seconds in the forward passes of the iteration",
    "time/backward": "seconds from the end of each forward to the next one or to the optimiser: loss and backward",
    "time/optimizer_device": "seconds in the optimisers' steps, on the device where there is one",
}
_COLUMNS = Columns("phases", tuple(_YIELDS))
# From one moment to the next -> the phase that lies between; between all others lies none.
_PHASES = {
    ("forward", "forward-done"): 0,
    ("forward-done", "forward"): 1,
    ("forward-done", "backward-done"): 1,
    ("forward-done", "optimizer"): 1,
    ("optimizer", "optimizer-done"): 2,
}
_CAPTURED = "a CUDA graph was being captured, in which no time may be taken"
_MOST_WAITING = 64  # the device is a few steps behind at most; more would be events that never come


class _Clock(Protocol):
    def stamp(self) -> Any:
        """The present moment, None where it must not be taken."""

    def passed(self, stamps: Sequence[Any]) -> bool:
        """Whether all the moments lie in the past, so that `seconds` may be asked."""

    def seconds(self, start: Any, end: Any) -> float:
        """From one moment to another."""


class _HostClock:
    def stamp(self) -> float:
        return time.perf_counter()

    def passed(self, stamps: Sequence[float]) -> bool:
        return True

    def seconds(self, start: float, end: float) -> float:
        return end - start


class _CudaClock:
    """Moments are events on the current stream."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def stamp(self) -> torch.cuda.Event | None:
        if torch.cuda.is_current_stream_capturing():
            return None
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

    def passed(self, stamps: Sequence[torch.cuda.Event]) -> bool:
        # A question to the driver in the middle of a capture would spoil the capture.
        return not torch.cuda.is_current_stream_capturing() and all(map(torch.cuda.Event.query, stamps))

    def seconds(self, start: torch.cuda.Event, end: torch.cuda.Event) -> float:
        return float(start.elapsed_time(end)) / 1e3


def _clock(device: torch.device) -> _Clock:
    return _CudaClock(device) if device.type == "cuda" else _HostClock()


class _Mark(NamedTuple):
    moment: Moment
    stamp: Any


@final
class Phases:
    """Splits an iteration into forward, backward and optimiser.

    With the moments of an iteration in their order, each span between two neighbours belongs to a phase:

    - forward: from the start to the end of a model's own forward, grad-enabled calls only, summed over the iteration;
    - backward: from the end of a forward to the start of the next one or to the optimiser, summed. It holds the loss,
      the backward pass with its communication, clipping, and with accumulation the wait for the next micro-batch;
    - optimiser: inside `optimizer.step`, summed over the optimisers.

    On a CPU they are read from the clock. On a CUDA device they are events on the current stream, and the times are
    those of the device. An iteration's times are told once the device has passed them: where it lags behind, by a later
    `collect`, one iteration at a time, so that a row tells of an armed iteration before.

    A span that did not occur is `MISSING`: the backward pass of an iteration without an optimiser's step (unless
    a second forward ends it), the optimiser's time where the step evaluates a closure. What other probes launch in
    between counts as part of the phase. A recomputed forward (activation checkpointing of the whole model) is a forward
    like any other. Nothing is taken while a CUDA graph is being captured; a replayed one shows no forwards.

    Args:
        models: By name; forwards of a model inside another one's count as the outer one's.
        device: Where the training runs.
    """

    def __init__(
        self, models: Mapping[str, nn.Module], device: torch.device, *, clock: Stopwatch | None = None
    ) -> None:
        self._roots = Roots(models, clock)
        self._clock = _clock(device)
        self._armed = False
        self._marks: list[_Mark] = []
        self._running: str | None = None
        self._captured = self._was_captured = False
        self._waiting: deque[list[_Mark]] = deque(maxlen=_MOST_WAITING)

    @property
    def yields(self) -> Mapping[str, str]:
        """The tags that may come of it."""
        return _YIELDS

    @property
    def num_slots(self) -> int:
        """All is measured together."""
        return 1 if len(self._roots) else 0

    def arm(self, slots: Sequence[int]) -> None:
        """Watch the forwards of this iteration."""
        if slots:
            self._armed, self._marks, self._running, self._captured = True, [], None, False
            self._roots.attach(self._forward_starts, self._forward_ends)

    def mark(self, moment: Moment) -> None:
        """A moment has come; does nothing in iterations that are not armed.

        The monitor calls it from its hooks of the optimiser: "optimizer" where the step begins, "optimizer-done" where
        it ends, and, where work of its own lies before the step, "backward-done" before that work.
        """
        if not self._armed:
            return
        stamp = self._clock.stamp()
        if stamp is None:
            self._captured = self._was_captured = True
        else:
            self._marks.append(_Mark(moment, stamp))

    def collect(self) -> Sequence[Reading]:
        """The times of the oldest armed iteration that the device has passed since."""
        if self._armed:
            self._armed = False
            if self._marks and not self._captured:
                self._waiting.append(self._marks)
            self._marks = []
            self._roots.release()
        if not self._waiting or not self._clock.passed([mark.stamp for mark in self._waiting[0]]):
            return []
        values = self._split(self._waiting.popleft())
        return [Reading((), lambda _: [Row(_COLUMNS, values)])]

    def not_measured(self) -> Mapping[str, str]:
        """Forwards that cannot be seen, with the backward passes that begin at their end; captured iterations."""
        found = dict.fromkeys(_YIELDS, _CAPTURED) if self._was_captured else {}
        for reason in self._roots.trouble().values():
            found |= {"time/forward": reason, "time/backward": reason}
        return found

    def close(self) -> None:
        """Let go of the models and of all moments."""
        self._armed = False
        self._marks = []
        self._waiting.clear()
        self._roots.close()

    def _forward_starts(self, name: str, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
        if self._running is None:
            self._running = name
            self.mark("forward")
        elif self._running == name:  # its last forward never ended: it raised, and somebody caught that
            self.mark("forward")

    def _forward_ends(self, name: str, _output: Any) -> None:
        if self._running == name:
            self._running = None
            self.mark("forward-done")

    def _split(self, marks: Sequence[_Mark]) -> Float64:
        values = np.full(len(_YIELDS), MISSING, np.float64)
        for before, after in itertools.pairwise(marks):
            place = _PHASES.get((before.moment, after.moment))
            if place is not None:
                so_far = 0.0 if np.isnan(values[place]) else values[place]
                values[place] = so_far + self._clock.seconds(before.stamp, after.stamp)
        return values


@final
class DeviceClock:
    """Takes the time that some work keeps a CUDA device busy, and tells it when the device has done it.

    Between `begin` and `end` lies the work, launched on the current stream. Nothing waits and, while a CUDA graph is
    being captured, nothing is recorded or asked. On any other device it gives nothing.

    Example:
        >>> clock = DeviceClock(torch.device("cpu"))
        >>> clock.begin()
        >>> clock.end()
        >>> clock.finished()
        []
    """

    def __init__(self, device: torch.device) -> None:
        self._clock = _CudaClock(device) if device.type == "cuda" else None
        self._begun: torch.cuda.Event | None = None
        self._pairs: deque[tuple[torch.cuda.Event, torch.cuda.Event]] = deque(maxlen=_MOST_WAITING)

    def begin(self) -> None:
        """The work begins; a beginning without an end is forgotten."""
        if self._clock is not None:
            self._begun = self._clock.stamp()

    def end(self) -> None:
        """The work is launched."""
        if self._clock is not None and self._begun is not None:
            ended = self._clock.stamp()
            if ended is not None:
                self._pairs.append((self._begun, ended))
            self._begun = None

    def finished(self) -> list[float]:
        """Seconds on the device of each piece of work that it has finished since the last call, oldest first."""
        found: list[float] = []
        while self._clock is not None and self._pairs and self._clock.passed(self._pairs[0]):
            found.append(self._clock.seconds(*self._pairs.popleft()))
        return found
