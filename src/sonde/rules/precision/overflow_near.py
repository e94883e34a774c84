"""NUM002 overflow-near."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.rules.rule import Cause, Claims, Evidence, For, Look, Onset, Severity, Sighting, When


class OverflowNearState(NamedTuple):
    """Looks at which each module had little headroom, in a row, skipped steps of late, and the last look at each."""

    counts: tuple[tuple[str, int], ...] = ()
    skipped: tuple[int, ...] = ()
    before: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class OverflowNear:
    """Activations come near the largest number of their format.

    What it detects:
        - `act/headroom` says how often the largest magnitude of a module can double before it overflows. It is below
          `doublings`.
        - Or it is below `ahead`, and at its pace since the measurement before, none will be left at the next one.
        - Warning: it is below `doublings` at two measurements in a row, the scaler has skipped `skips` steps within
          100, or none will be left at the next measurement.
        - Information: all other cases.

    Why it matters:
        In float16 the limit is 65,504. A single larger value is infinity, and the next normalisation makes NaN of it.

    Evidence:
        `act/headroom@…`, the events `skipped-step`.

    What to do:
        - Use bf16, or float32 for the module that is named.
        - Make the sum in this module smaller: use a mean, or divide first.

    When it is wrong:
        - A module may give masks or ids as large numbers.
        - Float32 and bf16 never come near their limits in a healthy training.

    References:
        Micikevicius et al., Mixed precision training, ICLR 2018.
    """

    code: ClassVar[str] = "NUM002"
    name: ClassVar[str] = "overflow-near"
    onset: ClassVar[Onset] = Onset.OF_COLLAPSE
    needs: ClassVar[tuple[str, ...]] = ("act/headroom@",)
    reads: ClassVar[tuple[str, ...]] = needs
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.PRECISION_OVERFLOW: (For("activations are near the format's largest number"), For(when=When.ALARM)),
    }
    quiet_steps: ClassVar[int] = 300

    doublings: float = 1.5
    ahead: float = 4.0
    skips: int = 3

    def init(self) -> OverflowNearState:
        """Before the first step."""
        return OverflowNearState()

    def step(self, state: OverflowNearState, look: Look) -> tuple[OverflowNearState, Sequence[Sighting]]:
        """Look at the modules whose turn it is."""
        view = look.view
        recent = tuple(step for step in state.skipped if view.step - step < 100)
        recent += (view.step,) * min(sum(fact.kind == "skipped-step" for fact in view.facts), 16)
        state = state._replace(skipped=recent[-32:])
        layers = view.layers("act/headroom")
        if layers is None:
            return state, ()
        counts, values = dict(state.counts), dict(zip(layers.names, layers.values.tolist(), strict=True))
        before, soon = dict(state.before), set()
        for name, value in values.items():
            counts[name] = counts.get(name, 0) + 1 if value < self.doublings else 0
            # As much as was lost since the last look will be lost by the next one.
            if 0 < value < self.ahead and before.get(name, value) >= 2 * value:
                soon.add(name)
            before[name] = value
        state = state._replace(counts=tuple(counts.items()), before=tuple(before.items()))
        found = sorted((name for name in values if counts[name] or name in soon), key=lambda name: values[name])
        if not found:
            return state, ()
        sure = bool(soon) or any(counts[name] > 1 for name in found) or len(state.skipped) >= self.skips
        module, left = view.kinds.module(found[0]), values[found[0]]
        message = f"the largest activation of {module} can double only {left:.1f} times before it overflows"
        if left <= 0:
            message = f"the largest activation of {module} has reached the largest number of its format"
        evidence = Evidence(tag=f"act/headroom@{found[0]}", step=view.step, value=left)
        severity = Severity.WARNING if sure else Severity.INFO
        return state, (Sighting(severity, message, where=tuple(found), evidence=(evidence,)),)
