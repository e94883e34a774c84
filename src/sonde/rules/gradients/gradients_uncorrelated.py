"""GRD011 gradients-uncorrelated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import amount
from sonde.rules.history.cosines import take_cosine, typical
from sonde.rules.rule import Cause, Claims, For, Look, Severity, Sighting


class GradientsUncorrelatedState(NamedTuple):
    """The last cosines."""

    cosines: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class GradientsUncorrelated:
    """Gradients of neighbouring steps have nothing in common.

    What it detects:
        - The median of the last eight measured cosines between gradients of neighbouring steps is within ±`within`.
        - At least `num_looks` of them have been measured.
        - It is always information.

    Why it matters:
        The next batch does not confirm what one batch teaches. Late in a training that is the noise of a plateau; early
        in one it may be a task without a signal.

    Evidence:
        `grad/cosine`.

    What to do:
        On a plateau lower the learning rate or enlarge the batch. If it is so from the start, check that labels belong
        to their inputs.

    When it is wrong:
        - Small batches late in a healthy training have such gradients.

    References:
        McCandlish et al., An empirical model of large-batch training, 2018.
    """

    code: ClassVar[str] = "GRD011"
    name: ClassVar[str] = "gradients-uncorrelated"
    needs: ClassVar[tuple[str, ...]] = ("grad/cosine",)
    reads: ClassVar[tuple[str, ...]] = needs
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.NO_LEARNABLE_SIGNAL: For("successive gradients are uncorrelated"),
        Cause.LABEL_NOISE: For("gradients of neighbouring steps do not agree"),
        Cause.BATCH_TOO_SMALL: For(),
    }
    quiet_steps: ClassVar[int] = 300

    within: float = 0.1
    num_looks: int = 2

    def init(self) -> GradientsUncorrelatedState:
        """Before the first step."""
        return GradientsUncorrelatedState()

    def step(
        self, state: GradientsUncorrelatedState, look: Look
    ) -> tuple[GradientsUncorrelatedState, Sequence[Sighting]]:
        """Look at one more cosine, where there is one."""
        cosines = take_cosine(state.cosines, look)
        if cosines is state.cosines:
            return state, ()
        state = GradientsUncorrelatedState(cosines)
        cosine = typical(cosines, self.num_looks)
        if not abs(cosine) < self.within:
            return state, ()
        evidence = look.evidence("grad/cosine", cosines[-1])
        message = f"gradients of neighbouring steps have nothing in common: their cosine is {amount(cosine)}"
        return state, (Sighting(Severity.INFO, message, evidence=(evidence,)),)
