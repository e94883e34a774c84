"""SCH005 schedule-per-batch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import amount, share
from sonde.rules.rule import Against, Cause, Claims, For, Look, Severity, Sighting, When

_MOST_DROPS = 16


class SchedulePerBatchState(NamedTuple):
    """The rate, when it last changed, and the drops since the last border of an epoch."""

    lr: float = float("nan")
    changed: int = -1
    start_lr: float = float("nan")
    drops: tuple[tuple[int, float], ...] = ()
    """(steps since the change before, ratio of new to old rate)."""
    has_epochs: bool = False
    is_told: bool = False
    is_warned: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class SchedulePerBatch:
    """A schedule that is meant for epochs moves with every batch.

    What it detects:
        - Within one epoch (between two rows of `epoch`, or two evaluations) the learning rate dropped at least
          `least_drops` times by the same factor, at most 0.95, at equal distances of at most `widest` steps.
        - It has lost `lost` of its value. Step and exponential schedules look like this if they are stepped after each
          batch.
        - It is a warning if there are several steps between the drops.
        - Drops at each step may be an intended exponential decay, and are information. So are drops as long as neither
          the end of an epoch nor an evaluation was seen.

    Why it matters:
        A schedule of thirty epochs is over after thirty batches. The rest of the run learns nothing.

    Evidence:
        `lr` at the start of the epoch and now.

    What to do:
        Call `scheduler.step()` after the loop over batches, or give the schedule's settings in batches.

    When it is wrong:
        - Step schedules that are counted in batches on purpose, within very long epochs. They drop rarely, thousands of
          steps apart, which is why `widest` exists.

    References:
        PyTorch documentation, torch.optim, section How to adjust learning rate.
    """

    code: ClassVar[str] = "SCH005"
    name: ClassVar[str] = "schedule-per-batch"
    needs: ClassVar[tuple[str, ...]] = ("lr",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.SCHEDULE_MISAPPLIED: (
            For("the learning rate drops with batches, as if they were epochs"),
            For("the learning rate falls in stairs within an epoch", when=When.ALARM),
        ),
        Cause.SCHEDULE_DECAYS_TOO_FAST: (
            For("the scheduler is stepped at the wrong place"),
            Against("the scheduler is stepped at the wrong place", when=When.ALARM),
        ),
    }
    quiet_steps: ClassVar[int] = 200

    least_drops: int = 3
    lost: float = 0.8
    widest: int = 100

    def init(self) -> SchedulePerBatchState:
        """Before the first step."""
        return SchedulePerBatchState()

    def step(self, state: SchedulePerBatchState, look: Look) -> tuple[SchedulePerBatchState, Sequence[Sighting]]:
        """Look at one more rate."""
        view = look.view
        lr = view.value("lr")
        if math.isfinite(lr):
            state = self._taken(state, lr, view.step)
        found, start_lr = self._found(state) if not state.is_warned else None, state.start_lr
        if "epoch" in view or "val/loss" in view:
            # A border: what drops from here on belongs to another epoch.
            state = state._replace(drops=(), start_lr=state.lr, has_epochs=True)
        # Where nobody says when an epoch is over, steps may be counted on purpose.
        warns = found is not None and found[0] > 1 and state.has_epochs
        if found is None or (state.is_told and not warns):
            return state, ()
        gap, ratio = found
        apart = "at every step" if gap == 1 else f"every {gap} steps"
        message = (
            f"{'within one epoch ' * state.has_epochs}the learning rate fell from {amount(start_lr)} to "
            f"{amount(state.lr)}: it loses {share(1 - ratio)} {apart}"
        )
        evidence = look.evidence("lr", state.lr, start_lr)
        severity = Severity.WARNING if warns else Severity.INFO
        return state._replace(is_told=True, is_warned=warns), (Sighting(severity, message, evidence=(evidence,)),)

    def _taken(self, state: SchedulePerBatchState, lr: float, step: int) -> SchedulePerBatchState:
        if math.isnan(state.lr):
            return state._replace(lr=lr, changed=step, start_lr=lr)
        if abs(lr - state.lr) <= 1e-6 * max(abs(lr), abs(state.lr)):
            return state
        drop = (step - state.changed, lr / state.lr if state.lr > 0 else np.inf)
        drops = (*state.drops, drop)[-_MOST_DROPS:] if lr < state.lr else ()
        return state._replace(lr=lr, changed=step, drops=drops, start_lr=state.start_lr if drops else lr)

    def _found(self, state: SchedulePerBatchState) -> tuple[int, float] | None:
        """The distance and factor of the drops, where they are those of a step or exponential schedule."""
        if len(state.drops) < self.least_drops or state.lr > (1 - self.lost) * state.start_lr:
            return None
        gaps, ratios = zip(*state.drops[1:], strict=True)
        first_ratio = state.drops[0][1]
        same_gap = max(gaps) == min(gaps) <= self.widest
        same_ratio = max(*ratios, first_ratio) - min(*ratios, first_ratio) < 1e-3
        return (int(gaps[-1]), float(ratios[-1])) if same_gap and same_ratio and ratios[-1] <= 0.95 else None
