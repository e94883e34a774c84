"""ACT002 saturated-units."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.causes import Cause
from sonde.core.findings import Evidence, Severity
from sonde.rules.progress import is_hurt
from sonde.rules.rule import Look, Sighting
from sonde.signals.phases import Phase


class SaturatedUnitsState(NamedTuple):
    """Looks in a row with mostly saturated values, by module."""

    counts: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class SaturatedUnits:
    """Most values of a bounded activation function lie where it is flat.

    What it detects:
        More than `share` of a sigmoid's, tanh's or the like's values in its flat part, at two looks in a row.
        Information by itself; a warning while training is hurt, or where more than `most` are saturated and the loss no
        longer falls while it is not nearly gone and the rate has not decayed, or where all of several bounded functions
        are saturated to three quarters and 30% of the loss is left after 150 losses.

    Why it matters:
        Hardly any gradient passes a flat function: what lies before it stops learning.

    Evidence:
        `act/saturated@…`.

    What to do:
        Smaller initial weights, normalised inputs, a normalisation layer before the activation, or a ReLU-like one. If
        it began later, a lower learning rate.

    When it is wrong:
        Gates of recurrent networks and outputs of classifiers saturate when they are sure, and that is success: then
        the loss is low.

    References:
        Glorot and Bengio, Understanding the difficulty of training deep feedforward neural networks, AISTATS 2010.
    """

    code: ClassVar[str] = "ACT002"
    name: ClassVar[str] = "saturated-units"
    needs: ClassVar[tuple[str, ...]] = ("act/saturated@",)
    causes: ClassVar[tuple[Cause, ...]] = (
        Cause.SATURATED_UNITS,
        Cause.BAD_INITIALISATION,
        Cause.UNNORMALISED_INPUTS,
        Cause.LR_TOO_HIGH,
        Cause.VANISHING_GRADIENTS,
    )
    quiet_steps: ClassVar[int] = 300

    share: float = 0.5
    most: float = 0.9

    def init(self) -> SaturatedUnitsState:
        """Before the first step."""
        return SaturatedUnitsState()

    def step(self, state: SaturatedUnitsState, look: Look) -> tuple[SaturatedUnitsState, Sequence[Sighting]]:
        """Look at the modules whose turn it is."""
        layers = look.scene.layers("act/saturated")
        if layers is None:
            return state, ()
        counts = dict(state.counts)
        values = dict(zip(layers.names, layers.values.tolist(), strict=True))
        for name, value in values.items():
            counts[name] = counts.get(name, 0) + 1 if value > self.share else 0
        state = SaturatedUnitsState(tuple(counts.items()))
        found = sorted((n for n in values if counts[n] >= 2), key=lambda name: -values[name])
        if not found:
            return state, ()
        picture = look.picture
        stalled = picture.num_losses >= 100 and not picture.is_falling and picture.phase is not Phase.DECAY
        wide = values[found[0]] > self.most and stalled and picture.progress < 0.9
        bounded = look.scenes.latest("act/saturated")
        all_flat = bounded is not None and len(bounded.names) > 1 and bool((bounded.values > 0.75).all())
        slow = all_flat and picture.num_losses >= 150 and picture.progress < 0.7
        severity = Severity.WARNING if is_hurt(picture) or wide or slow else Severity.INFO
        message = f"{values[found[0]]:.0%} of the values of {found[0]} are saturated"
        evidence = Evidence(tag=f"act/saturated@{found[0]}", step=look.scene.step, value=values[found[0]], expected=0.0)
        return state, (Sighting(severity, message, where=tuple(found), evidence=(evidence,)),)
