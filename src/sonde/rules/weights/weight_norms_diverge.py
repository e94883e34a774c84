"""WGT003 weight-norms-diverge."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.parameter_kinds import Kind
from sonde.core.quantities import amount
from sonde.rules.rule import Cause, Claims, For, Look, Severity, Sighting


class WeightNormsDivergeState(NamedTuple):
    """The first spread of matrices' RMS, and the first condition number of each matrix."""

    spread: float = float("nan")
    names: tuple[str, ...] = ()
    conditions: tuple[float, ...] = ()
    num: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightNormsDiverge:
    """The weights of layers drift apart in size, or a matrix loses its small directions.

    What it detects:
        - The largest RMS among weights (without biases and scales) is more than `apart` times the smallest, and that
          ratio is ten times what it was at first, in three measurements in a row.
        - Or the condition number of a matrix is above 1e6 and a hundred times what it was at first.
        - It is information, and a warning after 100 steps if the loss does not fall or rises.

    Why it matters:
        One learning rate cannot suit layers of so different a size, and products of ill-conditioned matrices lose
        precision.

    Evidence:
        `weight/rms@…` of the largest and the smallest weights; `spectrum/condition@…`.

    What to do:
        Add weight decay to the layers that grow, or normalisation between layers, or give each group its own learning
        rate.

    When it is wrong:
        - Layers that start near zero on purpose (residual branches, adapters) make the ratio large from the start. That
          is why it is compared with the first measurement.

    References:
        None; a ratio of 1,000 is a limit from practice.
    """

    code: ClassVar[str] = "WGT003"
    name: ClassVar[str] = "weight-norms-diverge"
    needs: ClassVar[tuple[str, ...]] = ("weight/rms@",)
    reads: ClassVar[tuple[str, ...]] = ("weight/rms@", "spectrum/condition@")
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
        layers = look.view.layers("weight/rms")
        if layers is not None:
            is_bias = look.view.kinds.are(Kind.BIAS, layers.names)
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
                        f"the RMS of the weights `{places[0]}` is {amount(spread)} times that of `{places[1]}`; the "
                        f"largest such ratio was {amount(first)} at first"
                    )
                    evidence = tuple(
                        look.evidence(f"weight/rms@{name}", float(values[i]))
                        for name, i in zip(places, (high, low), strict=True)
                    )
                    sightings.append(Sighting(self._severity(look), message, places, evidence))
        conditions = look.view.layers("spectrum/condition")
        if conditions is not None:
            known = dict(zip(state.names, state.conditions, strict=True))
            for name, value in zip(conditions.names, conditions.values.tolist(), strict=True):
                first = known.setdefault(name, value)
                if value > 1e6 and value > 100 * first:
                    message = f"the condition number of `{name}` rose from {amount(first)} to {amount(value)}"
                    tag = f"spectrum/condition@{name}"
                    evidence = (look.evidence(tag, value, first),)
                    sightings.append(Sighting(self._severity(look), message, (name,), evidence))
            state = state._replace(names=tuple(known), conditions=tuple(known.values()))
        return state, sightings

    def _severity(self, look: Look) -> Severity:
        impaired = look.run.is_impaired and look.run.num_losses > 100
        return Severity.WARNING if impaired else Severity.INFO
