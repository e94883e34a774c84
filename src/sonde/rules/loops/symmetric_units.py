"""LOP012 symmetric-units."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sonde.rules.rule import Against, Cause, Claims, For, Look, Severity, Sighting
from sonde.rules.standing import Standing, stand


@dataclass(frozen=True, kw_only=True, slots=True)
class SymmetricUnits:
    """All units of a layer are the same, and stay so.

    What it detects:
        All rows of a weight matrix agreed to 1 part in 10⁵ at the start and still did after ten updates that changed
        them.

    Why it matters:
        Units with equal weights get equal gradients: the layer is as good as a single unit.

    Evidence:
        The fact `symmetric-units`: the matrices, and their share of all.

    What to do:
        Initialise at random: `nn.init.kaiming_normal_` for ReLU, `xavier_normal_` for tanh. Zero is right for biases,
        outputs of residual branches and the second factor of an adapter only.

    When it is wrong:
        A layer whose gradient is exactly zero for a reason of its own (a gate that is shut) has no chance to break its
        symmetry.

    References:
        Glorot and Bengio, AISTATS 2010. Goodfellow et al., Deep Learning, 2016, section 8.4.
    """

    code: ClassVar[str] = "LOP012"
    name: ClassVar[str] = "symmetric-units"
    needs: ClassVar[tuple[str, ...]] = ()
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.SYMMETRIC_INITIALISATION: For("units stayed alike over ten updates"),
        Cause.BAD_INITIALISATION: Against("it is the symmetry"),
        Cause.LR_TOO_HIGH: Against(),
        Cause.NO_LEARNABLE_SIGNAL: Against("units are alike"),
    }
    quiet_steps: ClassVar[int] = 100
    guide: ClassVar[str] = "layer-not-learning"

    def init(self) -> Standing:
        """Before the first step."""
        return Standing()

    def step(self, state: Standing, look: Look) -> tuple[Standing, Sequence[Sighting]]:
        """Look at the facts of one more step."""
        state = stand(state, look, "symmetric-units")
        if state.since < 0:
            return state, ()
        message = f"{state.num} weight matrices have units that are all alike, also after ten updates"
        return state, (Sighting(Severity.WARNING, message, state.where, since=state.since),)
