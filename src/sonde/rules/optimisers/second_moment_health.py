"""OPT005 second-moment-health."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import amount
from sonde.core.quantities import share as percent
from sonde.rules.rule import Cause, Claims, Evidence, For, Look, Severity, Sighting


class SecondMomentHealthState(NamedTuple):
    """Looks in a row with the same trouble."""

    num_looks: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class SecondMomentHealth:
    """Adam's second moments do not fit the gradients of most tensors.

    What it detects:
        - It is judged after 100 steps, over the latest measurement of every tensor, and must hold at three measurements
          in a row.
        - The median over tensors of mean g² over mean v̂ lies outside of 1/`factor` to `factor`.
        - Or the median share of second moments that are exactly zero is above `share`.
        - Always information.

    Why it matters:
        Far below 1, Adam remembers larger gradients than there are now, and steps are too small for a while, as after a
        spike. Far above 1, steps are too large. Second moments of zero belong to elements that never had a gradient:
        dead units, unused rows.

    Evidence:
        `adam/v_ratio@…`, `adam/zero_share@…`.

    What to do:
        - After a spike, wait for 1/(1 − β₂) steps, or lower β₂.
        - For zeros, look at dead units (ACT001).

    When it is wrong:
        - Gradients that shrink quickly have ratios far below 1, as in a task that is being solved.

    References:
        Kingma and Ba, Adam, ICLR 2015.
    """

    code: ClassVar[str] = "OPT005"
    name: ClassVar[str] = "second-moment-health"
    needs: ClassVar[tuple[str, ...]] = ("adam/v_ratio@",)
    reads: ClassVar[tuple[str, ...]] = needs
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.DEAD_UNITS: For(),
    }
    quiet_steps: ClassVar[int] = 300

    factor: float = 30.0
    share: float = 0.5

    def init(self) -> SecondMomentHealthState:
        """Before the first step."""
        return SecondMomentHealthState()

    def step(self, state: SecondMomentHealthState, look: Look) -> tuple[SecondMomentHealthState, Sequence[Sighting]]:
        """Look at the tensors whose turn it is."""
        ratios, zeros = look.views.latest("adam/v_ratio"), look.views.latest("adam/zero_share")
        if look.view.layers("adam/v_ratio") is None or ratios is None or look.view.step <= 100:
            return state, ()
        ratio = float(np.nanmedian(ratios.values)) if np.isfinite(ratios.values).any() else float("nan")
        zero = 0.0 if zeros is None else float(np.nanmedian(zeros.values))
        off = bool(ratio > self.factor or ratio < 1 / self.factor)
        state = SecondMomentHealthState(state.num_looks + 1 if off or zero > self.share else 0)
        if state.num_looks < 3:
            return state, ()
        message = f"squared gradients are {amount(ratio)} times Adam's running means of them (median over tensors)"
        if not off:
            message = f"{percent(zero)} of Adam's second moments are exactly zero (median over tensors)"
        name = ratios.names[0]
        evidence = Evidence(tag=f"adam/v_ratio@{name}", step=look.view.step, value=ratio, expected=1.0)
        return state, (Sighting(Severity.INFO, message, evidence=(evidence,)),)
