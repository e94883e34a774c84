"""GRD005 non-finite-gradient."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import count
from sonde.rules.rule import Cause, Claims, For, Look, Onset, Severity, Sighting


class NonFiniteGradientState(NamedTuple):
    """The first step with one, and the last at which the gradient was looked at and finite."""

    since: int = -1
    sound: int = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class NonFiniteGradient:
    """A gradient that was applied holds NaN or infinite values.

    What it detects:
        - The gradient norm before clipping is not finite, or a parameter's gradient has elements that are not, at a
          step that the optimiser took. It is reported at once.
        - Steps that a gradient scaler skipped do not count.
        - Parameters are named if the loss of the step is finite: then the trouble began in their gradients.
        - One step with such a gradient makes the next loss NaN, and with it every gradient. If that is the first step
          that was measured, the parameter in which the trouble began is not known. Then parameters are named only if
          some gradients are still finite.

    Why it matters:
        One such step makes the weights NaN, and everything after it.

    Evidence:
        `grad/norm`, `grad/nonfinite` and `grad/nonfinite@…`.

    What to do:
        - Go back to the last checkpoint.
        - Look at the batch of the step before.
        - Look for logarithms, roots and divisions at zero in the loss.
        - In float16 use a gradient scaler, or train in bfloat16.

    When it is wrong:
        - Loops that check gradients themselves and skip the step in a way that Sonde does not see.

    References:
        Micikevicius et al., Mixed precision training, ICLR 2018.
    """

    code: ClassVar[str] = "GRD005"
    name: ClassVar[str] = "non-finite-gradient"
    onset: ClassVar[Onset] = Onset.OF_COLLAPSE
    needs: ClassVar[tuple[str, ...]] = ("grad/norm",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.EXPLODING_GRADIENTS: For(),
    }
    quiet_steps: ClassVar[int] = 100
    guide: ClassVar[str] = "explosion"

    def init(self) -> NonFiniteGradientState:
        """Before the first step."""
        return NonFiniteGradientState()

    def step(self, state: NonFiniteGradientState, look: Look) -> tuple[NonFiniteGradientState, Sequence[Sighting]]:
        """Look at one more step."""
        view = look.view
        if any(fact.kind == "skipped-step" for fact in view.facts) and "amp/scale" in view:
            return state, ()
        whole = "grad/norm" in view and not math.isfinite(view.value("grad/norm"))
        counts, norms = view.layers("grad/nonfinite"), view.layers("grad/norm")
        where: tuple[str, ...] = ()
        num_all = len(counts.names if counts is not None else norms.names if norms is not None else ())
        if counts is not None:
            where = tuple(name for name, count in zip(counts.names, counts.values, strict=True) if count > 0)
        elif norms is not None:
            where = tuple(name for name, norm in zip(norms.names, norms.values, strict=True) if not math.isfinite(norm))
        if not (whole or where or view.value("grad/nonfinite") > 0):
            is_looked_at = "grad/norm" in view or norms is not None or counts is not None
            return NonFiniteGradientState(state.since, view.step) if is_looked_at else state, ()
        since = state.since if state.since >= 0 else view.step
        tag = f"grad/nonfinite@{where[0]}" if where and counts is not None else "grad/norm"
        value = view.value("grad/norm") if tag == "grad/norm" else _count(look, where[0])
        evidence = look.evidence(tag, value)
        message = "the gradient holds NaN or infinite values"
        unseen = state.since < 0 <= state.sound < view.step - 1
        is_spread = not math.isfinite(view.value("loss")) if "loss" in view else unseen
        if len(where) == 1 and not is_spread:
            message = f"the gradient of parameter `{where[0]}` holds NaN or infinite values"
        elif where:
            message = f"the gradients of {count(len(where), 'parameter')} hold NaN or infinite values"
            message += "" if is_spread else f", `{where[0]}` among them"
        if where and is_spread:
            looked = f"gradients were last measured at step {state.sound}"
            message += f"; where it began is not known: {looked if unseen else 'the loss is not finite either'}"
            where = where if len(where) < num_all else ()
        return state._replace(since=since), (
            Sighting(Severity.CRITICAL, message, where=where, evidence=(evidence,), since=since),
        )


def _count(look: Look, name: str) -> float:
    counts = look.view.layers("grad/nonfinite")
    assert counts is not None
    return float(counts.values[counts.names.index(name)])
