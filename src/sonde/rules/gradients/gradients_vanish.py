"""GRD004 gradients-vanish."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.rules.progress import is_stuck
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Severity, Sighting


class GradientsVanishState(NamedTuple):
    """Since when the norm is small, and how many steps in a row."""

    num_small: int = 0
    since: int = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class GradientsVanish:
    """The whole gradient has become tiny although the loss is still high.

    What it detects:
        A norm below `share` of what it began with (or exactly zero from the start) for `patience` steps in a row, while
        the loss neither falls nor is solved. A warning where the loss is stuck at its start or at what a predictor gets
        that ignores its input; information where it has come down: a small gradient at a minimum is success.

    Why it matters:
        Nothing is left to learn from: dead or saturated units, or a flat region.

    Evidence:
        `grad/norm` against the median of its first five values; `loss`.

    What to do:
        Look for dead and saturated units and for layers without gradients; re-initialise; if the learning rate had a
        peak just before, lower it and start again.

    When it is wrong:
        On tasks whose best loss is near the loss at the start (hard regressions), converged looks like vanished.

    References:
        SPEC D4; Glorot and Bengio, AISTATS 2010.
    """

    code: ClassVar[str] = "GRD004"
    name: ClassVar[str] = "gradients-vanish"
    needs: ClassVar[tuple[str, ...]] = ("grad/norm", "loss")
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.VANISHING_GRADIENTS: For(),
        Cause.DEAD_UNITS: For(),
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
        picture = look.picture
        if "grad/norm" not in look.scene:
            return state, ()
        small = picture.grad_norm < self.share * picture.grad_start or picture.grad_norm == 0
        if not small or picture.is_solved:
            return self.init(), ()
        state = GradientsVanishState(state.num_small + 1, state.since if state.num_small else picture.step)
        if state.num_small < self.patience or picture.is_falling or picture.num_losses < 100:
            return state, ()
        message = (
            f"gradient norm {picture.grad_norm:.3g}, at first {picture.grad_start:.3g}, at a loss of {picture.loss:.4g}"
        )
        evidence = Evidence(tag="grad/norm", step=picture.step, value=picture.grad_norm, expected=picture.grad_start)
        severity = Severity.WARNING if is_stuck(picture) else Severity.INFO
        return state, (Sighting(severity, message, evidence=(evidence,), since=state.since),)
