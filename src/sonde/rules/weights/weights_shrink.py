"""WGT004 weights-shrink."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.rules.levels import has_level, left
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Onset, Severity, Sighting, When


class WeightsShrinkState(NamedTuple):
    """The norm of all weights at first, at its largest and now, and how many of the looks saw it fall."""

    first: float = float("nan")
    now: float = float("nan")
    falls: int = 0
    looks: int = 0
    first_step: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightsShrink:
    """Weights wither, and the loss stays near what guessing gives.

    What it detects:
        The norm of all weights is below `shrunk` of what it was at the first look, after at least five looks of which
        four fifths saw it fall or stand below. Information; a warning after 100 steps where more than `high` of the
        loss is left (against the trivial predictor, else the start) and it does not fall beyond noise. It abstains
        where the optimiser is known to have no weight decay.

        After 40 steps already it is a warning where it is the decay beyond doubt: the norm is below `soon_shrunk`, and
        rate × decay × steps is above 1, so that decay alone would leave less than 1/e of any weight; more than `high`
        of the loss must be left, and the model not have come trained. Where the loss is no measure (below zero, or of
        several players), the norm must be below `gone`.

    Why it matters:
        Decay takes off more than gradients put on: the function that the model computes fades to a constant.

    Evidence:
        `weight/norm` at first and now; `optimizer/weight_decay@…`.

    What to do:
        Divide the weight decay by ten, and keep it off norms and biases. With decoupled decay η·λ is what counts: above
        1e-3 a step it halves weights within 700 steps.

    When it is wrong:
        Networks with normalisation after each layer do not care for the size of weights; a large initialisation shrinks
        healthily at first.

    References:
        Loshchilov and Hutter, Decoupled weight decay regularization, ICLR 2019. van Laarhoven, L2 regularization versus
        batch and weight normalization, 2017.
    """

    code: ClassVar[str] = "WGT004"
    name: ClassVar[str] = "weights-shrink"
    onset: ClassVar[Onset] = Onset.BACKDATED
    needs: ClassVar[tuple[str, ...]] = ("weight/norm",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.WEIGHT_DECAY_TOO_STRONG: (For("weights wither and the loss stays at guessing"), For(when=When.ALARM)),
        Cause.UNDERFITTING: Against("weights wither: decay does it"),
        Cause.LR_TOO_HIGH: Against("weights wither"),
        Cause.GRADIENT_IMBALANCE: Against("weights wither"),
        Cause.WARMUP_TOO_SHORT: Against("weights wither"),
        Cause.MISSING_LOSS_SCALING: Against("weights wither: the gradients go with them"),
        Cause.NO_LEARNABLE_SIGNAL: Against("weights wither: decay does it"),
    }
    quiet_steps: ClassVar[int] = 100
    guide: ClassVar[str] = "loss-not-falling"

    shrunk: float = 0.75
    high: float = 0.6
    soon_shrunk: float = 0.6
    gone: float = 0.25

    def init(self) -> WeightsShrinkState:
        """Before the first step."""
        return WeightsShrinkState()

    def step(self, state: WeightsShrinkState, look: Look) -> tuple[WeightsShrinkState, Sequence[Sighting]]:
        """Look at the weights where they were measured."""
        picture = look.picture
        norm = look.scene.value("weight/norm")
        if not norm > 0:
            return state, ()
        if math.isnan(state.first):
            return WeightsShrinkState(norm, norm, 0, 1, picture.step), ()
        fell = norm < state.now or norm < self.shrunk * state.first
        state = state._replace(now=norm, falls=state.falls + fell, looks=state.looks + 1)
        decay = look.scenes.latest("optimizer/weight_decay")
        if decay is not None and not (decay.values > 0).any():
            return state, ()
        if state.looks < 6 or norm > self.shrunk * state.first or state.falls < 0.8 * (state.looks - 1):
            return state, ()
        share = left(picture)
        bad = has_level(look) and picture.num_losses > 100 and share > self.high and not picture.is_falling
        steps = picture.step - state.first_step
        decayed = picture.lr * float(decay.values.max()) * steps if decay is not None else 0.0
        if decayed > 1 and norm < self.soon_shrunk * state.first and not picture.came_trained:
            high = share > self.high if has_level(look) else norm < self.gone * state.first
            bad = bad or (high and picture.num_losses >= 40)
        message = (
            f"norm of all weights fell from {state.first:.4g} to {norm:.4g}, "
            f"and {share:.0%} of what guessing gives is left of the loss"
        )
        evidence = (
            Evidence(tag="weight/norm", step=picture.step, value=norm, expected=state.first),
            Evidence(tag="loss", step=picture.step, value=picture.loss_smooth, expected=picture.loss_start),
        )
        severity = Severity.WARNING if bad else Severity.INFO
        return state, (Sighting(severity, message, evidence=evidence, since=state.first_step),)
