"""OPT001 epsilon-underflow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import count
from sonde.core.quantities import share as percent
from sonde.rules.history.progress import is_stuck
from sonde.rules.history.tracking import spread
from sonde.rules.layer_depth import latest_typical
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Severity, Sighting


class EpsilonUnderflowState(NamedTuple):
    """Tensors below epsilon at their latest look, and since when there is one."""

    below: tuple[str, ...] = ()
    since: int = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class EpsilonUnderflow:
    """Adam's second moments have fallen below its epsilon, so that steps are no longer normalised.

    What it detects:
        - In a tensor, √v̂ < ε for more than `share` of the elements at the latest measurement. Elements whose v is
          exactly zero never had a gradient and do not count.
        - This holds for most of the measured tensors, and for at least three or for all of them.
        - Nothing is said if the loss is nearly gone.
        - Warning: the loss is stuck.
        - Warning: it holds for more than 80% of the tensors, and half of the loss is left after 100 losses.
        - Warning: it holds for all tensors, 90% of the loss is left after 40 losses, and steps are below 2e-4 of the
          weights. If it holds for every element and the model did not come trained, 80% of the loss and 1e-3 are
          enough.
        - Information: all other cases.

    Why it matters:
        A step becomes η·m/ε, which is plain gradient descent with tiny gradients: nothing moves. Gradients that small
        come from a loss that is scaled down, or they vanish on their way.

    Evidence:
        `adam/epsilon_share@…`, `adam/zero_share@…`, `update/ratio@…`.

    What to do:
        - Set ε below the usual √v, to a hundredth of the RMS gradient.
        - Or scale the loss up, to about one.

    When it is wrong:
        - A large ε may be meant (1e-3 in some vision recipes), and makes Adam act like momentum. If the loss falls, the
          finding is information.

    References:
        Molybog et al., A theory on Adam instability in large-scale machine learning, 2023.
    """

    code: ClassVar[str] = "OPT001"
    name: ClassVar[str] = "epsilon-underflow"
    needs: ClassVar[tuple[str, ...]] = ("adam/epsilon_share@",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.ADAM_EPSILON_UNDERFLOW: For("second moments are below epsilon"),
        Cause.PRECISION_UNDERFLOW: Against(),
        Cause.LR_TOO_LOW: Against("epsilon makes steps small"),
    }
    quiet_steps: ClassVar[int] = 300
    guide: ClassVar[str] = "loss-not-falling"

    share: float = 0.5

    def init(self) -> EpsilonUnderflowState:
        """Before the first step."""
        return EpsilonUnderflowState()

    def step(self, state: EpsilonUnderflowState, look: Look) -> tuple[EpsilonUnderflowState, Sequence[Sighting]]:
        """Look at the tensors whose turn it is, and at the loss when it can first be judged."""
        latest = look.views.latest("adam/epsilon_share")
        looked = look.view.layers("adam/epsilon_share") is not None
        judged = look.run.num_losses == 44 or (look.run.num_losses >= 100 and look.run.num_losses % 50 == 0)
        if latest is None or not (looked or judged) or look.run.is_solved:
            return state, ()
        zeros = look.views.latest("adam/zero_share")
        never = np.zeros(len(latest.names)) if zeros is None else np.nan_to_num(spread(zeros, latest.names))
        with np.errstate(invalid="ignore"):
            live = np.where(never < 1, (latest.values - never) / np.maximum(1 - never, 1e-9), 0.0)
        below = tuple(name for name, share in zip(latest.names, live, strict=True) if share > self.share)
        since = state.since if state.since >= 0 else look.view.step
        state = EpsilonUnderflowState(below, since if below else -1)
        most = len(below) > len(latest.names) / 2 and (len(below) >= 3 or len(below) == len(latest.names))
        if not most:
            return state, ()
        slow = look.run.num_losses >= 100 and look.run.progress < 0.5 and len(below) > 0.8 * len(latest.names)
        # Steps that are a fifth of the smallest usual ones, and next to nothing learned: no need to wait for more.
        entire = bool((live > 0.99).all()) and not look.run.came_trained
        short = latest_typical(look.views, "update/ratio") < (1e-3 if entire else 2e-4)
        little = look.run.progress < (0.2 if entire else 0.1)
        slow = slow or (short and look.run.num_losses >= 40 and little and below == latest.names)
        severity = Severity.WARNING if slow or is_stuck(look.run) else Severity.INFO
        value = float(live[latest.names.index(below[0])])
        message = (
            f"Adam's √v is below its ε in {len(below)} of {count(len(latest.names), 'tensor')} "
            f"({percent(value)} of the elements of `{below[0]}`)"
        )
        evidence = Evidence(
            tag=f"adam/epsilon_share@{below[0]}",
            step=look.view.step,
            value=float(latest.values[latest.names.index(below[0])]),
            expected=0.0,
        )
        return state, (Sighting(severity, message, where=below, evidence=(evidence,), since=state.since),)
