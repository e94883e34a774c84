"""LOS009 noise-floor."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import amount, count, share
from sonde.rules.history.block_means import BlockMeans
from sonde.rules.history.level import has_level, untrained
from sonde.rules.history.most_fall import most_fall
from sonde.rules.rule import Against, Cause, Claims, For, Look, Onset, Severity, Sighting, When
from sonde.signals.phases import Phase

_FAR = math.log(2.5)


class NoiseFloorState(NamedTuple):
    """For how many losses there has been a floor, since when, and the validation losses on it."""

    num: int = 0
    since: int = -1
    validations: tuple[float, ...] = ()
    blocks: BlockMeans = BlockMeans()
    """Of the logarithms of the losses on it: so much noise is a matter of factors."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NoiseFloor:
    """The loss fluctuates above its floor, and the noise of the steps keeps it there.

    What it detects:
        - The loss has fallen and no longer does (|z| below 3 over 100 steps), at a constant learning rate near its
          peak.
        - Its noise is more than `noise` of its level, and successive gradients do not agree (|cosine| below 0.5, if it
          was measured). After `patience` losses this is information.
        - It is a warning after half of the run if the weights fluctuate too: over at least four evaluations, the
          validation loss moves by more than `jitter` from one to the next, and by 0.5% of an untrained model's loss, up
          as often as down.

        It is never a warning in these cases:
        - The line through the logarithms of all losses on the floor falls by three standard errors, or may have fallen
          to two fifths within its noise.
        - The newer half of those evaluations is below 0.7 of the older half.
        - Less than `solved` of an untrained model's loss is left.
        - Validation is below the training loss.

    Why it matters:
        A lower learning rate at the end, a larger batch or averaged weights would bring the loss below this floor at
        once.

    Evidence:
        `loss`: its noise against its level. `grad/cosine`. `val/loss` from one evaluation to the next.

    What to do:
        Let the learning rate decay (a cosine or a line to zero over the last part), enlarge the batch, or average the
        weights.

    When it is wrong:
        - Noisy targets have a floor that no learning rate gets below. Then validation stands still, and the finding
          stays information.
        - Validation on few or changing examples fluctuates by itself.

    References:
        Smith et al., Don't decay the learning rate, increase the batch size, ICLR 2018. McCandlish et al., An empirical
        model of large-batch training, 2018.
    """

    code: ClassVar[str] = "LOS009"
    name: ClassVar[str] = "noise-floor"
    onset: ClassVar[Onset] = Onset.BACKDATED
    needs: ClassVar[tuple[str, ...]] = ("loss",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.MISSING_LR_DECAY: (
            For("the noise of the steps holds the loss up"),
            For("the validation loss goes up and down with the weights", when=When.ALARM),
        ),
        Cause.BATCH_TOO_SMALL: (For("noise rules the loss"), For(when=When.ALARM)),
        Cause.LABEL_NOISE: Against("gradients stay large and disagree"),
        Cause.LR_TOO_LOW: Against("noise rules, not the slope"),
        Cause.PLATEAU: Against("the loss fluctuates, which is no standstill"),
    }
    quiet_steps: ClassVar[int] = 100

    noise: float = 0.1
    jitter: float = 0.15
    patience: int = 100
    solved: float = 0.03

    def init(self) -> NoiseFloorState:
        """Before the first step."""
        return NoiseFloorState()

    def step(self, state: NoiseFloorState, look: Look) -> tuple[NoiseFloorState, Sequence[Sighting]]:
        """Look at one more step."""
        run = look.run
        if "val/loss" in look.view and math.isfinite(run.val_loss) and state.num > 0:
            state = state._replace(validations=(*state.validations, run.val_loss)[-8:])
        if "loss" not in look.view:
            return state, ()
        still = abs(run.improvement_z) < 3 and run.progress > 0.3
        constant = run.phase is Phase.CONSTANT and run.lr > 0.3 * run.lr_peak
        noisy = run.loss_scale > self.noise * run.loss_median > 0
        agree = abs(run.grad_cosine) > 0.5
        if not (still and constant and noisy and has_level(look)) or agree:
            # The floor of a noisy run passes for a fall now and then: it takes as long to forget as to find.
            left = state.num - 2
            return (state._replace(num=left), ()) if left > 0 else (NoiseFloorState(), ())
        since = run.step if state.since < 0 else state.since
        log_loss = math.log(run.loss) if run.loss > 0 else math.nan
        state = state._replace(num=state.num + 1, since=since, blocks=state.blocks.extended(log_loss))
        if state.num < self.patience:
            return state, ()
        moves = _jitter(state.validations)
        lasts = run.step - since > 0.5 * run.step
        matters = (
            moves * float(np.median(state.validations)) > 0.005 * untrained(run) if math.isfinite(moves) else False
        )
        trend = state.blocks.trend()
        stands = trend is not None and trend.t > -3 and most_fall(state.blocks) < _FAR
        stands = stands and run.loss_median > self.solved * untrained(run)
        # A training loss well above validation is noisy by dropout or augmentation, not by its steps.
        regularised = bool(state.validations) and run.loss_median > 1.05 * float(np.median(state.validations))
        hurts = lasts and stands and moves > self.jitter and matters and not regularised
        severity = Severity.WARNING if hurts else Severity.INFO
        message = (
            f"for {count(run.step - since, 'step')} the loss has only fluctuated around "
            f"{amount(run.loss_median)} (±{amount(run.loss_scale)})"
        )
        evidence = [look.evidence("loss", run.loss_median, run.loss_best)]
        if math.isfinite(moves):
            message += f", and the validation loss moves by {share(moves)} from one evaluation to the next"
            evidence.append(look.evidence("val/loss", state.validations[-1]))
        return state, (Sighting(severity, message, evidence=tuple(evidence), since=since),)


def _jitter(validations: tuple[float, ...]) -> float:
    """The median relative move between evaluations that go both ways; NaN below four, 0 where they have a trend."""
    if len(validations) < 4 or min(validations) <= 0:
        return float("nan")
    moves = np.diff(np.log(validations))
    ups = np.mean(moves > 0)
    half = len(validations) // 2
    falls = np.median(validations[-half:]) < 0.7 * np.median(validations[:half])
    return float(np.median(np.abs(moves))) if 0.25 <= ups <= 0.75 and not falls else 0.0
