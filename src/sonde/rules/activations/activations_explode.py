"""ACT003 activations-explode."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.rules.progress import is_hurt
from sonde.rules.rule import Cause, Claims, Evidence, For, Look, Severity, Sighting, When
from sonde.rules.tracking import Tracked, track
from sonde.signals.growth import Growth


class ActivationsExplodeState(NamedTuple):
    """The growth of the largest magnitude of each module, and its first value."""

    tracked: Tracked = Tracked()
    first: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ActivationsExplode:
    """Activations grow exponentially from look to look.

    What it detects:
        log max|a| of a module is a rising line over at least six looks (R² ≥ 0.8), and has grown `growth` times since
        the first. Where `act/headroom` says how often it can still double before its number format overflows, the
        message says how many steps are left. A warning where that is below `horizon` and three times the steps so far,
        or while training is hurt; else information. With fewer looks, `growth` squared since the first look while
        training is hurt.

    Why it matters:
        They end at the largest number of their format, 65504 in fp16, and then in NaN.

    Evidence:
        `act/absmax@…`, `act/headroom@…`.

    What to do:
        Normalise (LayerNorm before each block), scale residual branches down, weight decay, a lower rate; bf16 instead
        of fp16.

    When it is wrong:
        Outputs without a bound (logits, value functions) may grow for long in a healthy training.

    References:
        Zhang et al., OPT, 2022 (drift of activation norms before divergence).
    """

    code: ClassVar[str] = "ACT003"
    name: ClassVar[str] = "activations-explode"
    needs: ClassVar[tuple[str, ...]] = ("act/absmax@",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.ACTIVATION_EXPLOSION: (For("activations grow look after look"), For(when=When.ALARM)),
    }
    quiet_steps: ClassVar[int] = 400

    growth: float = 10.0
    horizon: int = 2_000

    def init(self) -> ActivationsExplodeState:
        """Before the first step."""
        return ActivationsExplodeState()

    def step(self, state: ActivationsExplodeState, look: Look) -> tuple[ActivationsExplodeState, Sequence[Sighting]]:
        """Look at the modules whose turn it is."""
        layers = look.scene.layers("act/absmax")
        if layers is None:
            return state, ()
        tracked, grown = track(_GROWTH, state.tracked, layers, at=look.scene.step)
        first = {**dict(zip(layers.names, layers.values.tolist(), strict=True)), **dict(state.first)}
        state = ActivationsExplodeState(tracked, tuple(first.items()))
        hurt, found = is_hurt(look.picture), []
        for name, value in zip(layers.names, layers.values.tolist(), strict=True):
            place = tracked.names.index(name)
            times = value / first[name] if first[name] > 0 else np.nan
            steady = grown.r_squared[place] >= 0.8 and grown.rate[place] > 0 and times > self.growth
            if steady or (hurt and times > self.growth**2):
                found.append((times, name, value, float(grown.rate[place])))
        if not found:
            return state, ()
        found.sort(reverse=True)
        times, name, value, rate = found[0]
        left = self._steps_left(look, name, rate)
        # What grew over so many steps may be drawn on for three times as many, not for thousands.
        soon = left < min(self.horizon, 3 * look.scene.step)
        severity = Severity.WARNING if hurt or soon else Severity.INFO
        message = f"the largest activation of {name} is {value:.3g}, {times:.3g} times that of the first look"
        message += f", and overflows in about {left:.0f} steps at this pace" if math.isfinite(left) else ""
        evidence = Evidence(tag=f"act/absmax@{name}", step=look.scene.step, value=value, expected=first[name])
        where = tuple(name for _, name, _, _ in found)
        return state, (Sighting(severity, message, where=where, evidence=(evidence,)),)

    def _steps_left(self, look: Look, name: str, rate: float) -> float:
        headroom = look.scene.layers("act/headroom")
        if headroom is None or name not in headroom.names or not rate > 0:
            return float("inf")
        return float(headroom.values[headroom.names.index(name)] * np.log(2) / rate)


_GROWTH = Growth(min_values=6, window=16)
