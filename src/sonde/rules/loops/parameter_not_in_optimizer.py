"""LOP003 parameter-not-in-optimizer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sonde.core.causes import Cause
from sonde.core.findings import Severity
from sonde.rules.rule import Look, Sighting
from sonde.rules.standing import Standing, stand


@dataclass(frozen=True, kw_only=True, slots=True)
class ParameterNotInOptimizer:
    """A parameter that gets a gradient is in no optimiser.

    What it detects:
        It requires a gradient and has one, is in no group of any watched optimiser, and nobody changed its values over
        three steps.

    Why it matters:
        It stays as it was initialised, though the loss says where it should go. Often the optimiser was built before a
        layer was replaced, moved or wrapped.

    Evidence:
        The fact `parameter-not-in-optimizer`: the parameters and their share of the model's elements.

    What to do:
        Build the optimiser after the model is complete, from `model.parameters()`; freeze with `requires_grad_(False)`
        what is to stay.

    When it is wrong:
        Parameters that an optimiser updates which is not watched, less often than every third step.

    References:
        Jiang et al., TrainCheck, OSDI 2025 (optimisers built before parameters were replaced).
    """

    code: ClassVar[str] = "LOP003"
    name: ClassVar[str] = "parameter-not-in-optimizer"
    needs: ClassVar[tuple[str, ...]] = ()
    causes: ClassVar[tuple[Cause, ...]] = (Cause.PARAMETER_NOT_IN_OPTIMIZER,)
    quiet_steps: ClassVar[int] = 100

    def init(self) -> Standing:
        """Before the first step."""
        return Standing()

    def step(self, state: Standing, look: Look) -> tuple[Standing, Sequence[Sighting]]:
        """Look at the facts of one more step."""
        state = stand(state, look, "parameter-not-in-optimizer")
        if state.since < 0:
            return state, ()
        message = (
            f"{state.num} trainable parameters get gradients but are in no optimiser: {state.value:.0%} of the model"
        )
        return state, (Sighting(Severity.WARNING, message, state.where, since=state.since),)
