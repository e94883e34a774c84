"""What the watching costs, and how far cadences are stretched for it."""

import time
from collections import defaultdict, deque

import torch

from sonde.core.cadences import Adaptive
from sonde.probes.phases import DeviceClock

_FLOOR_S = {"cuda": 2e-4}
_FLOOR_ELSEWHERE_S = 2e-3
_DECAY = 0.98
_IDLE = 0.05
_SAMPLED_STEPS = 17  # has no factor in common with the intervals of rotations, so that every slot is timed in its turn


class Budget:
    """Sonde's own time in a step, against max(share × step time, floor).

    On a CPU that is the time of the training thread. On a GPU the training waits for whichever of host and device is
    behind: the host's time counts only where the device had run out of work when it began (looked at each time; in more
    than 5% of the steps, or it is taken for hidden), the device's as measured between events in some steps. The larger
    of the two is what the step paid.

    Args:
        share: Of the step time, in (0, 1], or infinite: then cadences are kept, whatever it costs.
        device: Where the training runs.
    """

    def __init__(self, share: float, device: torch.device) -> None:
        self._device = device
        self._on_gpu = device.type == "cuda"
        self._is_limited = share <= 1
        self._adaptive = Adaptive(budget=min(share, 1.0), floor_s=_FLOOR_S.get(device.type, _FLOOR_ELSEWHERE_S))
        self._state = self._adaptive.init()
        self._spent: defaultdict[str, float] = defaultdict(float)
        self._idle: dict[str, float] = {}
        self._device_s = self._usual_s = 0.0
        self._clock = DeviceClock(device)
        self._sampled = self._on_gpu
        self._num_pieces = 0
        self._groups: deque[int] = deque()
        self._pieces: list[float] = []
        self.total_own_s = self.total_s = 0.0
        self.num_steps = 0

    def begin(self, part: str) -> float:
        """A part of our work begins; what `end` wants to know."""
        if self._sampled:
            self._clock.begin()
        if self._on_gpu and not torch.cuda.is_current_stream_capturing():
            idle = torch.cuda.current_stream(self._device).query()
            self._idle[part] = _DECAY * self._idle.get(part, 0.0) + (1 - _DECAY) * idle
        return time.perf_counter()

    def end(self, part: str, began: float) -> None:
        """It is over."""
        if self._sampled:
            self._clock.end()
            self._num_pieces += 1
        self._spent[part] += time.perf_counter() - began

    def took(self, part: str, seconds: float) -> None:
        """Our work took so long, as somebody else has measured."""
        self._spent[part] += seconds

    def _look_at_device(self) -> None:
        """Add up what the device has finished of the steps that were timed there."""
        if self._sampled and self._num_pieces:
            self._groups.append(self._num_pieces)
        self._num_pieces = 0
        self._pieces += self._clock.finished()
        while self._groups and len(self._pieces) >= self._groups[0]:
            num = self._groups.popleft()
            seconds, self._pieces = sum(self._pieces[:num]), self._pieces[num:]
            self._device_s = seconds if not self._device_s else 0.8 * self._device_s + 0.2 * seconds
        self._sampled = self._on_gpu and self.num_steps % _SAMPLED_STEPS == 0

    def step(self, step_s: float) -> tuple[float, dict[str, float]]:
        """A step of the training is over: the stretch from now on, and the series."""
        if self._on_gpu:
            self._look_at_device()
        host_s = sum(self._spent.values())
        exposed_s = sum(s for part, s in self._spent.items() if self._idle.get(part, 1.0) > _IDLE)
        own_s = max(exposed_s, self._device_s)
        self._spent.clear()
        # Between two steps there may be an evaluation, a checkpoint or a debugger: not what a step costs.
        self._usual_s = step_s if not self.num_steps else min(step_s, 2 * self._usual_s)
        stretch = 1.0
        if self._is_limited:
            self._state, stretch = self._adaptive.step(self._state, own_s, self._usual_s)
        self.total_own_s += own_s
        self.total_s += step_s
        self.num_steps += 1
        series = {"monitor/time": own_s, "monitor/host": host_s, "monitor/stretch": stretch}
        if self._on_gpu:
            series["monitor/device"] = self._device_s
        return stretch, series

    def __str__(self) -> str:
        """One line for the end of a run."""
        if not self.num_steps:
            return "no step was watched"
        share = self.total_own_s / self.total_s if self.total_s else 0.0
        own_ms = 1e3 * self.total_own_s / self.num_steps
        return f"{self.num_steps:,} steps; watching took {own_ms:.2f} ms a step, {share:.2%} of the time"
