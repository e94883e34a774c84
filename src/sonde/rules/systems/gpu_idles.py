"""SYS009 gpu-idles."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import count
from sonde.core.quantities import share as percent
from sonde.rules.rule import Cause, Claims, Evidence, For, Look, Severity, Sighting
from sonde.rules.step_view import StepView

_TAG = "device/utilisation"


class GpuIdlesState(NamedTuple):
    """How many looks there were at all, and the last ones at each GPU by its name, which is empty where it is alone."""

    num_looks: int = 0
    shares: Mapping[str, tuple[float, ...]] = {}


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuIdles:
    """A GPU does nothing for much of the time.

    What it detects:
        - The median of the last `window` readings of `device/utilisation` is below `least`, of any GPU that the
          training uses.
        - The first `passed_over` readings do not count: kernels are compiled then.
        - Always information: a small model cannot keep a large GPU busy, and nothing is wrong with its training. Where
          time is lost that was not lost before, SYS001, SYS002 and SYS003 raise the alarm.

    Why it matters:
        The same training could run in less time, or on a cheaper device.

    Evidence:
        `device/utilisation`: the share of the last moments in which any kernel ran; `time/data` against `time/step`.

    What to do:
        - The training waits for data (`time/data`): more loader workers, prefetching, pinned memory.
        - It waits for the host: a larger batch, `torch.compile` or CUDA graphs, fewer `.item()` and prints in the loop.

    When it is wrong:
        - Kernels of other processes count as well, so a GPU may be busy for somebody else.
        - A GPU that always runs a kernel may still use only a small part of itself.

    References:
        NVIDIA, NVML API reference guide, `nvmlDeviceGetUtilizationRates`.
    """

    code: ClassVar[str] = "SYS009"
    name: ClassVar[str] = "gpu-idles"
    needs: ClassVar[tuple[str, ...]] = (_TAG,)
    reads: ClassVar[tuple[str, ...]] = ("device/utilisation", "device/utilisation@")
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.DATA_STALL: For("the GPU idles"),
    }
    quiet_steps: ClassVar[int] = 1000

    least: float = 0.5
    window: int = 20
    passed_over: int = 2

    def init(self) -> GpuIdlesState:
        """Before the first step."""
        return GpuIdlesState()

    def step(self, state: GpuIdlesState, look: Look) -> tuple[GpuIdlesState, Sequence[Sighting]]:
        """Look at the GPUs of one more step, where they were asked."""
        found = _shares(look.view)
        if not found:
            return state, ()
        num = state.num_looks + 1
        if num <= self.passed_over:
            return GpuIdlesState(num, state.shares), ()
        shares = dict(state.shares)
        for name, share in found.items():
            shares[name] = (*shares.get(name, ()), share)[-self.window :]
        usual = {name: statistics.median(seen) for name, seen in shares.items() if len(seen) == self.window}
        idle = sorted((name for name in found if usual.get(name, 1.0) < self.least), key=usual.__getitem__)
        return GpuIdlesState(num, shares), [self._sighting(look, idle, usual)] if idle else ()

    def _sighting(self, look: Look, idle: Sequence[str], usual: Mapping[str, float]) -> Sighting:
        which = f"the GPU ({idle[0]})" if idle[0] else "the GPU"
        wait, took = look.view.value("time/data"), look.view.value("time/step")
        waits = f", and {percent(wait / took)} of this step went into waiting for data" if 0 < wait <= took else ""
        busy = percent(usual[idle[0]])
        message = f"{which} is busy for {busy} of the time (median of {count(self.window, 'reading')}){waits}"
        evidence = [
            Evidence(
                tag=f"{_TAG}@{name}" if name else _TAG, step=look.view.step, value=usual[name], expected=self.least
            )
            for name in idle
        ]
        where = tuple(name for name in idle if name)
        return Sighting(Severity.INFO, message, where=where, evidence=tuple(evidence))


def _shares(view: StepView) -> dict[str, float]:
    """Of the only GPU, or of each by its name."""
    share, several = view.value(_TAG), view.layers(_TAG)
    found = {"": share} if several is None else dict(zip(several.names, several.values.tolist(), strict=True))
    return {name: share for name, share in found.items() if 0 <= share <= 1}
