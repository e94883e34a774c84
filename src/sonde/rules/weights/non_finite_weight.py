"""WGT001 non-finite-weight."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.causes import Cause
from sonde.core.findings import Evidence, Severity
from sonde.rules.rule import Look, Sighting


class NonFiniteWeightState(NamedTuple):
    """The step at which the first bad weight was seen."""

    since: int = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class NonFiniteWeight:
    """Weights are NaN or infinite.

    What it detects:
        A parameter with at least one value that is not finite, at the first step at which weights are measured after it
        happened; it names the parameters, those with the most such values last: where few are bad it began.

    Why it matters:
        NaN spreads: every later output and gradient is NaN, and no further step repairs it.

    Evidence:
        `weight/nonfinite@…`.

    What to do:
        Go back to a checkpoint before the step. Look for the first non-finite loss or gradient before it.

    When it is wrong:
        Masks of −inf kept as parameters are rare, but legal.

    References:
        IEEE 754-2019, section 6.2 (NaN propagates).
    """

    code: ClassVar[str] = "WGT001"
    name: ClassVar[str] = "non-finite-weight"
    needs: ClassVar[tuple[str, ...]] = ("weight/nonfinite@",)
    causes: ClassVar[tuple[Cause, ...]] = (
        Cause.EXPLODING_GRADIENTS,
        Cause.LR_TOO_HIGH,
        Cause.NONFINITE_INPUT,
        Cause.PRECISION_OVERFLOW,
        Cause.MISSING_CLIPPING,
        Cause.BAD_BATCH,
        Cause.ACTIVATION_EXPLOSION,
    )
    quiet_steps: ClassVar[int] = 50

    def init(self) -> NonFiniteWeightState:
        """Before the first step."""
        return NonFiniteWeightState()

    def step(self, state: NonFiniteWeightState, look: Look) -> tuple[NonFiniteWeightState, Sequence[Sighting]]:
        """Look at the weights where they were measured."""
        counts = look.scene.layers("weight/nonfinite")
        if counts is None:
            return state, ()
        bad = np.flatnonzero(counts.values > 0)
        if not len(bad):
            return NonFiniteWeightState(), ()
        state = NonFiniteWeightState(look.scene.step if state.since < 0 else state.since)
        order = bad[np.argsort(counts.values[bad], kind="stable")]
        where = tuple(counts.names[i] for i in order)
        message = f"{len(where)} of {len(counts.names)} parameters hold NaN or infinity, {where[0]} among them"
        evidence = tuple(
            Evidence(tag=f"weight/nonfinite@{counts.names[i]}", step=look.scene.step, value=float(counts.values[i]))
            for i in order[:3]
        )
        return state, (Sighting(Severity.CRITICAL, message, where, evidence, state.since),)
