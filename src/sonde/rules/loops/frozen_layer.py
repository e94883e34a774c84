"""LOP011 frozen-layer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sonde.core.quantities import count, share
from sonde.rules.rule import Against, Cause, Claims, For, Look, Severity, Sighting, When
from sonde.rules.sticky_fact import StickyFact, kept


@dataclass(frozen=True, kw_only=True, slots=True)
class FrozenLayer:
    """Layers do not learn, by `requires_grad` or by a learning rate of 0.

    What it detects:
        - Parameters do not require a gradient, or are in a group of learning rate 0 while other groups have one above
          0, and nobody changed them over three steps.
        - They are at least `least` of the model: less may be masks and tables that are kept as parameters.
        - It is information. It is a warning if more than `most_fresh` of the elements of all weight matrices,
          embeddings apart, are frozen and as torch initialises them (uniform within ±1/√fan_in): these were frozen
          before they ever learned.

    Why it matters:
        A random layer that cannot learn leaves all the work to the other layers.

    Evidence:
        The facts `frozen-parameter` and `zero-rate`: the parameters, their share of the model, and how many of them
        are as initialised.

    What to do:
        Look at the pattern of names by which layers were frozen, and at the groups that were given to the optimiser.

    When it is wrong:
        - Random features on purpose (reservoirs, extreme learning machines).
        - Layers that were initialised by hand cannot be told from layers that came trained, and stay information.

    References:
        Jiang et al., TrainCheck, OSDI 2025 (layers frozen by mistake).
    """

    code: ClassVar[str] = "LOP011"
    name: ClassVar[str] = "frozen-layer"
    needs: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[str, ...]] = ()
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.FROZEN_LAYER: (
            For("nobody changed these parameters"),
            For("layers were frozen before they ever learned", when=When.ALARM),
        ),
        Cause.NO_LEARNABLE_SIGNAL: Against("what would learn it is frozen as it was initialised", when=When.ALARM),
    }
    quiet_steps: ClassVar[int] = 100
    guide: ClassVar[str] = "layer-not-learning"

    most_fresh: float = 0.5
    least: float = 0.02

    def init(self) -> StickyFact:
        """Before the first step."""
        return StickyFact()

    def step(self, state: StickyFact, look: Look) -> tuple[StickyFact, Sequence[Sighting]]:
        """Look at the facts of one more step."""
        state = kept(state, look, "frozen-parameter", "zero-rate")
        if state.since < 0 or state.value < self.least:
            return state, ()
        fresh = state.get("fresh")
        severity = Severity.WARNING if fresh > self.most_fresh else Severity.INFO
        are = "is" if state.num == 1 else "are"
        message = f"{count(state.num, 'parameter')} {are} frozen ({share(state.value)} of the model)"
        if fresh > 0:
            message += f"; {share(fresh)} of the weights in its matrices are frozen as they were initialised"
        return state, (Sighting(severity, message, state.where, since=state.since),)
