"""WGT001 non-finite-weight."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import count
from sonde.rules.rule import Cause, Claims, For, Look, Onset, Severity, Sighting


class NonFiniteWeightState(NamedTuple):
    """The step at which the first bad weight was seen."""

    since: int = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class NonFiniteWeight:
    """Weights are NaN or infinite.

    What it detects:
        - A parameter has at least one value that is NaN or infinite, at the first step at which weights are measured
          after it happened.
        - The parameter with the fewest such values is named first: there it began.

    Why it matters:
        NaN spreads: every later output and gradient is NaN, and no further step repairs it.

    Evidence:
        `weight/nonfinite@…`.

    What to do:
        Go back to a checkpoint before the step. Look for the first loss or gradient before it that was not finite.

    When it is wrong:
        - Masks of −inf that are kept as parameters are rare, but legal.

    References:
        IEEE 754-2019, section 6.2 (NaN propagates).
    """

    code: ClassVar[str] = "WGT001"
    name: ClassVar[str] = "non-finite-weight"
    onset: ClassVar[Onset] = Onset.OF_COLLAPSE
    needs: ClassVar[tuple[str, ...]] = ("weight/nonfinite@",)
    reads: ClassVar[tuple[str, ...]] = needs
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.EXPLODING_GRADIENTS: For("it ended in NaN or infinite weights"),
    }
    quiet_steps: ClassVar[int] = 50

    def init(self) -> NonFiniteWeightState:
        """Before the first step."""
        return NonFiniteWeightState()

    def step(self, state: NonFiniteWeightState, look: Look) -> tuple[NonFiniteWeightState, Sequence[Sighting]]:
        """Look at the weights where they were measured."""
        counts = look.view.layers("weight/nonfinite")
        if counts is None:
            return state, ()
        bad = np.flatnonzero(counts.values > 0)
        if not len(bad):
            return NonFiniteWeightState(), ()
        state = NonFiniteWeightState(look.view.step if state.since < 0 else state.since)
        order = bad[np.argsort(counts.values[bad], kind="stable")]
        where = tuple(counts.names[i] for i in order)
        message = f"parameter `{where[0]}` holds {count(float(counts.values[order[0]]), 'NaN or infinite value')}"
        if len(where) > 1:
            num = f"{len(where)} of {len(counts.names)}"
            message = f"{num} parameters hold NaN or infinite values, the fewest in `{where[0]}`"
        evidence = tuple(
            look.evidence(f"weight/nonfinite@{counts.names[i]}", float(counts.values[i])) for i in order[:3]
        )
        return state, (Sighting(Severity.CRITICAL, message, where, evidence, state.since),)
