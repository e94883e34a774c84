"""OPT002 second-moment-behind."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import amount
from sonde.rules.rule import Cause, Claims, Evidence, For, Look, Onset, Severity, Sighting


class SecondMomentBehindState(NamedTuple):
    """The last step with one."""

    step: int = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class SecondMomentBehind:
    """Gradients have outgrown Adam's running mean of their squares.

    What it detects:
        - The mean of g² is more than `ratio` times the mean of v̂ in a tensor.
        - The first `first_steps` steps do not count, because v̂ varies much there.
        - Always information. It is the earliest known sign of a loss spike, one to eight steps ahead.

    Why it matters:
        If v is too small for g, a step is larger than the learning rate means it to be.

    Evidence:
        `adam/v_ratio@…`.

    What to do:
        - Lower β₂ (0.95).
        - Clip updates: StableAdamW divides the learning rate by max(1, √ratio).
        - Lengthen the warmup.

    When it is wrong:
        - Rows of embeddings and experts that were not used for long come back with such ratios.
        - Tiny batches scatter.
        - Each tensor is measured only now and then, so most of these moments are missed.

    References:
        Wortsman et al., Stable and low-precision training for large-scale vision-language models, NeurIPS 2023.
    """

    code: ClassVar[str] = "OPT002"
    name: ClassVar[str] = "second-moment-behind"
    onset: ClassVar[Onset] = Onset.SUDDEN
    needs: ClassVar[tuple[str, ...]] = ("adam/v_ratio@",)
    reads: ClassVar[tuple[str, ...]] = needs
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.WARMUP_TOO_SHORT: For(),
        Cause.BAD_BATCH: For(),
    }
    quiet_steps: ClassVar[int] = 100

    ratio: float = 10.0
    first_steps: int = 20

    def init(self) -> SecondMomentBehindState:
        """Before the first step."""
        return SecondMomentBehindState()

    def step(self, state: SecondMomentBehindState, look: Look) -> tuple[SecondMomentBehindState, Sequence[Sighting]]:
        """Look at the tensors whose turn it is."""
        layers = look.view.layers("adam/v_ratio")
        if layers is None or look.view.step <= self.first_steps:
            return state, ()
        found = [(value, name) for name, value in zip(*layers[:2], strict=True) if value > self.ratio]
        if not found:
            return state, ()
        value, name = max(found)
        message = f"the squared gradient of `{name}` is {amount(value)} times Adam's running mean of it"
        evidence = Evidence(tag=f"adam/v_ratio@{name}", step=look.view.step, value=float(value), expected=1.0)
        sighting = Sighting(Severity.INFO, message, where=tuple(n for _, n in found), evidence=(evidence,))
        return SecondMomentBehindState(look.view.step), (sighting,)
