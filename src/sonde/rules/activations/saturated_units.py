"""ACT002 saturated-units."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import share as percent
from sonde.rules.history.progress import is_hurt
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Severity, Sighting, When
from sonde.signals.phases import Phase


class SaturatedUnitsState(NamedTuple):
    """By module: looks in a row with mostly saturated values, and whether the first look was one."""

    counts: tuple[tuple[str, int], ...] = ()
    from_start: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class SaturatedUnits:
    """Most values of a bounded activation function lie where it is flat.

    What it detects:
        - More than `share` of the values of a sigmoid, tanh or the like lie in its flat part, at two measurements in a
          row. One measurement is enough if this holds for all of several such functions.
        - Warning: the loss is stuck (from 40 losses on if more than `most` of the values are flat, otherwise from 100
          on), or it has risen far above its start.
        - Warning: more than `most` of the values are flat, and the loss no longer falls, is not nearly gone, and the
          learning rate has not decayed.
        - Warning: more than `all_share` of the values of all of several such functions are flat, they were mostly flat
          when they were first measured, and at least a tenth of the loss is left.
        - Warning: the function with most flat values was flat when it was first measured, and after `patience` losses
          less than `gone` of the loss is gone.
        - Information: all other cases.

    Why it matters:
        Hardly any gradient passes a flat function, so the layers before it stop learning.

    Evidence:
        `act/saturated@…`.

    What to do:
        - Make the initial weights smaller.
        - Normalise the inputs.
        - Put a normalisation layer before the activation function, or use a ReLU or GELU instead.
        - If the saturation began later in the training, lower the learning rate.

    When it is wrong:
        - Gates of recurrent networks and outputs of classifiers become flat when the model is sure. The loss is low
          then, and they were not flat at the start.
        - A network that is binary on purpose looks the same from its first step on.

    References:
        Glorot and Bengio, Understanding the difficulty of training deep feedforward neural networks, AISTATS 2010.
    """

    code: ClassVar[str] = "ACT002"
    name: ClassVar[str] = "saturated-units"
    needs: ClassVar[tuple[str, ...]] = ("act/saturated@",)
    reads: ClassVar[tuple[str, ...]] = needs
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.SATURATED_UNITS: (For("most values lie where the activation is flat"), For(when=When.ALARM)),
        Cause.VANISHING_GRADIENTS: For(),
        Cause.BAD_INITIALISATION: For(),
        Cause.MISSING_LR_DECAY: Against("flat units explain why the loss stands still", when=When.ALARM),
    }
    quiet_steps: ClassVar[int] = 300
    guide: ClassVar[str] = "vanishing"

    share: float = 0.5
    most: float = 0.9
    all_share: float = 0.75
    patience: int = 100
    gone: float = 0.5

    def init(self) -> SaturatedUnitsState:
        """Before the first step."""
        return SaturatedUnitsState()

    def step(self, state: SaturatedUnitsState, look: Look) -> tuple[SaturatedUnitsState, Sequence[Sighting]]:
        """Look at the modules whose turn it is."""
        layers = look.view.layers("act/saturated")
        if layers is None:
            return state, ()
        counts, from_start = dict(state.counts), state.from_start
        values = dict(zip(layers.names, layers.values.tolist(), strict=True))
        for name, value in values.items():
            if name not in counts and value > self.share:
                from_start |= {name}
            counts[name] = counts.get(name, 0) + 1 if value > self.share else 0
        state = SaturatedUnitsState(tuple(counts.items()), from_start)
        least = 1 if len(values) > 1 and all(counts[name] for name in values) else 2
        found = sorted((n for n in values if counts[n] >= least), key=lambda name: -values[name])
        if not found:
            return state, ()
        run = look.run
        stalled = run.num_losses >= 100 and not run.is_falling and run.phase is not Phase.DECAY
        wide = values[found[0]] > self.most and stalled and run.progress < 0.9
        bounded = look.views.latest("act/saturated")
        born = bounded is not None and len(bounded.names) > 1 and bool((bounded.values > self.all_share).all())
        born = born and from_start.issuperset(counts) and run.progress < 0.9
        hurt = is_hurt(run, soon=values[found[0]] > self.most)
        lasts = run.num_losses >= self.patience and found[0] in from_start and run.progress < self.gone
        severity = Severity.WARNING if hurt or wide or born or lasts else Severity.INFO
        message = (
            f"{percent(values[found[0]])} of the values of {look.view.kinds.module(found[0])} are saturated: "
            "they lie where the function is flat"
        )
        evidence = Evidence(tag=f"act/saturated@{found[0]}", step=look.view.step, value=values[found[0]], expected=0.0)
        return state, (Sighting(severity, message, where=tuple(found), evidence=(evidence,)),)
