"""GRD009 gradients-reverse."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import amount
from sonde.rules.history.cosines import take_cosine, typical
from sonde.rules.rule import Against, Cause, Claims, For, Look, Severity, Sighting


class GradientsReverseState(NamedTuple):
    """The last cosines."""

    cosines: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class GradientsReverse:
    """Gradients of neighbouring steps point in opposite directions.

    What it detects:
        - The median of the last eight measured cosines between gradients of neighbouring steps is below `below`.
        - At least `num_looks` of them have been measured.
        - It is always information.

    Why it matters:
        Steps overshoot: the weights go to and fro across a valley. If the loss falls all the same, this is the edge of
        stability, which is healthy. If it does not fall, the learning rate is too high.

    Evidence:
        `grad/cosine`.

    What to do:
        Nothing while the loss falls. Otherwise lower the learning rate, or let it decay.

    When it is wrong:
        - Small batches bring cosines near 0 at any learning rate: then this rule never reports anything.

    References:
        Cohen et al., Gradient descent on neural networks typically occurs at the edge of stability, ICLR 2021.
    """

    code: ClassVar[str] = "GRD009"
    name: ClassVar[str] = "gradients-reverse"
    needs: ClassVar[tuple[str, ...]] = ("grad/cosine",)
    reads: ClassVar[tuple[str, ...]] = needs
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.LR_TOO_HIGH: For("successive gradients point in opposite directions"),
        Cause.MISSING_LR_DECAY: For(),
        Cause.EXPLODING_GRADIENTS: Against("gradients turn back, as at too high a learning rate"),
    }
    quiet_steps: ClassVar[int] = 300

    below: float = -0.3
    num_looks: int = 2

    def init(self) -> GradientsReverseState:
        """Before the first step."""
        return GradientsReverseState()

    def step(self, state: GradientsReverseState, look: Look) -> tuple[GradientsReverseState, Sequence[Sighting]]:
        """Look at one more cosine, where there is one."""
        cosines = take_cosine(state.cosines, look)
        if cosines is state.cosines:
            return state, ()
        state = GradientsReverseState(cosines)
        cosine = typical(cosines, self.num_looks)
        if not cosine < self.below:
            return state, ()
        evidence = look.evidence("grad/cosine", cosines[-1])
        message = f"each step undoes part of the one before (cosine of neighbouring gradients {amount(cosine)})"
        return state, (Sighting(Severity.INFO, message, evidence=(evidence,)),)
