"""Whether the optimiser's own steps have gone wrong, as far as steps, weights and gradients tell."""

import math
from typing import NamedTuple

from sonde.core.parameter_kinds import Kind
from sonde.rules.step_view import StepView

_SPAN = 100
_STEP = 0.1
_WEIGHTS = 2.0
_GRADIENT = 8.0
_NUM_HIGH = 3
_LAYER_STEP = 0.05
_NUM_LARGE = 5


class Disturbance(NamedTuple):
    """What happened to a model since its loss was at its best.

    A disturbance is any of four: a step changed the model by more than a tenth of its norm; steps changed some layer
    (biases apart) by more than 5% of its own at five looks; the norm of all weights doubled or halved within 100 to 200
    steps; the gradient was eight times what it usually is, and as often the loss's own growth, at three steps close to
    each other. Slower changes than these are what training is. A loss that rises without a disturbance was raised by
    something else than the steps. It is over when the loss finds a new best.

    Where neither steps nor weights were measured it is taken for granted: then the loss is all there is to judge by.

    Attributes:
        is_seen: Whether there was one.
        is_measured: Whether steps or weights were measured, ever.
        weight: The latest norm of the weights.
        weight_before: Of the weights, 100 to 200 steps ago, or when the loss was at its best if that is later …
        weight_between: … and up to 100 steps ago.
        between: The step of the latter.
        num_high: Steps with a high gradient; a step without one takes a fifth away.
        gradient: The usual norm of the gradient when the first of those came.
        num_large: Looks at which a layer took a large step.
    """

    is_seen: bool = False
    is_measured: bool = False
    weight: float = float("nan")
    weight_before: float = float("nan")
    weight_between: float = float("nan")
    between: int = 0
    num_high: float = 0.0
    gradient: float = float("nan")
    num_large: int = 0

    @property
    def is_there(self) -> bool:
        """Whether the steps may be the reason of a loss that is above its best."""
        return self.is_seen or not self.is_measured

    def after(self, view: StepView, usual_norm: float, *, rise: float, is_best: bool) -> "Disturbance":
        """With one more step.

        Args:
            view: What was measured at it.
            usual_norm: Of the gradient; that of the first steps, where it has become less.
            rise: How many times its start the smoothed loss is, at least 1: a gradient may grow as the loss does.
            is_best: Whether the smoothed loss is lower than ever.
        """
        ratio, weight, norm = view.value("update/ratio"), view.value("weight/norm"), view.value("grad/norm")
        latest = self.weight if math.isnan(weight) else weight
        before, between, at = self.weight_before, self.weight_between, self.between
        if is_best or math.isnan(before):
            before, between, at = latest, latest, view.step
        elif view.step - at >= _SPAN:
            before, between, at = between, latest, view.step
        gradient = self.gradient if self.num_high > 0 else usual_norm
        is_high = norm > _GRADIENT * rise * gradient
        num_high = self.num_high + 1 if is_high else max(0.0, self.num_high - 0.2)
        grown = weight / before if before > 0 else math.nan
        num_large = (0 if is_best else self.num_large) + _has_large_step(view)
        seen = (
            ratio > _STEP
            or num_large >= _NUM_LARGE
            or grown > _WEIGHTS
            or grown < 1 / _WEIGHTS
            or num_high >= _NUM_HIGH
        )
        return Disturbance(
            seen or (self.is_seen and not is_best),
            self.is_measured or math.isfinite(ratio) or math.isfinite(weight),
            latest,
            before,
            between,
            at,
            num_high,
            gradient,
            num_large,
        )


def _has_large_step(view: StepView) -> bool:
    layers = view.layers("update/ratio")
    if layers is None:
        return False
    large = (layers.values > _LAYER_STEP).nonzero()[0]
    return any(view.kinds.of(layers.names[place]) is not Kind.BIAS for place in large.tolist())
