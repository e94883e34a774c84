"""ACT003 activations-explode."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import amount, count
from sonde.rules.history.progress import is_hurt
from sonde.rules.history.tracking import Tracked, track
from sonde.rules.rule import Cause, Claims, Evidence, For, Look, Severity, Sighting, When
from sonde.signals.growth import Growth


class ActivationsExplodeState(NamedTuple):
    """The growth of the largest magnitude of each module, and its first value."""

    tracked: Tracked = Tracked()
    first: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ActivationsExplode:
    """Activations grow exponentially from one measurement to the next.

    What it detects:
        - The logarithm of a module's largest activation rises along a line over six measurements or more (R² ≥ 0.8),
          and the activation is more than `growth` times that of the first measurement.
        - While the loss is stuck or has risen far above its start, more than `growth`² times that of the first
          measurement is enough.
        - The message says how many steps are left until the number format overflows, if `act/headroom` is known.
        - Warning: the loss is stuck or has risen far above its start, or the steps that are left are fewer than
          `horizon` and than three times the steps so far.
        - Information: all other cases.

    Why it matters:
        The growth ends at the largest number of the format, 65,504 in float16, and the next operation makes NaN of it.

    Evidence:
        `act/absmax@…` and `act/headroom@…` (how often the value can double before it overflows).

    What to do:
        - Normalise: LayerNorm before each block.
        - Scale the residual branches down.
        - Use weight decay or a lower learning rate.
        - In float16, train in bf16 instead.

    When it is wrong:
        - Outputs without a bound, such as logits and value functions, may grow for long in a healthy training.

    References:
        Zhang et al., OPT, 2022 (drift of activation norms before divergence).
    """

    code: ClassVar[str] = "ACT003"
    name: ClassVar[str] = "activations-explode"
    needs: ClassVar[tuple[str, ...]] = ("act/absmax@",)
    reads: ClassVar[tuple[str, ...]] = needs
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.ACTIVATION_EXPLOSION: (For("activations grow at every measurement"), For(when=When.ALARM)),
    }
    quiet_steps: ClassVar[int] = 400

    growth: float = 10.0
    horizon: int = 2_000

    def init(self) -> ActivationsExplodeState:
        """Before the first step."""
        return ActivationsExplodeState()

    def step(self, state: ActivationsExplodeState, look: Look) -> tuple[ActivationsExplodeState, Sequence[Sighting]]:
        """Look at the modules whose turn it is."""
        layers = look.view.layers("act/absmax")
        if layers is None:
            return state, ()
        tracked, grown = track(_GROWTH, state.tracked, layers, at=look.view.step)
        first = {**dict(zip(layers.names, layers.values.tolist(), strict=True)), **dict(state.first)}
        state = ActivationsExplodeState(tracked, tuple(first.items()))
        hurt, found = is_hurt(look.run), []
        for name, value in zip(layers.names, layers.values.tolist(), strict=True):
            place = tracked.names.index(name)
            times = value / first[name] if first[name] > 0 else np.nan
            steady = grown.r_squared[place] >= 0.8 and grown.rate[place] > 0 and times > self.growth
            if steady or (hurt and times > self.growth**2):
                found.append((times, name, value, float(grown.rate[place])))
        if not found:
            return state, ()
        found.sort(reverse=True)
        _, name, value, rate = found[0]
        left = self._steps_left(look, name, rate)
        # What grew over so many steps may be drawn on for three times as many, not for thousands.
        soon = left < min(self.horizon, 3 * look.view.step)
        severity = Severity.WARNING if hurt or soon else Severity.INFO
        module = look.view.kinds.module(name)
        message = f"the largest activation of {module} rose from {amount(first[name])} to {amount(value)}"
        if math.isfinite(left):
            message += f"; at this pace it overflows in about {count(max(int(float(f'{left:.2g}')), 0), 'step')}"
        evidence = Evidence(tag=f"act/absmax@{name}", step=look.view.step, value=value, expected=first[name])
        where = tuple(name for _, name, _, _ in found)
        return state, (Sighting(severity, message, where=where, evidence=(evidence,)),)

    def _steps_left(self, look: Look, name: str, rate: float) -> float:
        headroom = look.view.layers("act/headroom")
        if headroom is None or name not in headroom.names or not rate > 0:
            return float("inf")
        return float(headroom.values[headroom.names.index(name)] * np.log(2) / rate)


_GROWTH = Growth(min_values=6, window=16)
