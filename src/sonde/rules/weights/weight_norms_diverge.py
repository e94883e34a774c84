"""WGT003 weight-norms-diverge."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.parameter_kinds import Kind
from sonde.rules.rule import Cause, Claims, Evidence, For, Look, Severity, Sighting


class WeightNormsDivergeState(NamedTuple):
    """The first spread of matrices' RMS, and the first condition number of each matrix."""

    spread: float = float("nan")
    names: tuple[str, ...] = ()
    conditions: tuple[float, ...] = ()
    num: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightNormsDiverge:
    """Layers' weights drift apart in size, or a matrix loses its small directions.

    What it detects:
        The largest RMS among weights (not biases and scales) is more than `apart` times the smallest, ten times more
        than at the first look, in three looks in a row; or a matrix's condition number is above 1e6 and a hundred times
        what it was. Information; a warning where training is impaired as well, after 100 steps.

    Why it matters:
        One rate cannot serve layers of so different a scale, and products of ill-conditioned matrices lose precision.

    Evidence:
        `weight/rms@…` of the largest and the smallest, `spectrum/condition@…`.

    What to do:
        Weight decay on the ones that grow, normalisation between layers, a rate per group.

    When it is wrong:
        Layers that were initialised near zero on purpose (residual branches, adapters) shrink the smallest RMS, not
        enlarge the spread: hence the comparison with the first look.

    References:
        none; D16's limit of 1000.
    """

    code: ClassVar[str] = "WGT003"
    name: ClassVar[str] = "weight-norms-diverge"
    needs: ClassVar[tuple[str, ...]] = ("weight/rms@",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.LR_TOO_HIGH: For(),
        Cause.EMBEDDING_NORM_GROWTH: For(),
        Cause.GRADIENT_IMBALANCE: For(),
        Cause.WEIGHT_NORM_JUMP: For(),
        Cause.WEIGHT_DECAY_TOO_STRONG: For(),
    }
    quiet_steps: ClassVar[int] = 200

    apart: float = 1000.0

    def init(self) -> WeightNormsDivergeState:
        """Before the first step."""
        return WeightNormsDivergeState()

    def step(self, state: WeightNormsDivergeState, look: Look) -> tuple[WeightNormsDivergeState, Sequence[Sighting]]:
        """Look at the weights where they were measured."""
        sightings = []
        layers = look.scene.layers("weight/rms")
        if layers is not None:
            is_bias = look.scene.kinds.are(Kind.BIAS, layers.names)
            keep = (~is_bias & (layers.values > 0)).nonzero()[0].tolist()
            if len(keep) > 1:
                values = layers.values[keep]
                high, low = int(values.argmax()), int(values.argmin())
                spread = float(values[high] / values[low])
                first = spread if math.isnan(state.spread) else state.spread
                far = spread > self.apart and spread > 10 * first
                state = state._replace(spread=first, num=state.num + 1 if far else 0)
                if state.num >= 3:
                    places = tuple(layers.names[keep[i]] for i in (high, low))
                    message = (
                        f"weights of {places[0]} are {spread:.3g} times those of {places[1]}; "
                        f"at first the most was {first:.3g}"
                    )
                    evidence = tuple(
                        Evidence(tag=f"weight/rms@{name}", step=look.scene.step, value=float(values[i]))
                        for name, i in zip(places, (high, low), strict=True)
                    )
                    sightings.append(Sighting(self._severity(look), message, places, evidence))
        conditions = look.scene.layers("spectrum/condition")
        if conditions is not None:
            known = dict(zip(state.names, state.conditions, strict=True))
            for name, value in zip(conditions.names, conditions.values.tolist(), strict=True):
                first = known.setdefault(name, value)
                if value > 1e6 and value > 100 * first:
                    message = f"condition number of {name} is {value:.3g}, it was {first:.3g}"
                    tag = f"spectrum/condition@{name}"
                    evidence = (Evidence(tag=tag, step=look.scene.step, value=value, expected=first),)
                    sightings.append(Sighting(self._severity(look), message, (name,), evidence))
            state = state._replace(names=tuple(known), conditions=tuple(known.values()))
        return state, sightings

    def _severity(self, look: Look) -> Severity:
        impaired = look.picture.is_impaired and look.picture.num_losses > 100
        return Severity.WARNING if impaired else Severity.INFO
