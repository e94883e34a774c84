"""GRD013 noise-dominated."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import amount, count, share
from sonde.rules.history.cosines import take_cosine, typical
from sonde.rules.rule import Cause, Claims, For, Look, Severity, Sighting
from sonde.signals.phases import Phase


class NoiseDominatedState(NamedTuple):
    """The last cosines, the batch's size and steps in a row in which noise was all there was."""

    cosines: tuple[float, ...] = ()
    batch: float = float("nan")
    num_steps: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class NoiseDominated:
    """The noise of the batches, not the gradient, decides in which direction steps go.

    What it detects:
        - The cosine c between gradients of neighbouring steps is S/(S + N): S is the square of the true gradient, N the
          noise of a batch. The noise scale is therefore (1 − c)/c times the batch.
        - If the median of the last cosines is below `cosine`, noise is more than 20 times the signal: information.
        - It is a warning if noise limits the progress for `patience` steps. That is: the loss has come down but no
          longer falls; it scatters by `scatter` of its level or more; the learning rate has been at its peak for 100
          steps; at least 30% of the loss is left; and the batch has fewer than 32 examples, if that is known.

    Why it matters:
        More steps at this learning rate and batch lead nowhere: they bounce above the minimum, at a height proportional
        to the learning rate over the batch.

    Evidence:
        `grad/cosine`; the scatter of `loss` about its median; `lr`.

    What to do:
        Let the learning rate decay. Or accumulate gradients, or enlarge the batch, by the factor that the message says.

    When it is wrong:
        - A small batch is efficient as long as the loss falls.
        - At the best loss that a model can reach, noise without progress looks the same.
        - Losses near zero scatter by their own size.

    References:
        McCandlish et al., An empirical model of large-batch training, 2018.
    """

    code: ClassVar[str] = "GRD013"
    name: ClassVar[str] = "noise-dominated"
    needs: ClassVar[tuple[str, ...]] = ("grad/cosine", "loss")
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.BATCH_TOO_SMALL: For("the noise scale is far above the batch"),
        Cause.MISSING_LR_DECAY: For(),
        Cause.LABEL_NOISE: For(),
    }
    quiet_steps: ClassVar[int] = 300

    cosine: float = 0.05
    scatter: float = 0.3
    patience: int = 50

    def init(self) -> NoiseDominatedState:
        """Before the first step."""
        return NoiseDominatedState()

    def step(self, state: NoiseDominatedState, look: Look) -> tuple[NoiseDominatedState, Sequence[Sighting]]:
        """Look at one more step."""
        run = look.run
        cosines = take_cosine(state.cosines, look)
        batch = look.view.value("batch/size") if "batch/size" in look.view else state.batch
        cosine = typical(cosines, 2)
        limited = (
            run.num_losses >= 200
            and 0.2 < run.progress < 0.7
            and not batch >= 32
            and not run.is_falling
            and not run.is_solved
            and run.loss_scale > self.scatter * abs(run.loss_median)
            and run.phase in (Phase.CONSTANT, Phase.UNKNOWN)
            and run.step - run.phase_start >= 100
            and run.lr > 0.99 * run.lr_peak
        )
        looked = cosines is not state.cosines
        num_steps = state.num_steps + 1 if limited and abs(cosine) < 2 * self.cosine else 0
        state = NoiseDominatedState(cosines, batch, num_steps)
        lasting = num_steps >= self.patience
        if not lasting and not (looked and abs(cosine) < self.cosine):
            return state, ()
        scale = f"about {(1 - cosine) / cosine:.0f} times" if cosine > 0.01 else "at least 100 times"
        size = f" of {count(int(batch), 'example')}" if math.isfinite(batch) else ""
        message = f"noise dominates the gradient: the noise scale is {scale} the batch{size} (cosine {amount(cosine)})"
        if lasting:
            scatter = share(run.loss_scale / abs(run.loss_median))
            message += f"; the loss scatters by {scatter} and no longer falls"
        severity = Severity.WARNING if lasting else Severity.INFO
        return state, (Sighting(severity, message, evidence=(look.evidence("grad/cosine", cosines[-1]),)),)
