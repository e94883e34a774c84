"""LOP011 frozen-layer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sonde.rules.rule import Against, Cause, Claims, For, Look, Severity, Sighting, When
from sonde.rules.standing import Standing, stand


@dataclass(frozen=True, kw_only=True, slots=True)
class FrozenLayer:
    """Layers do not learn, by `requires_grad` or by a rate of 0.

    What it detects:
        Parameters do not require a gradient, or are in a group of learning rate 0 while other groups have one, and
        nobody changed them over three steps; nothing where that is less than `least` of the model (masks and tables
        that are kept as parameters). Information; a warning where more than `most_fresh` of the elements of all weight
        matrices (embeddings apart) are frozen *and* as torch initialises them, uniform within ±1/√fan_in: frozen before
        they ever learned.

    Why it matters:
        A random layer that cannot learn leaves all the work to the others.

    Evidence:
        The facts `frozen-parameter` and `zero-rate`: the parameters, their share of the model, and the share that is
        fresh.

    What to do:
        Look at the pattern of names by which layers were frozen, and at the groups given to the optimiser.

    When it is wrong:
        Random features on purpose (reservoirs, extreme learning machines). Layers that were initialised by hand are not
        known to be fresh, and stay information.

    References:
        Jiang et al., TrainCheck, OSDI 2025 (layers frozen by mistake).
    """

    code: ClassVar[str] = "LOP011"
    name: ClassVar[str] = "frozen-layer"
    needs: ClassVar[tuple[str, ...]] = ()
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.FROZEN_LAYER: (
            For("parameters were not changed by anyone"),
            For("before they ever learned", when=When.ALARM),
        ),
        Cause.NO_LEARNABLE_SIGNAL: Against("what would learn it is frozen as it was initialised", when=When.ALARM),
    }
    quiet_steps: ClassVar[int] = 100
    guide: ClassVar[str] = "layer-not-learning"

    most_fresh: float = 0.5
    least: float = 0.02

    def init(self) -> Standing:
        """Before the first step."""
        return Standing()

    def step(self, state: Standing, look: Look) -> tuple[Standing, Sequence[Sighting]]:
        """Look at the facts of one more step."""
        state = stand(state, look, "frozen-parameter", "zero-rate")
        if state.since < 0 or state.value < self.least:
            return state, ()
        fresh = state.get("fresh")
        severity = Severity.WARNING if fresh > self.most_fresh else Severity.INFO
        message = f"{state.num} parameters are frozen, {state.value:.0%} of the model"
        if fresh > 0:
            message += f"; {fresh:.0%} of its weight matrices are as they were initialised"
        return state, (Sighting(severity, message, state.where, since=state.since),)
