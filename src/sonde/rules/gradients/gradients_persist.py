"""GRD010 gradients-persist."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import amount
from sonde.rules.history.cosines import take_cosine, typical
from sonde.rules.rule import Against, Cause, Claims, For, Look, Severity, Sighting


class GradientsPersistState(NamedTuple):
    """The last cosines."""

    cosines: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class GradientsPersist:
    """Gradients of neighbouring steps are nearly the same.

    What it detects:
        - The median of the last eight measured cosines between gradients of neighbouring steps is above `above`.
        - At least `num_looks` of them have been measured.
        - It is always information.

    Why it matters:
        One of three things is so:
        - The steps are so small that the gradient does not change: a larger learning rate would do.
        - Gradients are never cleared and pile up.
        - The batch is far larger than its noise calls for.

    Evidence:
        `grad/cosine`.

    What to do:
        Check that `zero_grad` is called at every step. Then try a learning rate five times as high, or a smaller batch.

    When it is wrong:
        - Full-batch training at a good learning rate has such cosines in its calm phases.

    References:
        McCandlish et al., An empirical model of large-batch training, 2018.
    """

    code: ClassVar[str] = "GRD010"
    name: ClassVar[str] = "gradients-persist"
    needs: ClassVar[tuple[str, ...]] = ("grad/cosine",)
    reads: ClassVar[tuple[str, ...]] = needs
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.MISSING_ZERO_GRAD: For("successive gradients are nearly the same"),
        Cause.LR_TOO_LOW: For("successive gradients are nearly the same"),
        Cause.BATCH_TOO_LARGE: For(),
        Cause.PLATEAU: For("gradients agree, as on a flat floor of a valley"),
        Cause.LR_TOO_HIGH: Against(),
    }
    quiet_steps: ClassVar[int] = 300

    above: float = 0.8
    num_looks: int = 1

    def init(self) -> GradientsPersistState:
        """Before the first step."""
        return GradientsPersistState()

    def step(self, state: GradientsPersistState, look: Look) -> tuple[GradientsPersistState, Sequence[Sighting]]:
        """Look at one more cosine, where there is one."""
        cosines = take_cosine(state.cosines, look)
        if cosines is state.cosines:
            return state, ()
        state = GradientsPersistState(cosines)
        cosine = typical(cosines, self.num_looks)
        if not cosine > self.above:
            return state, ()
        evidence = look.evidence("grad/cosine", cosines[-1])
        message = f"the gradient hardly changes from step to step (cosine of neighbouring steps {amount(cosine)})"
        return state, (Sighting(Severity.INFO, message, evidence=(evidence,)),)
