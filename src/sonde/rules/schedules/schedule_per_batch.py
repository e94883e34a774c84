"""SCH005 schedule-per-batch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Severity, Sighting, When

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
    """A schedule meant for epochs moves with every batch.

    What it detects:
        Within one epoch (between two rows of `epoch` or evaluations) the rate dropped at least `least_drops` times by
        the same factor, at most 0.95, at equal distances, and has lost `lost` of its value: that is how step and
        exponential schedules look that are stepped after each batch. With stretches of several equal steps between the
        drops it is a warning; drops at each step may be an exponential decay meant so, and are information, as are
        those of a run of which neither epochs nor evaluations were ever seen.

    Why it matters:
        A schedule of thirty epochs is over after thirty batches; the rest of the run learns nothing.

    Evidence:
        `lr` at the start of the epoch and now.

    What to do:
        Call `scheduler.step()` after the loop over batches, or give the schedule's settings in batches.

    When it is wrong:
        Step schedules counted in batches on purpose within very long epochs; they drop rarely, thousands of steps
        apart, which is why drops more than `widest` steps apart do not count.

    References:
        PyTorch documentation, torch.optim: how to adjust learning rate.
    """

    code: ClassVar[str] = "SCH005"
    name: ClassVar[str] = "schedule-per-batch"
    needs: ClassVar[tuple[str, ...]] = ("lr",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.SCHEDULE_MISAPPLIED: (
            For("drops meant for epochs come with batches"),
            For("in stairs, as one means them for epochs", when=When.ALARM),
        ),
        Cause.SCHEDULE_DECAYS_TOO_FAST: (
            For("it is stepped at the wrong place"),
            Against("it is stepped at the wrong place", when=When.ALARM),
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
        scene = look.scene
        lr = scene.value("lr")
        if math.isfinite(lr):
            state = self._taken(state, lr, scene.step)
        found, start_lr = self._found(state) if not state.is_warned else None, state.start_lr
        if "epoch" in scene or "val/loss" in scene:
            # A border: what drops from here on belongs to another epoch.
            state = state._replace(drops=(), start_lr=state.lr, has_epochs=True)
        # Where nobody says when an epoch is over, steps may be counted on purpose.
        warns = found is not None and found[0] > 1 and state.has_epochs
        if found is None or (state.is_told and not warns):
            return state, ()
        gap, ratio = found
        apart = "at every step" if gap == 1 else f"every {gap} steps"
        message = (
            f"learning rate falls by a factor of {ratio:.3g} {apart} within an epoch, from {start_lr:.3g} to "
            f"{state.lr:.3g} so far"
        )
        evidence = Evidence(tag="lr", step=scene.step, value=state.lr, expected=start_lr)
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
