"""LOP003 parameter-not-in-optimizer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import count, share
from sonde.rules.rule import Cause, Claims, For, Look, Severity, Sighting
from sonde.rules.sticky_fact import StickyFact, kept


class ParameterNotInOptimizerState(NamedTuple):
    """What was said of parameters without an optimiser, and of an optimiser without steps."""

    outside: StickyFact = StickyFact()
    idle: StickyFact = StickyFact()
    has_stepped: bool = False
    """Whether that one made a step after all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ParameterNotInOptimizer:
    """A parameter that gets a gradient is in no optimiser.

    What it detects:
        Either of these:
        - A parameter requires a gradient and has one, is in no group of any watched optimiser, and nobody changed its
          values over three steps.
        - An optimiser has not made a step until step `patience`, while another optimiser has.

    Why it matters:
        The parameter stays as it was initialised, though the loss says where it should go. Often the optimiser was
        built before a layer was replaced, moved or wrapped.

    Evidence:
        The fact `parameter-not-in-optimizer`: the parameters and their share of the model's elements. Or the check
        `idle-optimizer`, with the optimiser's name.

    What to do:
        - Build the optimiser after the model is complete, from `model.parameters()`.
        - Call `requires_grad_(False)` on parameters that are to stay as they are.
        - Call `step()` of each optimiser.

    When it is wrong:
        - Parameters that are updated less often than every third step by an optimiser that Sonde does not watch.
        - Optimisers that wait for a later phase.

    References:
        Jiang et al., TrainCheck, OSDI 2025 (optimisers built before parameters were replaced).
    """

    code: ClassVar[str] = "LOP003"
    name: ClassVar[str] = "parameter-not-in-optimizer"
    needs: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[str, ...]] = ()
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.PARAMETER_NOT_IN_OPTIMIZER: For("parameters with gradients are in no optimiser"),
    }
    quiet_steps: ClassVar[int] = 100
    guide: ClassVar[str] = "layer-not-learning"

    patience: int = 200

    def init(self) -> ParameterNotInOptimizerState:
        """Before the first step."""
        return ParameterNotInOptimizerState()

    def waits(self, state: ParameterNotInOptimizerState) -> bool:
        """Whether something was said of an optimiser."""
        return state.outside.since >= 0 or state.idle.since >= 0

    def step(
        self, state: ParameterNotInOptimizerState, look: Look
    ) -> tuple[ParameterNotInOptimizerState, Sequence[Sighting]]:
        """Look at the facts of one more step."""
        outside, idle = kept(state.outside, look, "parameter-not-in-optimizer"), state.idle
        if not state.has_stepped:
            idle = kept(idle, look, "idle-optimizer")
        name, rates = str(dict(idle.more).get("name", "")), look.view.layers("lr")
        state = ParameterNotInOptimizerState(
            outside, idle, state.has_stepped or (idle.since >= 0 and rates is not None and name in rates.names)
        )
        sightings = []
        if outside.since >= 0:
            message = (
                f"{count(outside.num, 'trainable parameter')} with gradients "
                f"{'is' if outside.num == 1 else 'are'} in no optimiser ({share(outside.value)} of the model)"
            )
            sightings.append(Sighting(Severity.WARNING, message, outside.where, since=outside.since))
        elif idle.since >= 0 and not state.has_stepped and look.view.step >= self.patience:
            message = f"the optimiser `{name}` never makes a step, though its parameters get gradients"
            sightings.append(Sighting(Severity.WARNING, message, idle.where, since=idle.since))
        return state, sightings
