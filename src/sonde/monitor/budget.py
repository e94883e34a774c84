"""What the watching costs, and how far cadences are stretched for it."""

import time
from dataclasses import replace

import torch

from sonde.core.cadences import Adaptive
from sonde.monitor.charges import Charges
from sonde.probes.phases import DeviceClock

_FLOOR_S = {"cuda": 2e-4}
_FLOOR_ELSEWHERE_S = 1.5e-4
# Most that goes wrong does so early, and a closer look at so many steps costs a fifth of a second in all.
_CLOSE_STEPS = 100
_CLOSE_FLOOR_S = 2e-3
_SHORT_STEPS = 1_000  # of a run whose first looks are what it is told about
_SAMPLED_STEPS = 17  # has no factor in common with the intervals of rotations, so that every slot is timed in its turn
# Where cadences are much stretched, looks are so small that what each costs, however little it looks at, is most of it.
# So stretching saves less than it should, and with a memory of 100 steps it would take hundreds of them to notice.
_BRISK_STRETCH = 4.0
_BRISK_DECAY = 0.98
# Kernels are found, tables uploaded and memory allocated in the first steps, which says nothing about those to come.
_PREPARING_STEPS = 20
# A model of a thousand blocks has first turns for a thousand steps, and must keep to its budget all the same.
_MOST_PREPARING_STEPS = 100


class Budget:
    """Sonde's own time in a step, against max(share × step time, floor).

    On a CPU that is the time of the training thread. On a GPU each part of the work pays its host time where the device
    tends to have run out of work before all of the part was launched, else its device time (see `Charges`). The latter
    is taken between events in some steps, and only where the device had not come to the part's beginning at its end:
    otherwise it would hold gaps in which the device waits for the host.

    Cadences are not stretched for the first 20 steps, nor, among the first 100, for a step in which something was
    prepared for its first turn.

    Args:
        share: Of the step time, in (0, 1], or infinite: then cadences are kept, whatever it costs.
        device: Where the training runs.
        floor_s: Seconds a step that are always allowed, above 0; by default 0.2 ms on a GPU, and elsewhere 2 ms in
            the first 100 steps, then 0.15 ms.
    """

    def __init__(self, share: float, device: torch.device, *, floor_s: float | None = None) -> None:
        self._device = device
        self._on_gpu = device.type == "cuda"
        self._is_limited = share <= 1
        self._late_floor_s = floor_s or _FLOOR_S.get(device.type, _FLOOR_ELSEWHERE_S)
        first_s = self._late_floor_s if self._on_gpu or floor_s is not None else _CLOSE_FLOOR_S
        self._adaptive = Adaptive(budget=min(share, 1.0), floor_s=first_s)
        self._brisk = replace(self._adaptive, decay=_BRISK_DECAY)
        self._state = self._adaptive.init()
        self._charges = Charges()
        self._usual_s = 0.0
        self._clocks: dict[str, DeviceClock] = {}
        self._beginnings: dict[str, torch.cuda.Event] = {}
        self._begun: str | None = None
        self._last_stream: tuple[int, torch.cuda.Stream] | None = None
        self._sampled = self._on_gpu
        self._is_preparing = self._will_prepare = False
        self.own_s = 0.0
        """On a CPU, of the present step."""
        self.total_own_s = self.total_s = 0.0
        self._first_own_s: float | None = None
        """In the first 100 steps, once they are over."""
        self.num_steps = 0

    @property
    def stretch(self) -> float:
        """How much rarer than the settings say things should be measured."""
        return self._state.stretch

    def begin(self, part: str) -> float:
        """A part of our work begins, not inside a capture of a CUDA graph; what `end` wants to know."""
        if self._on_gpu:
            event = self._beginnings.get(part)
            if event is None:
                event = self._beginnings[part] = torch.cuda.Event()  # type: ignore[no-untyped-call]
                self._clocks[part] = DeviceClock(self._device)
            event.record(self._stream())
            self._begun = part
            if self._sampled:
                self._clocks[part].begin()
        return time.perf_counter()

    def end(self, part: str, began: float) -> float:
        """It is over; when."""
        if self._begun == part:
            self._begun = None
            idle = self._beginnings[part].query()  # type: ignore[no-untyped-call]
            self._charges.looked(part, idle=idle)
            if self._sampled and not idle:
                self._clocks[part].end()
        ended = time.perf_counter()
        self.took(part, ended - began)
        return ended

    def _stream(self) -> torch.cuda.Stream:
        # Making the object takes as long as recording an event.
        handle = torch._C._cuda_getCurrentRawStream(self._device.index)
        if self._last_stream is None or self._last_stream[0] != handle:
            self._last_stream = handle, torch.cuda.current_stream(self._device)
        return self._last_stream[1]

    def took(self, part: str, seconds: float, *, like: str | None = None) -> None:
        """Our work took so long, as somebody else has measured; it hides where the part `like` does, if any."""
        if self._on_gpu:
            self._charges.on_host(part, seconds, like=like)
        else:
            self.own_s += seconds

    def prepares_next(self) -> None:
        """In the next step something will be made that later ones use again."""
        self._will_prepare = True

    def step(self, step_s: float) -> tuple[float, dict[str, float]]:
        """A step of the training is over: the stretch from now on, and the series.

        Args:
            step_s: What it took, our part included.
        """
        host_s = own_s = self.own_s
        if self._on_gpu:
            for part, clock in self._clocks.items():
                for seconds in clock.finished():
                    self._charges.on_device(part, seconds)
            own_s, host_s = self._charges.close(), self._charges.host_s
        self.own_s = 0.0
        # Between two steps there may be an evaluation, a checkpoint or a debugger: not what a step costs.
        self._usual_s = step_s if not self.num_steps else min(step_s, 2 * self._usual_s)
        self.num_steps += 1
        if self.num_steps == _CLOSE_STEPS:
            self._first_own_s = self.total_own_s + own_s
            if self._adaptive.floor_s != self._late_floor_s:
                self._adaptive = replace(self._adaptive, floor_s=self._late_floor_s)
                self._brisk = replace(self._brisk, floor_s=self._late_floor_s)
        is_preparing = self._is_preparing and self.num_steps <= _MOST_PREPARING_STEPS
        if self._is_limited and not is_preparing and self.num_steps > _PREPARING_STEPS:
            adaptive = self._brisk if self._state.stretch >= _BRISK_STRETCH else self._adaptive
            self._state, _ = adaptive.step(self._state, own_s, self._usual_s)
        self._is_preparing, self._will_prepare = self._will_prepare, False
        self._sampled = self._on_gpu and self.num_steps % _SAMPLED_STEPS == 0
        self.total_own_s += own_s
        self.total_s += step_s
        stretch = self._state.stretch
        series = {"monitor/time": own_s, "monitor/host": host_s, "monitor/stretch": stretch}
        if self._on_gpu:
            series["monitor/device"] = self._charges.device_s
        return stretch, series

    def __str__(self) -> str:
        """One line for the end of a run."""
        if not self.num_steps:
            return "no step was watched"
        steps = f"{self.num_steps:,} step{'s' * (self.num_steps != 1)}"
        first_s = self.total_own_s if self._first_own_s is None else self._first_own_s
        own_s = self.total_own_s
        in_all = f"{steps}; watching took {f'{own_s:.1f} s' if own_s >= 0.1 else f'{1e3 * own_s:.0f} ms'} in all"
        if self.num_steps < _SHORT_STEPS and first_s > own_s / 2:  # a share would be of what no later step pays
            return f"{in_all}, most of it first looks"
        if self.total_own_s > self.total_s:  # what integrations and endings are charged with is no part of a step
            return in_all
        share = self.total_own_s / self.total_s if self.total_s else 0.0
        own_ms = 1e3 * self.total_own_s / self.num_steps
        return f"{steps}; watching took {own_ms:.2f} ms a step, {share:.2%} of the time"
