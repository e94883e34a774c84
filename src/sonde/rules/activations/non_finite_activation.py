"""ACT004 non-finite-activation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import count
from sonde.rules.rule import Cause, Claims, Evidence, For, Look, Onset, Severity, Sighting


class NonFiniteActivationState(NamedTuple):
    """The first step with one."""

    since: int = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class NonFiniteActivation:
    """A module produced NaN or infinity.

    What it detects:
        - The output of a module holds at least one NaN or infinity (`act/nonfinite` above 0). One measurement is
          enough.
        - The minus infinities of a mask inside attention do not count: they are no output of a module.
        - Critical: the loss or the gradient is not finite either.
        - Warning: the loss and the gradient are still finite.

    Why it matters:
        The first module with such a value, in the order of the forward pass, is where the trouble begins.

    Evidence:
        `act/nonfinite@…` of the modules that were measured at that step.

    What to do:
        - Check the input of the module that is named first.
        - Check its divisions, roots and logarithms.
        - In float16, use bf16 or float32 for this module.

    When it is wrong:
        - Some modules give infinities by design (a mask, the logits of impossible classes). The loss stays finite then,
          and the warning can be ignored.

    References:
        Micikevicius et al., Mixed precision training, ICLR 2018.
    """

    code: ClassVar[str] = "ACT004"
    name: ClassVar[str] = "non-finite-activation"
    onset: ClassVar[Onset] = Onset.OF_COLLAPSE
    needs: ClassVar[tuple[str, ...]] = ("act/nonfinite@",)
    reads: ClassVar[tuple[str, ...]] = needs
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.PRECISION_OVERFLOW: For(),
        Cause.ACTIVATION_EXPLOSION: For(),
    }
    quiet_steps: ClassVar[int] = 200

    def init(self) -> NonFiniteActivationState:
        """Before the first step."""
        return NonFiniteActivationState()

    def step(self, state: NonFiniteActivationState, look: Look) -> tuple[NonFiniteActivationState, Sequence[Sighting]]:
        """Look at the modules whose turn it is."""
        layers = look.view.layers("act/nonfinite")
        where = () if layers is None else tuple(n for n, v in zip(*layers[:2], strict=True) if v > 0)
        if layers is None or not where:
            return state, ()
        since = state.since if state.since >= 0 else look.view.step
        num = float(layers.values[layers.names.index(where[0])])
        loss, norm = look.view.value("loss"), look.view.value("grad/norm")
        lost = ("loss" in look.view and not abs(loss) < float("inf")) or (
            "grad/norm" in look.view and not norm < float("inf")
        )
        values = count(num, "NaN or infinite value")
        message = f"{look.view.kinds.module(where[0])} produced {values}"
        evidence = Evidence(tag=f"act/nonfinite@{where[0]}", step=look.view.step, value=num, expected=0.0)
        severity = Severity.CRITICAL if lost else Severity.WARNING
        return NonFiniteActivationState(since), (
            Sighting(severity, message, where=where, evidence=(evidence,), since=since),
        )
