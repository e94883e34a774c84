"""DAT002 bad-batch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import amount
from sonde.rules.history.level import has_level
from sonde.rules.history.tracking import Tracked, track
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Onset, Severity, Sighting, When
from sonde.rules.step_view import Layers
from sonde.signals.robust_z import RobustZ

# Few batches are looked at, so the scale of few values must not be trusted below a tenth.
_SCORE = RobustZ(min_values=2, floor=0.0)


class BadBatchState(NamedTuple):
    """The largest inputs so far, and whether the step before was an ordinary one."""

    inputs: Tracked = Tracked()
    loss_z: float = float("nan")
    grad_z: float = float("nan")
    lr: float = float("nan")
    tail: float = 0.0
    """Moving share of losses that were half of `score` up, over about 50."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BadBatch:
    """One batch is unlike all others.

    What it detects:
        - Inputs: the largest magnitude of an input is more than `ratio` times its usual value, and its logarithm is
          more than `score` robust deviations above the past ones. Warning if the loss or the gradient norm spikes at
          the same step (`score` deviations, the gradient norm also `grad_jump` times its median) or the loss is not
          finite; information otherwise, and in a training with several optimisers.
        - Loss, if the inputs were not measured at that step: the loss is above its start, more than `jump` times its
          median and 2·`score` deviations above it, and the gradient norm is more than `grad_jump` times its median and
          `score` deviations above it, while the step before had an ordinary loss, gradient norm and learning rate.
          Always a warning.
        - Nothing is said of the loss if more than `tail` of the last losses were `score`/2 deviations up: a spike among
          many outliers does not show a bad batch.

    Why it matters:
        A single corrupt batch can undo what hundreds of steps have learned, or keep an optimiser's moments out of
        balance for as long.

    Evidence:
        `batch/absmax@…`, `loss` and `grad/norm` at that step against their medians.

    What to do:
        - Look at the batch of that step.
        - Skip this batch, and others like it, where the data are read.
        - Clip the gradient, so that no single batch can do as much harm.

    When it is wrong:
        - Data with heavy tails have such batches by nature.
        - An instability of the weights that shows for the first time at this step looks the same. One that grew over
          several steps is not taken for a bad batch.

    References:
        Chowdhery et al., PaLM, 2022, section 5.1 (the same batches from another state gave no spike).
    """

    code: ClassVar[str] = "DAT002"
    name: ClassVar[str] = "bad-batch"
    onset: ClassVar[Onset] = Onset.SUDDEN
    needs: ClassVar[tuple[str, ...]] = ("loss",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.BAD_BATCH: (
            For("a single batch, right after an ordinary step"),
            For("the inputs of that batch are unlike all others", when=When.PLACED),
        ),
        Cause.LR_SPIKE: For(),
        Cause.DEAD_UNITS: Against("a batch unlike all others killed the units", when=When.PLACED),
        Cause.EXPLODING_GRADIENTS: Against("the steps before were ordinary"),
        Cause.LR_TOO_HIGH: (
            Against("the steps before were ordinary"),
            Against("a batch unlike all others came first", when=When.PLACED),
        ),
        Cause.WARMUP_TOO_SHORT: Against("a batch unlike all others came first", when=When.PLACED),
        Cause.WEIGHT_NORM_JUMP: Against("a batch unlike all others moved the weights", when=When.PLACED),
    }
    quiet_steps: ClassVar[int] = 20
    guide: ClassVar[str] = "loss-spike"

    score: float = 6.0
    ratio: float = 4.0
    jump: float = 2.0
    grad_jump: float = 8.0
    tail: float = 0.05

    def init(self) -> BadBatchState:
        """Before the first step."""
        return BadBatchState()

    def step(self, state: BadBatchState, look: Look) -> tuple[BadBatchState, Sequence[Sighting]]:
        """Look at one more batch."""
        run = look.run
        inputs, odd = self._odd(state.inputs, look.view.layers("batch/absmax"), look.view.step)
        tail = 0.98 * state.tail + 0.02 * (run.loss_z > self.score / 2)
        new = BadBatchState(inputs, run.loss_z, run.grad_z, run.lr, tail)
        grad_jumped = run.grad_z > self.score and run.grad_norm > self.grad_jump * run.grad_median
        if odd:
            hurt = run.loss_z > self.score or grad_jumped or not math.isfinite(run.loss)
            # Of several players some are fed by others.
            severity = Severity.WARNING if hurt and run.is_alone else Severity.INFO
            first = odd[0]
            name, usual = first.tag.partition("@")[2], first.expected or math.nan
            message = f"input `{name}` reaches {amount(first.value)} at step {first.step}; usual is {amount(usual)}"
            return new, (Sighting(severity, message, tuple(item.tag.partition("@")[2] for item in odd), odd),)
        ordinary = state.loss_z < self.score / 2 and state.grad_z < self.score / 2 and not run.lr_jumped
        ordinary = ordinary and state.tail < self.tail
        steady = abs(run.lr - state.lr) <= 0.2 * state.lr
        high = run.loss_z > 2 * self.score and run.loss > self.jump * run.loss_median
        # Up to what an untrained model gets, a spike may be the state's as well as the batch's: an example that is
        # still wrong, a flow that meets a rare one.
        high = high and run.loss > abs(run.loss_start)
        if not (ordinary and steady and high and grad_jumped and has_level(look)):
            return new, ()
        evidence = (
            Evidence(tag="loss", step=run.step, value=run.loss, expected=run.loss_median),
            Evidence(tag="grad/norm", step=run.step, value=run.grad_norm, expected=run.grad_median),
        )
        message = (
            f"right after an ordinary step, the loss of step {run.step} is {amount(run.loss)} (usually "
            f"{amount(run.loss_median)}) and the gradient norm {amount(run.grad_norm)} (usually "
            f"{amount(run.grad_median)})"
        )
        return new, (Sighting(Severity.WARNING, message, evidence=evidence),)

    def _odd(self, past: Tracked, layers: Layers | None, step: int) -> tuple[Tracked, tuple[Evidence, ...]]:
        if layers is None:
            return past, ()
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(layers.values)
        if past.names == layers.names:
            lowest = np.fmin.reduce(past.state.window, axis=1)
            if (logs - lowest <= math.log(self.ratio)).all():  # then they are not far above the median either
                return Tracked(past.names, _SCORE.take(past.state, logs)), ()
        past, out = track(_SCORE, past, Layers(layers.names, logs))
        values = dict(zip(layers.names, layers.values.tolist(), strict=True))
        found = []
        for name, z, median, scale in zip(past.names, out.z, out.median, out.scale, strict=True):
            if name in values and math.isfinite(median):
                away = np.log(values[name]) - median if values[name] > 0 else -np.inf
                if away > np.log(self.ratio) and (math.isnan(z) or away > self.score * max(scale, 0.1)):
                    found.append(
                        Evidence(
                            tag=f"batch/absmax@{name}", step=step, value=values[name], expected=float(np.exp(median))
                        )
                    )
        return past, tuple(found)
