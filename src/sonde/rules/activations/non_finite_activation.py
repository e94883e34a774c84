"""ACT004 non-finite-activation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.rules.rule import Cause, Claims, Evidence, For, Look, Onset, Severity, Sighting


class NonFiniteActivationState(NamedTuple):
    """The first step with one."""

    since: int = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class NonFiniteActivation:
    """A module gave NaN or infinity.

    What it detects:
        `act/nonfinite` above 0, at once. Masks of minus infinity inside attention are not module outputs. Critical
        where the loss is not finite either, or the gradient; else a warning.

    Why it matters:
        The first module with one, in the order of the forward pass, is where to look.

    Evidence:
        `act/nonfinite@…` of the modules that were looked at in that iteration.

    What to do:
        Check that module's input and its divisions, roots and logarithms; in fp16 use bf16 or float32 there.

    When it is wrong:
        A module that gives infinities by design (a mask, logits of impossible classes): the loss stays finite, and a
        warning is too much.

    References:
        Micikevicius et al., Mixed precision training, ICLR 2018.
    """

    code: ClassVar[str] = "ACT004"
    name: ClassVar[str] = "non-finite-activation"
    onset: ClassVar[Onset] = Onset.OF_COLLAPSE
    needs: ClassVar[tuple[str, ...]] = ("act/nonfinite@",)
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
        layers = look.scene.layers("act/nonfinite")
        where = () if layers is None else tuple(n for n, v in zip(*layers[:2], strict=True) if v > 0)
        if layers is None or not where:
            return state, ()
        since = state.since if state.since >= 0 else look.scene.step
        count = float(layers.values[layers.names.index(where[0])])
        loss, norm = look.scene.value("loss"), look.scene.value("grad/norm")
        lost = ("loss" in look.scene and not abs(loss) < float("inf")) or (
            "grad/norm" in look.scene and not norm < float("inf")
        )
        message = f"{where[0]} gave {count:.0f} values that are not finite"
        evidence = Evidence(tag=f"act/nonfinite@{where[0]}", step=look.scene.step, value=count, expected=0.0)
        severity = Severity.CRITICAL if lost else Severity.WARNING
        return NonFiniteActivationState(since), (
            Sighting(severity, message, where=where, evidence=(evidence,), since=since),
        )
