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
        `act/headroom`, how often the largest magnitude of a module can double before it overflows, below `doublings`:
        information at the first look, a warning at two in a row, or with `skips` steps skipped by the scaler within
        100. A warning as well below `ahead` doublings where, at the pace since the look before, none will be left by
        the next one. Below 0 doublings there is an infinity already.

    Why it matters:
        In fp16 the limit is 65504; a single larger value is infinity, and NaN after the next normalisation.

    Evidence:
        `act/headroom@…`, the events `skipped-step`.

    What to do:
        bf16, or float32 for the module named; scale the sum it computes (a mean instead of a sum, divide first).

    When it is wrong:
        A module that gives masks or ids as large numbers; float32 and bf16 never come near.

    References:
        Micikevicius et al., Mixed precision training, ICLR 2018.
    """

    code: ClassVar[str] = "NUM002"
    name: ClassVar[str] = "overflow-near"
    onset: ClassVar[Onset] = Onset.OF_COLLAPSE
    needs: ClassVar[tuple[str, ...]] = ("act/headroom@",)
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
        scene = look.scene
        recent = tuple(step for step in state.skipped if scene.step - step < 100)
        recent += (scene.step,) * min(sum(fact.kind == "skipped-step" for fact in scene.facts), 16)
        state = state._replace(skipped=recent[-32:])
        layers = scene.layers("act/headroom")
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
        message = f"the largest activation of {found[0]} can double {values[found[0]]:.2g} times before it overflows"
        evidence = Evidence(tag=f"act/headroom@{found[0]}", step=scene.step, value=values[found[0]])
        severity = Severity.WARNING if sure else Severity.INFO
        return state, (Sighting(severity, message, where=tuple(found), evidence=(evidence,)),)
