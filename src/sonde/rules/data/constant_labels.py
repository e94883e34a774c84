"""DAT005 constant-labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sonde.core.causes import Cause
from sonde.core.findings import Severity
from sonde.rules.rule import Look, Sighting
from sonde.rules.standing import Standing, stand


@dataclass(frozen=True, kw_only=True, slots=True)
class ConstantLabels:
    """All targets are the same.

    What it detects:
        The targets of the first batches, four of them and 32 examples at least, were one class or one number. They are
        seen in the batches where `watch.data` is used, and else in the gradient of a cross-entropy, which is negative
        at the target only.

    Why it matters:
        A model that always says the same is perfect: the loss falls to zero, and nothing is learned.

    Evidence:
        The fact `constant-labels` with the value of the targets; `label/num_distinct` of 1.

    What to do:
        Look at where targets are read and put together into batches: a wrong index or column, a forgotten shuffle of
        sorted data.

    When it is wrong:
        Players of a game get constant targets for each kind of example (all real, then all made up): where their
        batches come apart, the first ones are seen together with the others. Data sorted by class that are not shuffled
        are meant to be found.

    References:
        Humbatova et al., DeepCrime, ISSTA 2021 (mutations of labels).
    """

    code: ClassVar[str] = "DAT005"
    name: ClassVar[str] = "constant-labels"
    needs: ClassVar[tuple[str, ...]] = ()
    causes: ClassVar[tuple[Cause, ...]] = (Cause.NO_LEARNABLE_SIGNAL,)
    quiet_steps: ClassVar[int] = 100

    def init(self) -> Standing:
        """Before the first step."""
        return Standing()

    def step(self, state: Standing, look: Look) -> tuple[Standing, Sequence[Sighting]]:
        """Look at the facts of one more step."""
        state = stand(state, look, "constant-labels")
        if state.since < 0:
            return state, ()
        message = f"all targets of the first batches are {state.value:g}{state.at}"
        return state, (Sighting(Severity.WARNING, message, since=state.since),)
