"""WGT009 weights-start-large."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import amount, share
from sonde.rules.history.new_weights import LATEST, new_sizes
from sonde.rules.rule import Against, Cause, Claims, For, Look, Onset, Severity, Sighting, When
from sonde.signals.medians import middle

_MOVED = 0.2  # of a weight by the first update: what is measured then is no longer how it began
_TELLING = 20  # steps within which outputs are looked at, where they ever are


class WeightsStartLargeState(NamedTuple):
    """The gain of each new-looking layer by its first weights, and the largest output so far."""

    gains: tuple[tuple[str, float], ...] = ()
    largest: float = math.nan
    is_over: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightsStartLarge:
    """The first weights are several times as large as any usual initialisation makes them.

    What it detects:
        - The gain of a linear or convolutional layer is the RMS of its first weights times the root of the number of
          values that each output sums up: 0.6 by torch's default, 1 by Xavier's, 1.4 by He's initialisation.
        - The gain is above `gain` in at least half of these layers, or above `far` in one of them.
        - An output of these layers is larger than 1 (RMS), within the first 20 steps; layers whose outputs are not
          measured are taken at their weights' word.
        - The weights look new: no value is further out than those of a uniform or normal distribution. Weights that
          were trained before have outliers, and any size.
        - Layers that the first update has moved by a fifth do not count, and nothing is said if the first update that
          was measured changed all weights by `moved`, or the loss is not finite: then the steps were too large.
        - Always a warning, but information for a model that came trained.

    Why it matters:
        Every layer multiplies the signal and the gradient by its gain. The training begins far from any answer, with
        huge gradients, and updates of the usual size hardly move such weights.

    Evidence:
        `weight/rms@…` and `act/rms@…` at the first measurements.

    What to do:
        Use torch's default initialisation, or He's for ReLU-like and Xavier's for tanh-like functions.

    When it is wrong:
        - Random features that are meant to be coarse, such as frequencies of coordinates.

    References:
        Glorot and Bengio, Understanding the difficulty of training deep feedforward neural networks, AISTATS 2010. He
        et al., Delving deep into rectifiers, ICCV 2015.
    """

    code: ClassVar[str] = "WGT009"
    name: ClassVar[str] = "weights-start-large"
    onset: ClassVar[Onset] = Onset.BACKDATED
    needs: ClassVar[tuple[str, ...]] = ("weight/rms@",)
    reads: ClassVar[tuple[str, ...]] = needs
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.BAD_INITIALISATION: For("the first weights are far too large", when=When.ALARM, weight=3.0),
        Cause.LR_TOO_HIGH: Against("the weights were too large before the first step", when=When.ALARM),
        Cause.LR_TOO_LOW: Against("large weights make every update look small", when=When.ALARM),
        Cause.EXPLODING_GRADIENTS: Against("large first weights explain the gradients", when=When.ALARM),
        Cause.ACTIVATION_EXPLOSION: Against("large first weights explain the activations", when=When.ALARM),
        Cause.SATURATED_UNITS: Against("large first weights saturate units", when=When.ALARM),
        Cause.CLIP_TOO_AGGRESSIVE: Against("gradients are large because of the first weights", when=When.ALARM),
        Cause.NO_LEARNABLE_SIGNAL: Against("the start itself was bad", when=When.ALARM),
        Cause.ATTENTION_ENTROPY_COLLAPSE: Against("attention began with far too large weights", when=When.ALARM),
        Cause.ATTENTION_LOGIT_GROWTH: Against("attention began with far too large weights", when=When.ALARM),
    }
    quiet_steps: ClassVar[int] = 200

    gain: float = 2.5
    far: float = 6.0
    moved: float = 0.1

    def init(self) -> WeightsStartLargeState:
        """Before the first step."""
        return WeightsStartLargeState()

    def waits(self, state: WeightsStartLargeState) -> bool:
        """Whether the first steps are not over."""
        return not state.is_over

    def step(self, state: WeightsStartLargeState, look: Look) -> tuple[WeightsStartLargeState, Sequence[Sighting]]:
        """Look at the first weights, and at the first outputs that they give."""
        if state.is_over:
            return state, ()
        if not state.gains:
            found = gains(look)
            if not found and look.view.step > LATEST:
                return state._replace(is_over=True), ()
            state = state._replace(gains=tuple(found.items()))
        large = self._large(dict(state.gains))
        outputs = look.view.layers("act/rms")
        if outputs is not None:
            seen = [
                value
                for name, value in zip(outputs.names, outputs.values.tolist(), strict=True)
                if f"{name}.weight" in large
            ]
            state = state._replace(
                largest=max([v for v in (state.largest, *seen) if not math.isnan(v)], default=math.nan)
            )
        over, ratio = look.view.step > _TELLING, look.run.ratio_start
        is_lost = "loss" in look.view and not math.isfinite(look.run.loss)
        if (state.gains and not large) or ratio > self.moved or is_lost:
            return state._replace(is_over=True), ()
        is_telling = state.largest > 1 or (over and math.isnan(state.largest))
        if not large or not is_telling or (math.isnan(ratio) and not over):
            return state._replace(is_over=over), ()
        return state._replace(is_over=True), (self._sighting(state, large, look),)

    def _large(self, gains: Mapping[str, float]) -> dict[str, float]:
        """The layers whose gains are too large, the largest first; none where they are few and not far too large."""
        high = {name: gain for name, gain in gains.items() if gain > self.gain}
        if 2 * len(high) < len(gains):
            high = {name: gain for name, gain in high.items() if gain > self.far}
        return dict(sorted(high.items(), key=lambda item: -item[1]))

    def _sighting(self, state: WeightsStartLargeState, large: Mapping[str, float], look: Look) -> Sighting:
        name, gain = next(iter(large.items()))
        typical = middle(list(large.values()))
        message = (
            f"{share(len(large) / len(state.gains))} of the layers began with too large weights: their gain is "
            f"{amount(typical)} (median), {amount(gain)} in `{name}`, where 0.6 to 1.4 is usual"
        )
        evidence = look.evidence(f"weight/rms@{name}", gain, 1.4)
        severity = Severity.INFO if look.run.came_trained else Severity.WARNING
        return Sighting(severity, message, tuple(large), (evidence,), since=0)


def gains(look: Look) -> dict[str, float]:
    """Of the layers whose weights were measured now, before an update could change them much, and look new."""
    model, ratios = look.view.kinds.model, look.view.layers("update/ratio")
    moved = {} if ratios is None else dict(zip(ratios.names, ratios.values.tolist(), strict=True))
    sizes, _ = new_sizes(look.view)
    return {
        name: size * math.sqrt(math.prod(model.by_name[name].shape[1:]))
        for name, size in sizes.items()
        if model is not None and not moved.get(name, 0.0) > _MOVED
    }
