"""SYS003 data-bound."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import amount
from sonde.core.quantities import share as percent
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Severity, Sighting
from sonde.rules.systems.throughput_drop import own_share


class DataBoundState(NamedTuple):
    """Seconds waited for data and seconds altogether, of each of the last steps."""

    waits: tuple[float, ...] = ()
    totals: tuple[float, ...] = ()
    num_seen: int = 0
    works: tuple[float, ...] = ()
    """Seconds of the waits in which the training's own thread made the batch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataBound:
    """Training waits for its data.

    What it detects:
        - Over the last `window` steps, more than `least_share` of the time went into waiting for the next batch, and at
          least `least_s` seconds a step. Half a window is enough for `large_share`.
        - The first ten steps do not count, and no single wait counts for more than a quarter of all: the pause between
          two epochs is no stall.
        - Warning: nearly every step waits as long. The shortest tenth of the waits makes up that share of the shortest
          steps.
        - Warning: the waits come in at least four bursts at even distances. Three bursts are enough if the distances
          are the same and the waits are within a tenth.
        - Information: all other cases.
        - Information too if, on a CPU, the training's own thread makes the batches for more than half of that time
          (`time/data_work`): it works, and does not wait.

    Why it matters:
        The device idles for that share of the time.

    Evidence:
        `time/data` against `time/step`, and whether the wait comes at every step or in bursts.

    What to do:
        - Give the loader more workers, and let it prefetch.
        - Decode the data once and store the result.
        - If the waits come in bursts at even distances, the workers fall behind: change their number, or the size of a
          chunk.

    When it is wrong:
        - Tiny models spend most of a very short step on anything but computing. Nothing is said below `least_s`.
        - Only loaders that go through `watch.data` are seen.

    References:
        Mohan et al., Analyzing and mitigating data stalls in DNN training, VLDB 2021.
    """

    code: ClassVar[str] = "SYS003"
    name: ClassVar[str] = "data-bound"
    needs: ClassVar[tuple[str, ...]] = ("time/data", "time/step")
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.DATA_STALL: For("time goes into waiting for data"),
        Cause.SLOWDOWN: Against("the data are late"),
    }
    quiet_steps: ClassVar[int] = 60

    window: int = 60
    least_share: float = 0.5
    large_share: float = 0.6
    least_s: float = 0.005

    def init(self) -> DataBoundState:
        """Before the first step."""
        return DataBoundState()

    def step(self, state: DataBoundState, look: Look) -> tuple[DataBoundState, Sequence[Sighting]]:
        """Look at the waiting of one more step."""
        wait, total = look.view.value("time/data"), look.view.value("time/step")
        if not (math.isfinite(wait) and math.isfinite(total) and total > 0):
            return state, ()
        num = state.num_seen + 1
        if num <= 10:
            return state._replace(num_seen=num), ()
        waits, totals = (*state.waits, wait)[-self.window :], (*state.totals, total)[-self.window :]
        work = look.view.value("time/data_work") / own_share(look)  # had it not had to wait for a processor
        works = (*state.works, work if work > 0 else 0.0)[-self.window :]
        state = DataBoundState(waits, totals, num, works)
        if len(waits) < self.window // 2:
            return state, ()
        waited = np.array(waits)
        rest = np.sum(totals) - np.sum(waited)
        waited = np.minimum(waited, np.sum(waited) / 4)
        share, mean = float(np.sum(waited) / (np.sum(waited) + rest)), float(np.mean(waited))
        least = self.least_share if len(waits) == self.window else self.large_share
        if share < least or mean < self.least_s:
            return state, ()
        shortest = float(np.quantile(waits, 0.1))
        steady = shortest > max(least * float(np.quantile(totals, 0.1)), self.least_s)
        bursts = np.flatnonzero(waited > 3 * mean)
        gaps = np.diff(bursts)
        even = len(gaps) >= 3 and gaps.min() > 1 and np.ptp(gaps) <= max(1.0, 0.2 * float(np.median(gaps)))
        lengths = np.array(waits)[bursts]
        same = len(gaps) == 2 and gaps.min() > 1 and np.ptp(gaps) == 0 and np.ptp(lengths) < 0.1 * lengths.min()
        even = even or same
        periodic = even and waited[bursts].sum() > 0.8 * waited.sum()
        if len(waits) < self.window and not (steady or periodic):
            return state, ()
        how = (
            "at every step"
            if steady
            else f"in bursts {np.median(gaps):.0f} steps apart"
            if periodic
            else "now and then"
        )
        message = (
            f"{percent(share)} of the time goes into waiting for data: {amount(1e3 * mean)} ms a step on average, {how}"
        )
        evidence = (
            Evidence(tag="time/data", step=look.view.step, value=mean),
            Evidence(tag="time/step", step=look.view.step, value=float(np.mean(totals))),
        )
        works_itself = sum(works) > 0.5 * sum(waits)
        severity = Severity.WARNING if (steady or periodic) and not works_itself else Severity.INFO
        return state, (Sighting(severity, message, evidence=evidence),)
