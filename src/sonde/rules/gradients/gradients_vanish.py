"""GRD004 gradients-vanish."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import amount
from sonde.rules.history.progress import is_stuck
from sonde.rules.rule import Against, Cause, Claims, For, Look, Severity, Sighting


class GradientsVanishState(NamedTuple):
    """Since when the norm is small, and how many steps in a row."""

    num_small: int = 0
    since: int = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class GradientsVanish:
    """The whole gradient has become tiny although the loss is still high.

    What it detects:
        - The gradient norm is below `share` of what it began with, or exactly zero.
        - It stays so for `patience` steps in a row, while the loss neither falls nor is nearly gone.
        - It is a warning if the loss is stuck at its start or at the cost of guessing.
        - It is information if the loss has come down: a small gradient at a minimum is success.

    Why it matters:
        Nothing is left to learn from: units are dead or saturated, or the region is flat.

    Evidence:
        `grad/norm` against the median of its first five values; `loss`.

    What to do:
        - Look for dead and saturated units, and for layers without gradients.
        - Initialise the model anew.
        - If the learning rate had a peak just before, lower that peak and start again.

    When it is wrong:
        - On tasks whose best loss is near the first loss, as in hard regressions, a converged training looks like a
          vanished gradient.

    References:
        Glorot and Bengio, Understanding the difficulty of training deep feedforward neural networks, AISTATS 2010.
    """

    code: ClassVar[str] = "GRD004"
    name: ClassVar[str] = "gradients-vanish"
    needs: ClassVar[tuple[str, ...]] = ("grad/norm", "loss")
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.VANISHING_GRADIENTS: For(),
        Cause.DEAD_UNITS: For(),
        Cause.MISSING_LOSS_SCALING: For("gradients are too small for fp16"),
        Cause.LR_TOO_LOW: Against(),
        Cause.NO_LEARNABLE_SIGNAL: Against(),
    }
    quiet_steps: ClassVar[int] = 100
    guide: ClassVar[str] = "vanishing"

    share: float = 0.1
    patience: int = 20

    def init(self) -> GradientsVanishState:
        """Before the first step."""
        return GradientsVanishState()

    def step(self, state: GradientsVanishState, look: Look) -> tuple[GradientsVanishState, Sequence[Sighting]]:
        """Look at one more norm."""
        run = look.run
        if "grad/norm" not in look.view:
            return state, ()
        small = run.grad_norm < self.share * run.grad_start or run.grad_norm == 0
        if not small or run.is_solved:
            return self.init(), ()
        state = GradientsVanishState(state.num_small + 1, state.since if state.num_small else run.step)
        if state.num_small < self.patience or run.is_falling or run.num_losses < 100:
            return state, ()
        start, norm = run.grad_start, run.grad_norm
        change = f"fell from {amount(start)} to {amount(norm)}" if norm < start else f"is {amount(norm)}"
        message = f"the gradient norm {change}, while the loss is {amount(run.loss)}"
        evidence = look.evidence("grad/norm", norm, start)
        severity = Severity.WARNING if is_stuck(run) else Severity.INFO
        return state, (Sighting(severity, message, evidence=(evidence,), since=state.since),)
