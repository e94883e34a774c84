"""UPD005 updates-rounded-away."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import amount
from sonde.core.records import Float64, Int64
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Severity, Sighting


class UpdatesRoundedAwayState(NamedTuple):
    """Looks in a row at which most tensors moved by a few spacings only."""

    num_looks: int = 0
    since: int = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdatesRoundedAway:
    """Updates are about as small as the spacing of the weights' number format, so that most are rounded away.

    What it detects:
        The largest element of an update, max |Δθ|, is the difference of two stored weights, and so a whole number of
        their spacings: written in binary it has as many significant bits as that number.
        - In at least `share` of the tensors the largest element has `bits` bits or fewer, or is 0 although there is a
          gradient. It then spans at most 2^bits − 1 spacings, and a typical element less than one.
        - It is so at `num_looks` measurements in a row.
        - The learning rate is at least a tenth of its peak: at the end of a schedule updates may be rounded away.
        - Updates of exactly the learning rate do not count: optimisers that use the sign of gradients move by that.
        - It is a warning, or information if the loss is nearly gone.

        So weights in bfloat16 and float16 are found without knowing their format, and weights in float32 if updates are
        below a millionth of the weights.

    Why it matters:
        Weights stop moving long before the loss is at its minimum, while gradients look fine.

    Evidence:
        `update/absmax@…` and its significant bits; `update/ratio@…`.

    What to do:
        Keep weights in float32 and compute in bfloat16 by autocast. Or use stochastic rounding or Kahan summation.

    When it is wrong:
        - With stochastic rounding or compensated summation such updates are right.
        - Weights of a few elements have few bits by chance.

    References:
        Zamirai et al., Revisiting bfloat16 training, 2020.

    Example:
        >>> significant_bits(np.array([0.75, 0.1, 0.0]))
        array([ 2, 24,  0])
    """

    code: ClassVar[str] = "UPD005"
    name: ClassVar[str] = "updates-rounded-away"
    needs: ClassVar[tuple[str, ...]] = ("update/absmax@",)
    reads: ClassVar[tuple[str, ...]] = needs
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.PRECISION_UNDERFLOW: For("updates are close to the spacing of the number format"),
        Cause.LR_TOO_LOW: Against(),
        Cause.FROZEN_LAYER: Against("the update is rounded away"),
    }
    quiet_steps: ClassVar[int] = 200
    guide: ClassVar[str] = "layer-not-learning"

    bits: int = 3
    share: float = 0.5
    num_looks: int = 10

    def init(self) -> UpdatesRoundedAwayState:
        """Before the first step."""
        return UpdatesRoundedAwayState()

    def step(self, state: UpdatesRoundedAwayState, look: Look) -> tuple[UpdatesRoundedAwayState, Sequence[Sighting]]:
        """Look at the tensors whose turn it is."""
        run = look.run
        latest = look.views.latest("update/absmax")
        if look.view.layers("update/absmax") is None or latest is None:
            return state, ()
        gradients = look.views.latest("grad/norm")
        alive = set() if gradients is None else {n for n, v in zip(*gradients[:2], strict=True) if v > 0}
        bits = significant_bits(latest.values)
        counts = np.array([name in alive for name in latest.names]) & np.isfinite(latest.values)
        rates = look.view.layers("lr")
        lrs = np.array([look.view.value("lr"), *(rates.values.tolist() if rates is not None else ())])
        by_sign = (np.abs(latest.values[:, None] - lrs) <= 1e-5 * np.abs(lrs)).any(axis=1)
        coarse = counts & (bits <= self.bits) & ~by_sign
        moved = bool((latest.values[counts] > 0).any())
        found = counts.sum() >= 2 and moved and coarse.sum() >= self.share * counts.sum()
        if not found or run.lr < 0.1 * run.lr_peak:
            return self.init(), ()
        since = state.since if state.num_looks else look.view.step
        state = UpdatesRoundedAwayState(state.num_looks + 1, since)
        if state.num_looks < self.num_looks:
            return state, ()
        names = tuple(name for name, is_coarse in zip(latest.names, coarse, strict=True) if is_coarse)
        place = latest.names.index(names[0])
        message = (
            f"updates are rounded away: in {len(names)} of {int(counts.sum())} tensors the largest change of a weight "
            f"is close to the spacing of the number format ({amount(latest.values[place])} at `{names[0]}`)"
        )
        evidence = Evidence(
            tag=f"update/absmax@{names[0]}", step=int(look.view.step), value=float(latest.values[place])
        )
        severity = Severity.INFO if run.progress > 0.9 else Severity.WARNING
        return state, (Sighting(severity, message, where=names, evidence=(evidence,), since=state.since),)


def significant_bits(values: Float64) -> Int64:
    """How many binary digits each float32 number needs from its first to its last one that is 1; 0 for zero."""
    mantissa, _ = np.frexp(np.abs(np.where(np.isfinite(values), values, 0.0)).astype(np.float32))
    digits = (mantissa.astype(np.float64) * 2**24).astype(np.int64)
    lowest = digits & -digits
    return np.where(digits > 0, 24 - np.log2(np.maximum(lowest, 1)).astype(np.int64), 0)
