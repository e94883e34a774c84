"""DAT001 nonfinite-input."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sonde.core.quantities import count
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Onset, Severity, Sighting
from sonde.rules.sticky_fact import StickyFact, kept


@dataclass(frozen=True, kw_only=True, slots=True)
class NonfiniteInput:
    """The data hold NaN or infinity.

    What it detects:
        - At least one input of a model, or one target, is NaN or infinite at a step at which the batch was measured.
        - Always critical.

    Why it matters:
        One such value makes the loss NaN, and one step later every weight. No later step brings the weights back.

    Evidence:
        `batch/nonfinite@…` and `label/nonfinite` above 0, at the step of the batch; or the fact `nonfinite-input`.

    What to do:
        - Look at that batch.
        - Look for missing values, logarithms of zero, divisions by a deviation of zero, and overflow in float16.
        - Filter these rows, or replace these values, where the data are read.

    When it is wrong:
        - Some models take NaN for "missing" on purpose and mask it.
        - Batches between two measurements are not seen.

    References:
        Zhang et al., An empirical study on TensorFlow program bugs, ISSTA 2018.
    """

    code: ClassVar[str] = "DAT001"
    name: ClassVar[str] = "nonfinite-input"
    onset: ClassVar[Onset] = Onset.OF_COLLAPSE
    needs: ClassVar[tuple[str, ...]] = ("batch/nonfinite@",)
    reads: ClassVar[tuple[str, ...]] = ("batch/nonfinite@", "label/nonfinite")
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.NONFINITE_INPUT: For("the batch itself holds NaN or infinity"),
        Cause.LR_TOO_HIGH: Against("the input was not finite to begin with"),
        Cause.PRECISION_OVERFLOW: Against("the input was not finite to begin with"),
    }
    quiet_steps: ClassVar[int] = 200
    guide: ClassVar[str] = "explosion"

    def init(self) -> StickyFact:
        """Before the first step."""
        return StickyFact()

    def step(self, state: StickyFact, look: Look) -> tuple[StickyFact, Sequence[Sighting]]:
        """Look at the inputs of one more step."""
        known = state.since
        state = kept(state, look, "nonfinite-input")
        step, found = look.view.step, []
        layers = look.view.layers("batch/nonfinite")
        if layers is not None:
            found = [
                (f"batch/nonfinite@{name}", name, value)
                for name, value in zip(layers.names, layers.values.tolist(), strict=True)
                if value > 0
            ]
        if look.view.value("label/nonfinite") > 0:
            found.append(("label/nonfinite", "targets", look.view.value("label/nonfinite")))
        if found:
            evidence = tuple(Evidence(tag=tag, step=step, value=value, expected=0.0) for tag, _, value in found)
            tag, name, num = found[0]
            place = "among the targets" if tag == "label/nonfinite" else f"in input `{name}`"
            message = f"the batch of step {step:,} has {count(num, 'NaN or infinite value')} {place}"
            where = tuple(name for _, name, _ in found)
            return state, (Sighting(Severity.CRITICAL, message, where, evidence),)
        if state.since != known:
            message = f"an input of the model holds NaN or infinity at step {step}{state.at}"
            return state, (Sighting(Severity.CRITICAL, message, state.where),)
        return state, ()
