"""LOS007 slow-progress."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import count, share
from sonde.rules.history.block_means import BlockMeans
from sonde.rules.history.evaluations import Evaluations
from sonde.rules.history.level import has_level, left
from sonde.rules.layer_depth import latest_typical
from sonde.rules.rule import Against, Cause, Claims, For, Look, Onset, Severity, Sighting, When
from sonde.signals.phases import Phase


class SlowProgressState(NamedTuple):
    """The course of the loss since the rate last changed, and the evaluations since then."""

    blocks: BlockMeans = BlockMeans()
    evaluations: Evaluations = Evaluations()


@dataclass(frozen=True, kw_only=True, slots=True)
class SlowProgress:
    """The loss falls, but along a shallow straight line.

    What it detects:
        - Over at least `least_steps` losses at a constant learning rate, the line through them falls by more than four
          standard errors, but by less than `shallow` in 100 steps.
        - Each half of the run has about half of the fall. A learning curve bends: most of its fall comes early.
        - More than `high` of the loss is left. This is information.
        - It is a warning from `warning_steps` losses on if less than half is done, and short steps can be the reason:
          the median update ratio of weight matrices is below 1e-3; or, if it was not measured, successive gradients
          agree (cosine above 0.5). The pace would need more than `long` steps from start to end, or nearly all updates
          point in one direction (cosine of neighbours above `straight`).
        - With steps of any length it is a warning if validation falls along such a line as well: over at least
          `evaluations` evaluations and 200 steps it fell by 3 to 25%, and in its newer half by 80% or more of what it
          did in its older half.
        - A model that came trained is not judged.

    Why it matters:
        The same descent would take a fraction of the steps.

    Evidence:
        The slope of `loss`; `grad/cosine` (steps that agree could be longer); `update/ratio`.

    What to do:
        Raise the learning rate by a factor of 3 to 5, as long as the loss stays calm. Look at `clip/factor`: a clip
        far below the usual gradient shortens steps in the same way.

    When it is wrong:
        - Fine-tuning at a tiny learning rate is meant to be slow.
        - Very large models fall slowly at their best learning rate.

    References:
        Smith, A disciplined approach to neural network hyper-parameters, 2018.
    """

    code: ClassVar[str] = "LOS007"
    name: ClassVar[str] = "slow-progress"
    onset: ClassVar[Onset] = Onset.BACKDATED
    needs: ClassVar[tuple[str, ...]] = ("loss",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.LR_TOO_LOW: (For("the loss falls along a shallow straight line"), For(when=When.ALARM)),
        Cause.CLIP_TOO_AGGRESSIVE: For("the loss falls slowly and straight"),
        Cause.LONG_SEQUENCE: For(),
        Cause.BATCH_TOO_LARGE: For("the loss falls slowly, by few steps that agree"),
        Cause.UNDERFITTING: For(),
        Cause.LABEL_NOISE: For(),
        Cause.ADAM_EPSILON_UNDERFLOW: For("the loss falls slowly and straight"),
        Cause.INSUFFICIENT_CAPACITY: Against("the loss still falls"),
        Cause.NO_LEARNABLE_SIGNAL: (Against("the loss falls"), Against("the loss goes on falling", when=When.ALARM)),
        Cause.LR_TOO_HIGH: Against("a slow straight descent is the opposite"),
        Cause.WRONG_LOSS_REDUCTION: Against("a sum makes steps too large, not progress slow", when=When.ALARM),
    }
    quiet_steps: ClassVar[int] = 100

    least_steps: int = 100
    warning_steps: int = 150
    high: float = 0.4
    shallow: float = 0.25
    long: int = 1000
    straight: float = 0.95
    evaluations: int = 8

    def init(self) -> SlowProgressState:
        """Before the first step."""
        return SlowProgressState()

    def step(self, state: SlowProgressState, look: Look) -> tuple[SlowProgressState, Sequence[Sighting]]:
        """Look at one more loss."""
        run = look.run
        if "loss" not in look.view:
            if "val/loss" in look.view:
                state = state._replace(evaluations=state.evaluations.noted(look.view))
            return state, ()
        if run.phase in (Phase.WARMUP, Phase.DECAY) or run.lr_jumped:
            # Another rate, another pace: start again where it settles.
            return SlowProgressState(), ()
        state = SlowProgressState(state.blocks.extended(run.loss), state.evaluations.noted(look.view))
        if state.blocks.num_values < self.least_steps or not has_level(look) or run.num_losses % 10:
            return state, ()
        trend = state.blocks.trend()
        if trend is None or not trend.t < -4 or not 0.3 < trend.early_share < 0.7:
            return state, ()
        rest, pace = left(run), -100 * trend.slope / trend.first
        if not rest > self.high or pace > self.shallow:
            return state, ()
        typical = latest_typical(look.views, "update/ratio")
        ratio = typical if math.isfinite(typical) else run.ratio
        short = ratio < 1e-3 if math.isfinite(ratio) else run.grad_cosine > 0.5
        lasts = rest > 0.5 and (pace * self.long < 100 or run.update_cosine > self.straight)
        # Short steps on a loss that was low from the start may be fine-tuning.
        creeps = not ratio < 5e-4 and pace * self.long < 100 and _creeps(state.evaluations, self.evaluations)
        slow = ((short and lasts) or creeps) and not run.came_trained and state.blocks.num_values >= self.warning_steps
        message = (
            f"the loss falls by only {share(pace)} in 100 steps, along a straight line, and is "
            f"{share(rest)} of that of an untrained model after {count(run.num_losses, 'step')}"
        )
        evidence = [look.evidence("loss", trend.last, trend.first)]
        if math.isfinite(run.grad_cosine):
            evidence.append(look.evidence("grad/cosine", run.grad_cosine, 0.0))
        if math.isfinite(ratio):
            evidence.append(look.evidence("update/ratio", ratio, 1e-3))
        severity = Severity.WARNING if slow else Severity.INFO
        return state, (Sighting(severity, message, evidence=tuple(evidence), since=0),)


def _creeps(seen: Evaluations, least: int) -> bool:
    """Whether validation falls slowly along a line that does not bend."""
    if len(seen.validations) < least or seen.steps[-1] - seen.steps[0] < 200 or not min(seen.validations) > 0:
        return False
    values = np.array(seen.validations[1:])
    if not np.corrcoef(values, np.arange(len(values)))[0, 1] < -0.9:
        return False
    smooth = np.convolve(values, np.full(3, 1 / 3), mode="valid")
    first, half, last = smooth[0], smooth[(len(smooth) - 1) // 2 :][: 2 - len(smooth) % 2].mean(), smooth[-1]
    return bool(0.03 < (first - last) / first < 0.25 and half - last >= 0.8 * (first - half))
