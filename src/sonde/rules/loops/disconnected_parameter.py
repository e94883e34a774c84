"""LOP004 disconnected-parameter."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sonde.core.quantities import count, share
from sonde.rules.rule import Cause, Claims, For, Look, Severity, Sighting
from sonde.rules.sticky_fact import StickyFact, kept


@dataclass(frozen=True, kw_only=True, slots=True)
class DisconnectedParameter:
    """The loss does not depend on a parameter.

    What it detects:
        - A parameter of an optimiser requires a gradient and had none in three steps, while other parameters had
          gradients.
        - It is a warning if such parameters are at least `least_share` of the model, otherwise information.
        - Members of a list of modules, others of which had gradients (experts, heads of tasks), are information only,
          after twenty steps.

    Why it matters:
        The layer never learns: its output is detached, unused, or replaced by the output of another layer.

    Evidence:
        The fact `disconnected-parameter`: the parameters and their share of the model's elements.

    What to do:
        - Look for `detach()`, `no_grad`, `.data`, `.item()` or a variable that is used twice, on the way from the layer
          to the loss.
        - Delete the layer if it is not needed, or call `requires_grad_(False)` on it.

    When it is wrong:
        - Layers that only a later phase uses.
        - Layers of a pre-trained model that are not needed, such as the pooler of an encoder. These are small as a
          rule.

    References:
        Wardat et al., DeepLocalize, ICSE 2021; PyTorch documentation,
        `DistributedDataParallel(find_unused_parameters=...)`.
    """

    code: ClassVar[str] = "LOP004"
    name: ClassVar[str] = "disconnected-parameter"
    needs: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[str, ...]] = ()
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.DISCONNECTED_LAYER: For("parameters never got a gradient"),
    }
    quiet_steps: ClassVar[int] = 100
    guide: ClassVar[str] = "layer-not-learning"

    least_share: float = 0.02

    def init(self) -> StickyFact:
        """Before the first step."""
        return StickyFact()

    def step(self, state: StickyFact, look: Look) -> tuple[StickyFact, Sequence[Sighting]]:
        """Look at the facts of one more step."""
        state = kept(state, look, "disconnected-parameter", "idle-parameter")
        if state.since < 0:
            return state, ()
        is_idle = dict(state.more).get("check") == "idle-parameter"
        severity = Severity.WARNING if state.value >= self.least_share and not is_idle else Severity.INFO
        message = f"{count(state.num, 'trainable parameter')} never got a gradient ({share(state.value)} of the model)"
        return state, (Sighting(severity, message, state.where, since=state.since),)
