"""LOS003 loss-diverges."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import amount, count
from sonde.rules.rule import Against, Cause, Claims, For, Look, Severity, Sighting
from sonde.signals.growth import Growth, GrowthState
from sonde.signals.medians import middle

_GROWTH = Growth(window=24, min_values=8)
_DOUBLED = math.log(2)


class LossDivergesState(NamedTuple):
    """The growth of loss and gradient norm, the noise of the first losses, and how long the loss has been too high."""

    growth: GrowthState
    first: tuple[float, ...] = ()
    num_high: int = 0
    num_growing: int = 0
    since: int = -1
    last: tuple[float, float] = (math.inf, math.inf)
    """The loss and the gradient norm of the step before …"""
    num_leaps: int = 0
    """… and how often in a row both leapt."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LossDiverges:
    """The loss climbs and does not come back.

    What it detects:
        One of these:
        - Leaps: twice in a row, loss and gradient norm were more than `leap` times those of the step before. This is
          critical at once.
        - Growth: over the last 24 steps the loss grows exponentially (R² of 0.8 or more) by a factor of `least_growth`
          or more, in three judgements in a row. Or the gradient norm does, while the loss does not fall; if the loss is
          not above its start beyond its noise, the norm has to grow by that factor cubed, since it grows on the way out
          of a flat start too. The message says in how many steps float32 overflows.
        - Height: for `patience` steps the smoothed loss has been above its start by `least_rise` and by six deviations
          of the noise of the first losses. Or it has lost half of what it had gained and still rises (z below −3 over
          100 steps).

        It is a warning, and critical at four times the first loss. Growth and height are information only if steps,
        weights and gradients have been calm since the loss was at its best: then something else than the optimiser
        raised the loss. Height is information as well if the loss was ever below zero.

    Why it matters:
        It ends in NaN, or in a model that is worse than none. The sooner it is stopped, the less is lost.

    Evidence:
        `loss` against its start and its best; `grad/norm`, which mostly grows first.

    What to do:
        - Divide the learning rate by ten, clip the gradient norm at its usual value, and go back to a checkpoint
          before the rise.
        - If the loss rises only in the first steps, lengthen the warmup.
        - If it rises with the weights, look at `weight/norm` and `act/absmax`.

    When it is wrong:
        - Data that become harder (curricula) and terms that are faded in raise the loss for good reasons. That is
          information as long as steps stay calm, but a warning at high learning rates.
        - Losses that are not above zero are judged by growth only.
        - Losses of several players are not judged.

    References:
        Zhang et al., OPT, 2022, section 2.5. Molybog et al., A theory on Adam instability in large-scale machine
        learning, 2023.
    """

    code: ClassVar[str] = "LOS003"
    name: ClassVar[str] = "loss-diverges"
    needs: ClassVar[tuple[str, ...]] = ("loss",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.LR_TOO_HIGH: For("the loss keeps rising"),
        Cause.WEIGHT_NORM_JUMP: For(),
        Cause.EXPLODING_GRADIENTS: For("the loss keeps rising"),
        Cause.WARMUP_TOO_SHORT: For(),
        Cause.BAD_BATCH: Against("the loss keeps rising"),
        Cause.PRECISION_OVERFLOW: Against("the loss had risen before"),
        Cause.MISSING_LR_DECAY: Against("the loss keeps rising"),
        Cause.NONFINITE_INPUT: Against("the loss had risen before"),
        Cause.LR_TOO_LOW: Against("a low learning rate raises no loss"),
    }
    quiet_steps: ClassVar[int] = 50
    guide: ClassVar[str] = "explosion"

    least_growth: float = 4.0
    least_rise: float = 0.2
    patience: int = 10
    leap: float = 100.0

    def init(self) -> LossDivergesState:
        """Before the first step."""
        return LossDivergesState(_GROWTH.init(2))

    def step(self, state: LossDivergesState, look: Look) -> tuple[LossDivergesState, Sequence[Sighting]]:
        """Look at one more loss and gradient norm."""
        run = look.run
        if not math.isfinite(run.loss) or not look.run.is_alone:
            return state, ()
        growth_state = _GROWTH.take(state.growth, np.array([run.loss, run.grad_norm]), run.step)
        first = (*state.first, run.loss) if len(state.first) < 16 else state.first
        left = self._steps_left(growth_state, first, look)
        grows = math.isfinite(left)
        positive = run.loss_start > 0 and run.loss_best > 0
        high = positive and (self._high(first, look) or self._lost(look))
        now = (run.loss, run.grad_norm)
        leaps = all(0 < self.leap * before < value for before, value in zip(state.last, now, strict=True))
        num_leaps = state.num_leaps + 1 if leaps else 0
        state = LossDivergesState(
            growth_state,
            first,
            state.num_high + 1 if high else 0,
            state.num_growing + 1 if grows else 0,
            (run.step if state.since < 0 else state.since) if high or grows or leaps else -1,
            now,
            num_leaps,
        )
        leapt = num_leaps >= 2
        if state.num_growing < 3 and state.num_high < self.patience and not leapt:
            return state, ()
        worst = leapt or run.loss_smooth > 4 * abs(run.loss_start)
        start, best = run.loss_first, run.loss_best
        message = f"the loss is rising: now {amount(run.loss)}, {amount(start)} at first, {amount(best)} at best"
        if state.num_growing >= 3:
            message += f"; float32 overflows in about {count(round(left), 'step')} at this pace" if left < 1e4 else ""
        evidence = [look.evidence("loss", run.loss, run.loss_start)]
        if math.isfinite(run.grad_norm) and math.isfinite(run.grad_start):
            norm = look.evidence("grad/norm", run.grad_norm, run.grad_start)
            evidence.append(norm)
        calm = not leapt and (not run.is_upset or (state.num_growing < 3 and not run.is_measure))
        severity = Severity.INFO if calm else Severity.CRITICAL if worst else Severity.WARNING
        return state, (Sighting(severity, message, evidence=tuple(evidence), since=state.since),)

    def _steps_left(self, state: GrowthState, first: tuple[float, ...], look: Look) -> float:
        """Until float32 overflows; NaN unless the loss explodes, or the gradient does well above the first loss."""
        run = look.run
        # A loss that grows from almost nothing is still almost nothing.
        loss = run.loss > 0.5 * abs(run.loss_start)
        gradient = run.loss_smooth > abs(run.loss_start) > 0
        if not (loss or gradient):
            return float("nan")
        asked = [place for place, is_asked in enumerate((loss, gradient)) if is_asked]
        if not any(np.fmax.reduce(state.logs[i]) - np.fmin.reduce(state.logs[i]) > _DOUBLED for i in asked):
            return float("nan")
        # Gradients that grow while the loss is where it was, up to noise, are often the way out of a flat start.
        rises = run.loss_smooth - run.loss_start > 2 * _noise(first)
        least = (self.least_growth, self.least_growth if rises else self.least_growth**3)
        growth = _GROWTH.judge(state)
        spans = state.steps[:, -1] - np.nanmin(np.where(np.isnan(state.steps), np.inf, state.steps), axis=1)
        with np.errstate(invalid="ignore"):
            grown = np.isfinite(growth.steps_left) & (growth.rate * spans > np.log(least))
        left = growth.steps_left[grown & (loss, gradient)]
        return float(left.min()) if len(left) else float("nan")

    def _high(self, first: tuple[float, ...], look: Look) -> bool:
        run = look.run
        if len(first) < 8:
            return False
        rise = run.loss_smooth - run.loss_start
        # One huge loss stays in the average for long.
        if not (rise > self.least_rise * abs(run.loss_start) and run.loss > run.loss_start):
            return False
        return rise > 6 * _noise(first)

    def _lost(self, look: Look) -> bool:
        run = look.run
        gained = run.loss_start - run.loss_best
        rise = run.loss_smooth - run.loss_best
        # Noise alone turns a tiny gain into its half.
        return run.improvement_z < -3 and rise > 0.5 * gained > 0.1 * abs(run.loss_start)


def _noise(losses: tuple[float, ...]) -> float:
    """A robust deviation of single losses, by the differences between neighbours; infinite below three."""
    if len(losses) < 3:
        return math.inf
    return 1.4826 * middle([abs(b - a) for a, b in itertools.pairwise(losses)]) / math.sqrt(2)
