"""LOS002 loss-spike."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import amount
from sonde.rules.history.level import has_level
from sonde.rules.history.run_summary import RunSummary
from sonde.rules.rule import Against, Cause, Claims, For, Look, Onset, Severity, Sighting
from sonde.signals.medians import middle
from sonde.signals.robust_z import RobustZ, RobustZState

_LOGS = RobustZ()


class LossSpikeState(NamedTuple):
    """The spike under way (when it began, and what was usual before it), and the highest scores so far."""

    logs: RobustZState
    since: int = -1
    usual: float = float("nan")
    scale: float = float("nan")
    last: tuple[float, ...] = ()
    """The last three losses."""
    is_ramp: bool = False
    """Whether the spike under way grew over several steps, or is one of many."""
    is_sure: bool = False
    """Whether it is beyond what the run's own tail could bring."""
    highest: tuple[float, ...] = ()
    """The largest scores of the run before this one, fading, largest first."""
    tail: float = 0.0
    """Moving share of losses that were three deviations up, over about 50."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LossSpike:
    """The loss jumps far above its usual level.

    What it detects:
        - The loss is more than `warning` robust standard deviations above the median of the last 128 steps: z = (L −
          median)/(1.4826·MAD). For losses above zero, the score of log L counts if it is lower.
        - The rise is at least `least_rise` of the median and of the whole descent so far, so that a solved task cannot
          spike.
        - The score is above 1.5 times the third-highest score of the run, which fades over some 500 steps: a run with
          heavy tails says what is usual.
        - Above `critical`, or if the loss has not come back after `patience` steps, it is critical.

        It stays information for `patience` steps in these cases:
        - The loss before the spike was already two deviations up. Such a swell comes from the training itself, as at
          the edge of stability, and mostly recovers.
        - More than `tail` of the latest losses were half of `warning` up, as with outliers.
        - The spike stays below the first loss, and less than 5% of that was left before it.

        A score of log L below `critical` is information for `alone` steps: a batch with an outlier has such a loss, and
        leaves the weights as they were.

    Why it matters:
        A spike destroys what the last hundreds of steps have learned. A spike that does not come back is a divergence.

    Evidence:
        `loss` against its median; the robust score.

    What to do:
        Look at what moved first: the batch (`batch/absmax@…`), the learning rate (`lr`) or the gradient (`grad/norm`).
        Drop the batch, smooth the schedule, or clip the gradient.

    When it is wrong:
        - Reinforcement learning, adversarial training and tiny batches of very unequal examples have losses with heavy
          tails: the first two spikes of a run may still be reported.
        - A curriculum that becomes harder in one step is a spike by this definition.
        - It is information only if losses are not above zero, or if there are several optimisers.

    References:
        OLMo team, 2 OLMo 2 Furious, 2025 (spike score). Chowdhery et al., PaLM, 2022, section 5.1.
    """

    code: ClassVar[str] = "LOS002"
    name: ClassVar[str] = "loss-spike"
    onset: ClassVar[Onset] = Onset.SUDDEN
    needs: ClassVar[tuple[str, ...]] = ("loss",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.BAD_BATCH: For("the loss spiked once"),
        Cause.LR_SPIKE: For("the loss spiked"),
        Cause.OUTPUT_LOGIT_DRIFT: For(),
        Cause.MISSING_CLIPPING: For("the loss spiked"),
        Cause.OPTIMIZER_STATE_LOST: For("the loss jumped"),
        Cause.CLIP_TOO_AGGRESSIVE: Against("the loss jumps in spite of it"),
    }
    quiet_steps: ClassVar[int] = 50
    guide: ClassVar[str] = "loss-spike"

    warning: float = 6.0
    critical: float = 12.0
    least_rise: float = 0.2
    patience: int = 20
    alone: int = 5
    tail: float = 0.05

    def init(self) -> LossSpikeState:
        """Before the first step."""
        return LossSpikeState(_LOGS.init(1))

    def step(self, state: LossSpikeState, look: Look) -> tuple[LossSpikeState, Sequence[Sighting]]:
        """Look at one more loss."""
        run = look.run
        if "loss" not in look.view:
            return state, ()
        log = np.array([math.log(run.loss) if run.loss > 0 else math.nan])
        z = run.loss_z
        if z > 2 and run.loss > 0:
            on_logs = float(_LOGS.judge(state.logs, log).z[0])
            z = min(z, on_logs) if math.isfinite(on_logs) else z
        usual_high = state.highest[2] if len(state.highest) > 2 else 0.0
        heavy = state.tail > self.tail
        state = state._replace(
            logs=_LOGS.take(state.logs, log),
            highest=_noted(state.highest, z),
            last=(*state.last, run.loss)[-3:],
            tail=0.98 * state.tail + 0.02 * (run.loss_z > self.warning / 2),
        )
        loss = run.loss
        if state.since >= 0:
            doubtful = not state.is_sure and run.step - state.since <= self.alone
            level = run.loss if doubtful else middle(state.last)
            if (level - state.usual) / state.scale < self.warning / 2:
                return LossSpikeState(state.logs, last=state.last, highest=state.highest, tail=state.tail), ()
            loss = max(loss, level)  # one low loss in the middle is not the end
        else:
            rise = run.loss - run.loss_median
            top = max(run.loss_start, _guess(run))
            least = self.least_rise * max(abs(run.loss_median), abs(top - run.loss_median))
            if not (z > max(self.warning, 1.5 * usual_high) and rise > least):
                return state, ()
            swell = state.last[-2] - run.loss_median if len(state.last) > 1 else 0.0
            ramp = swell > 2 * run.loss_scale or heavy
            state = state._replace(
                since=run.step,
                usual=run.loss_median,
                scale=run.loss_scale,
                is_ramp=ramp,
                is_sure=z > self.critical,
            )
        score = (loss - state.usual) / state.scale
        lasting = run.step - state.since >= self.patience
        severity = Severity.CRITICAL if lasting or score > self.critical else Severity.WARNING
        # Where next to nothing is left, one example that is still wrong is a spike.
        harmless = abs(state.usual) < 0.05 * abs(run.loss_start) and run.loss < abs(run.loss_start)
        # What the weights have suffered shows at the next losses; these may be the batches' own, as outliers' are.
        harmless = harmless or (run.step - state.since < self.alone and not state.is_sure)
        if not has_level(look) or ((state.is_ramp or harmless) and not lasting):
            severity = Severity.INFO
        message = f"the loss jumped from about {amount(state.usual)} to {amount(loss)} ({score:,.0f} robust deviations)"
        evidence = look.evidence("loss", loss, state.usual)
        return state, (Sighting(severity, message, evidence=(evidence,), since=state.since),)


def _guess(run: RunSummary) -> float:
    """What a model that came trained would get without its training; nothing for others: their start says it."""
    if not run.came_trained:
        return -math.inf
    return run.trivial if run.trivial > 0 else run.log_z


def _noted(highest: tuple[float, ...], z: float) -> tuple[float, ...]:
    """The three highest scores with one more; old ones fade by a factor e in 500 steps."""
    scores = [0.998 * old for old in highest]
    if math.isfinite(z):
        scores.append(z)
        scores.sort(reverse=True)
    return tuple(scores[:3])
