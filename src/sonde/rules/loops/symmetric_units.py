"""LOP012 symmetric-units."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sonde.core.quantities import count
from sonde.rules.rule import Against, Cause, Claims, For, Look, Severity, Sighting
from sonde.rules.sticky_fact import StickyFact, kept


@dataclass(frozen=True, kw_only=True, slots=True)
class SymmetricUnits:
    """All units of a layer are equal, and stay equal.

    What it detects:
        - All rows of a weight matrix agreed to 1 part in 10⁵ at the start, and still did after ten updates that changed
          them.

    Why it matters:
        Units with equal weights get equal gradients: the layer can do no more than a single unit.

    Evidence:
        The fact `symmetric-units`: the matrices, and their share of all.

    What to do:
        Initialise at random: `nn.init.kaiming_normal_` for ReLU, `nn.init.xavier_normal_` for tanh. Zero is right only
        for biases, for outputs of residual branches, and for the second factor of an adapter.

    When it is wrong:
        - A layer whose gradient is exactly zero for another reason, such as a closed gate, cannot break its symmetry.

    References:
        Glorot and Bengio, Understanding the difficulty of training deep feedforward neural networks, AISTATS 2010.
        Goodfellow, Bengio and Courville, Deep Learning, 2016, section 8.4.
    """

    code: ClassVar[str] = "LOP012"
    name: ClassVar[str] = "symmetric-units"
    needs: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[str, ...]] = ()
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.SYMMETRIC_INITIALISATION: For("units stayed equal over ten updates"),
        Cause.BAD_INITIALISATION: Against("equal units explain it"),
        Cause.LR_TOO_HIGH: Against(),
        Cause.NO_LEARNABLE_SIGNAL: Against("units are equal"),
    }
    quiet_steps: ClassVar[int] = 100
    guide: ClassVar[str] = "layer-not-learning"

    def init(self) -> StickyFact:
        """Before the first step."""
        return StickyFact()

    def step(self, state: StickyFact, look: Look) -> tuple[StickyFact, Sequence[Sighting]]:
        """Look at the facts of one more step."""
        state = kept(state, look, "symmetric-units")
        if state.since < 0:
            return state, ()
        matrices = count(state.num, "weight matrix", "weight matrices")
        message = f"the units of {matrices} are all equal, even after ten updates"
        return state, (Sighting(Severity.WARNING, message, state.where, since=state.since),)
