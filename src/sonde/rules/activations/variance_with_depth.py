"""ACT005 variance-with-depth."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.causes import Cause
from sonde.core.findings import Evidence, Severity
from sonde.rules.depth import kind_of, slope
from sonde.rules.progress import is_hurt
from sonde.rules.rule import Look, Sighting
from sonde.rules.scene import Layers


class VarianceWithDepthState(NamedTuple):
    """When it was first seen."""

    since: int = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class VarianceWithDepth:
    """Activations grow or fade geometrically from layer to layer.

    What it detects:
        log RMS of the outputs of modules of one kind (the same name but for numbers), in their order, is a line (R² ≥
        0.8 over at least four, or all steps one way by more than threefold each over three) whose ends are more than
        `spread` times apart. Each module counts by its latest look. Information; a warning while training is hurt.

    Why it matters:
        What grows on the way forward explodes on the way back, and what fades vanishes; at the start it is the
        initialisation.

    Evidence:
        `act/rms@…` of the first and the last of them.

    What to do:
        He initialisation for ReLU-likes, Xavier for tanh; LSUV (`sonde`'s toolkit sets and reports it); a normalisation
        layer in each block, residual branches scaled by 1/√(2·depth).

    When it is wrong:
        In pre-norm residual networks the stream grows by design, but like the square root of depth, not geometrically.

    References:
        He et al., Delving deep into rectifiers, ICCV 2015. Mishkin and Matas, All you need is a good init, ICLR 2016.
    """

    code: ClassVar[str] = "ACT005"
    name: ClassVar[str] = "variance-with-depth"
    needs: ClassVar[tuple[str, ...]] = ("act/rms@",)
    causes: ClassVar[tuple[Cause, ...]] = (
        Cause.BAD_INITIALISATION,
        Cause.ACTIVATION_EXPLOSION,
        Cause.VANISHING_GRADIENTS,
        Cause.EXPLODING_GRADIENTS,
        Cause.UNNORMALISED_INPUTS,
    )
    quiet_steps: ClassVar[int] = 1_000

    spread: float = 30.0

    def init(self) -> VarianceWithDepthState:
        """Before the first step."""
        return VarianceWithDepthState()

    def step(self, state: VarianceWithDepthState, look: Look) -> tuple[VarianceWithDepthState, Sequence[Sighting]]:
        """Look at the modules whose turn it is, and again at the 100th loss, when progress can be judged."""
        latest = look.scenes.latest("act/rms")
        looked = look.scene.layers("act/rms") is not None
        if latest is None or not (looked or look.picture.num_losses == 100):
            return state, ()
        found = self._chain(Layers(latest.names, latest.values))
        if found is None:
            return state, ()
        state = VarianceWithDepthState(state.since if state.since >= 0 else look.scene.step)
        first, last = float(found.values[0]), float(found.values[-1])
        message = (
            f"activations {'grow' if last > first else 'fade'} with depth: RMS {first:.3g} at {found.names[0]}, "
            f"{last:.3g} at {found.names[-1]}"
        )
        evidence = Evidence(tag=f"act/rms@{found.names[-1]}", step=look.scene.step, value=last, expected=first)
        severity = Severity.WARNING if is_hurt(look.picture) else Severity.INFO
        return state, (
            Sighting(
                severity, message, where=found.names[:1] + found.names[-1:], evidence=(evidence,), since=state.since
            ),
        )

    def _chain(self, layers: Layers) -> Layers | None:
        kinds: dict[str, list[int]] = {}
        for place in sorted(range(len(layers.names)), key=lambda place: _numbers(layers.names[place])):
            if np.isfinite(layers.values[place]) and layers.values[place] > 0:
                kinds.setdefault(kind_of(layers.names[place]), []).append(place)
        for places in kinds.values():
            values = layers.values[places]
            if len(places) < 3 or not max(values[-1] / values[0], values[0] / values[-1]) > self.spread:
                continue
            ratios = values[1:] / values[:-1]
            line = slope(values)
            steep = bool(np.all(ratios > 3) or np.all(ratios < 1 / 3))
            if steep or (line is not None and line.r_squared > 0.8):
                return Layers(tuple(layers.names[place] for place in places), values)
        return None


def _numbers(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in name.split(".") if part.isdigit())
