"""How long the phases of an iteration take, on the device where there is one, without ever waiting for it."""

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, final

import numpy as np
import torch
from torch import nn

from sonde.core.frames import MISSING, Columns
from sonde.core.records import Float64
from sonde.probes.events import Events
from sonde.probes.probe import Reading, Row, known
from sonde.probes.roots import Roots
from sonde.probes.seams import BACKWARD, CLIP_TOTAL, COLLECTIVES, GRAD, Backward, Gradient, Seam
from sonde.probes.stopwatch import Stopwatch

_YIELDS = {
    "time/forward": "seconds in the forward passes of the iteration",
    "time/loss": "seconds from the end of a forward to the call of `backward`",
    "time/backward": "seconds inside `backward`",
    "time/clip": "seconds in torch's clipping of gradients",
    "time/optimizer_device": "seconds in the optimisers' steps, on the device where there is one",
    "time/communication": "seconds in calls of `torch.distributed` by the script, outside forward and backward",
    "time/monitor": "seconds in which the iteration waited for the watching",
    "time/other": "seconds of the iteration in nothing of that, and not waiting for data",
}
_COLUMNS = Columns("phases", tuple(_YIELDS))
_ALWAYS = ("time/monitor", "time/other")
_CAPTURED = "a CUDA graph was being captured, in which no time may be taken"
_MOST_WAITING = 64  # the device is a few steps behind at most; more would be events that never come


class Clock(Protocol):
    """Takes the moments of an iteration."""

    measures_host: bool
    """Whether it is the clock by which the training's thread waits; its moments are then seconds."""

    def stamp(self) -> Any:
        """The present moment, None where it must not be taken."""

    def passed(self, stamps: Sequence[Any]) -> bool:
        """Whether all the moments lie in the past, so that `seconds` may be asked."""

    def seconds(self, start: Any, end: Any) -> float:
        """From one moment to another."""


class _HostClock:
    measures_host = True

    def stamp(self) -> float:
        return time.perf_counter()

    def passed(self, stamps: Sequence[float]) -> bool:
        return True

    def seconds(self, start: float, end: float) -> float:
        return end - start


class _CudaClock:
    """Moments are events on the current stream."""

    measures_host = False

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


class _Mark(NamedTuple):
    moment: str
    stamp: Any
    own_s: float
    """What hooks of ours have taken on the host until then."""


_NO_WORK = frozenset({"begin", "data", "data-done"})


@final
class Phases:
    """Splits an iteration into what the training does in it, by the moments at which torch tells us.

    - forward: from the start to the end of a model's own forward, grad-enabled calls only;
    - loss: from the end of a forward to the call of `backward`, where no other forward lies in between;
    - backward: from the call of `backward` (or of `torch.autograd.grad`, unless its gradients are differentiated in
      turn) to its return, with the communication in it and with forwards that are recomputed in it (checkpointing);
    - clip: inside torch's functions that clip gradients, the norm among it; one by hand is not seen;
    - optimiser: inside `optimizer.step`, without what a closure evaluates in it;
    - communication: inside collective calls of `torch.distributed` that the script makes outside of those above;
    - monitor: where the iteration waits for us;
    - other: all that is left, without the wait for data. A forward that is not seen is there.

    Each is summed over the iteration. With the wait for data (`time/data`) they make up its time.

    On a CPU the moments are read from the clock. On a CUDA device they are events on the current stream, and the times
    are those of the device: the launches of our hooks are part of the phase they lie in, and a wait for data is part of
    *other*. An iteration's times are told once the device has passed them: where it lags behind, by a later `collect`,
    one iteration at a time, so that a row tells of an armed iteration before.

    A span that did not occur is `MISSING`. Nothing is taken while a CUDA graph is being captured; a replayed one shows
    no forwards.

    Args:
        models: By name; forwards of a model inside another one's count as the outer one's.
        device: Where the training runs.
        clock: Runs while a hook of ours is called.
        times: Takes the moments; by default as it is said above.
    """

    yields = _YIELDS

    def __init__(
        self,
        models: Mapping[str, nn.Module],
        device: torch.device,
        *,
        clock: Stopwatch | None = None,
        times: Clock | None = None,
    ) -> None:
        self._own = clock or Stopwatch()
        self._roots = Roots(models, self._own)
        self._clock: Clock = times or (_CudaClock(device) if device.type == "cuda" else _HostClock())
        self._armed = False
        self._moments: list[Callable[[str], None]] = []
        """Who is told of moments."""
        self._thread = 0
        self._marks: list[_Mark] = []
        self._running: str | None = None
        self._captured = self._was_captured = False
        self._waiting: deque[list[_Mark]] = deque(maxlen=_MOST_WAITING)
        is_distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        self._seams: list[tuple[Seam, Callable[[Any], None]]] = [
            (BACKWARD, self._on_backward),
            (GRAD, self._on_backward),
            (CLIP_TOTAL, partial(self._on_span, "clip")),
            *((seam, partial(self._on_span, "communication")) for seam in (COLLECTIVES if is_distributed else ())),
        ]
        # Not for single iterations: what is compiled in between would be compiled anew.
        self._undo = [seam.listen(listener, attends=False) for seam, listener in self._seams]

    @property
    def num_slots(self) -> int:
        """All is measured together."""
        return 1 if len(self._roots) else 0

    def arm(self, slots: Sequence[int]) -> None:
        """Watch this iteration, from now on."""
        if slots:
            self._armed, self._marks, self._running, self._captured = True, [], None, False
            self._thread = threading.get_ident()
            self._roots.attach(self._forward_starts, self._forward_ends)
            for seam, listener in self._seams:
                seam.attend(listener)
            if self.mark not in self._moments:
                self._moments.append(self.mark)
            self._take("begin")

    def listen(self, events: Events) -> None:
        """Be told of the moments of armed iterations, and of waits for data."""
        self._moments = events.moment
        events.waited.append(self.waited)

    def mark(self, moment: str) -> None:
        """A moment has come; does nothing in iterations that are not armed.

        "begin": the armed iteration begins only now, and what lies before belongs to none. The others come from the
        hooks of optimisers ("optimizer" where the step begins, "optimizer-done" where it ends) and of clips, and around
        our own work.
        """
        if self._armed:
            if moment == "begin":
                self._marks = []
            self._take(moment)

    def waited(self, seconds: float) -> None:
        """The iteration has waited for data until now."""
        if self._armed and self._clock.measures_host and self._marks:
            now, last = self._clock.stamp(), self._marks[-1].stamp
            self._marks.append(_Mark("data", max(now - seconds, last), self._own.total_s))
            self._marks.append(_Mark("data-done", now, self._own.total_s))

    def collect(self) -> Sequence[Reading]:
        """The times of the oldest armed iteration that the device has passed since."""
        if self._armed:
            is_paused = bool(self._marks) and self._marks[-1].moment == "monitor"  # to close the iteration
            is_empty = all(mark.moment in _NO_WORK for mark in self._marks[: -1 if is_paused else None])
            if not is_empty and not is_paused:
                self._take("end")
            self._armed = False
            if not is_empty and not self._captured:
                self._waiting.append(self._marks)
            self._marks = []
            self._roots.release()
            for seam, listener in self._seams:
                seam.ignore(listener)
            if self.mark in self._moments:
                self._moments.remove(self.mark)
        if not self._waiting or not self._clock.passed([mark.stamp for mark in self._waiting[0]]):
            return []
        return [known(Row(_COLUMNS, self._split(self._waiting.popleft())))]

    def not_measured(self) -> Mapping[str, str]:
        """Forwards that cannot be seen, with the losses that begin at their end; captured iterations."""
        found = dict.fromkeys(_YIELDS, _CAPTURED) if self._was_captured else {}
        for reason in self._roots.trouble().values():
            found |= {"time/forward": reason, "time/loss": reason}
        return found

    def close(self) -> None:
        """Let go of the models and of all moments."""
        self._armed = False
        self._marks = []
        self._waiting.clear()
        for undo in self._undo:
            undo()
        self._roots.close()

    def _forward_starts(self, name: str, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
        if self._running in (None, name):  # its last forward may never have ended: it raised, and somebody caught that
            self._running = name
            self.mark("forward")

    def _forward_ends(self, name: str, _output: Any) -> None:
        if self._running == name:
            self._running = None
            self.mark("forward-done")

    def _on_backward(self, event: Backward | Gradient) -> None:
        if not (isinstance(event, Gradient) and event.created):
            self._on_span("backward", event.done)

    def _on_span(self, phase: str, is_done: bool) -> None:
        if self._armed and threading.get_ident() == self._thread:
            self._take(f"{phase}-done" if is_done else phase)

    def _take(self, moment: str) -> None:
        stamp = self._clock.stamp()
        if stamp is None:
            self._captured = self._was_captured = True
        else:
            self._marks.append(_Mark(moment, stamp, self._own.total_s))

    def _split(self, marks: Sequence[_Mark]) -> Float64:
        split = _Split()
        for before, after in itertools.pairwise(marks):
            split.come(before.moment)
            own_s = after.own_s - before.own_s if self._clock.measures_host else 0.0
            split.spend(self._clock.seconds(before.stamp, after.stamp), own_s)
        split.come("end")
        return np.array([split.seconds.get(tag, MISSING) for tag in _YIELDS], np.float64)


class _Split:
    """Adds up the spans between the moments of an iteration, each in its phase.

    A forward, and what follows it, are tentative: whether the forward ended, and whether `backward` was called next, is
    known only then. Otherwise nobody knows what the time went into.
    """

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(_ALWAYS, 0.0)
        self._rest = self._phase = "time/other"
        """What lies between the phases, and the one that goes on."""
        self._interrupted: list[str] = []
        """By the monitor or a communication; the last is gone back to first."""
        self._tentative_s = 0.0
        self._num_backwards = 0

    def come(self, moment: str) -> None:
        """A moment of the iteration."""
        phase, _, is_done = moment.partition("-")
        if phase in ("monitor", "communication"):
            if not is_done:
                self._interrupted.append(self._phase)
                is_part = self._num_backwards > 0 or self._phase in ("time/forward", "time/clip", "time/monitor")
                self._phase = self._phase if phase == "communication" and is_part else f"time/{phase}"
            elif self._interrupted:
                self._phase = self._interrupted.pop()
        elif phase == "backward":
            self._num_backwards += -1 if is_done else 1
            if self._num_backwards == (not is_done):  # else one within another
                self._go_to(self._rest if is_done else "time/backward", after="time/loss")
        elif self._num_backwards > 0 or (phase == "data" and self._phase == "time/loss"):
            pass  # who says it late says it of the wait before the forward
        elif moment == "forward-done":
            self._go_to("time/loss", after="time/forward")
        elif phase == "optimizer":
            self._go_to("time/other" if is_done else "time/optimizer_device")
            self._rest = self._phase
        else:
            phases = {"forward": "time/forward", "clip": "time/clip", "data": ""}
            self._go_to(phases.get(moment, self._rest))

    def spend(self, seconds: float, own_s: float) -> None:
        """The time from the last moment to the next, and what hooks of ours took of it."""
        self._add("time/monitor", own_s)
        seconds = max(seconds - own_s, 0.0)
        if self._phase in ("time/forward", "time/loss"):
            self._tentative_s += seconds
        elif self._phase:
            self._add(self._phase, seconds)

    def _go_to(self, phase: str, *, after: str = "") -> None:
        """Begin a phase; what was tentative was the one before that is expected, or belongs to none."""
        if self._phase in ("time/forward", "time/loss"):
            self._add(self._phase if self._phase == after else self._rest, self._tentative_s)
        self._tentative_s, self._phase = 0.0, phase

    def _add(self, phase: str, seconds: float) -> None:
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds


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
