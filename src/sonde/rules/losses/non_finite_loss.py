"""LOS001 non-finite-loss."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import amount, count
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Onset, Severity, Sighting


class NonFiniteLossState(NamedTuple):
    """The last finite loss and gradient norm, and the first loss that was not finite after them."""

    usual: float = float("nan")
    norm: float = float("nan")
    since: int = -1
    first: float = float("nan")
    num: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class NonFiniteLoss:
    """The loss is NaN or infinite.

    What it detects:
        - A loss that is NaN or infinite, at once.
        - The message says which of the two came first. Infinity is an overflow. NaN comes from data, from inf − inf,
          from 0/0, or from the root or logarithm of a negative number.
        - The parts of a composite loss that are concerned are named.

    Why it matters:
        The gradient of such a loss is not finite either: one step writes it into all weights, and they stay so.

    Evidence:
        `loss` and its last finite value. `grad/norm` of that step: if it is large, the training exploded; if it is
        usual, look at the data.

    What to do:
        Go back to the last checkpoint before the step. Look at the batch of that step. Lower the learning rate or clip
        the gradient if loss or gradient had grown before.

    When it is wrong:
        - A loss that is masked later on, or only logged, may be NaN without harm.
        - Steps that a gradient scaler skips are not judged.

    References:
        Micikevicius et al., Mixed precision training, ICLR 2018 (overflow and loss scaling).
    """

    code: ClassVar[str] = "LOS001"
    name: ClassVar[str] = "non-finite-loss"
    onset: ClassVar[Onset] = Onset.OF_COLLAPSE
    needs: ClassVar[tuple[str, ...]] = ("loss",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.NONFINITE_INPUT: For("the loss is NaN or infinite"),
        Cause.EXPLODING_GRADIENTS: For("it ended in a NaN or infinite loss"),
        Cause.PRECISION_OVERFLOW: For("the loss is NaN or infinite"),
        Cause.LR_TOO_HIGH: For("it ended in a NaN or infinite loss"),
        Cause.WEIGHT_NORM_JUMP: Against("a loss that is NaN or infinite is rather an explosion"),
        Cause.PLATEAU: Against("the loss is NaN or infinite"),
        Cause.OVERFITTING: Against("the loss is NaN or infinite"),
    }
    quiet_steps: ClassVar[int] = 50
    guide: ClassVar[str] = "explosion"

    def init(self) -> NonFiniteLossState:
        """Before the first step."""
        return NonFiniteLossState()

    def step(self, state: NonFiniteLossState, look: Look) -> tuple[NonFiniteLossState, Sequence[Sighting]]:
        """Look at one more loss."""
        view = look.view
        parts = view.layers("loss/part")
        bad = () if parts is None else tuple(
            name for name, value in zip(parts.names, parts.values.tolist(), strict=True) if not math.isfinite(value)
        )  # fmt: skip
        if "loss" not in view and not bad:
            return state, ()
        loss = view.value("loss")
        if math.isfinite(loss) and not bad:
            norm = view.value("grad/norm")
            return NonFiniteLossState(loss, norm if math.isfinite(norm) else state.norm), ()
        if state.since < 0:
            first = float(parts.values[parts.names.index(bad[0])]) if parts is not None and bad else loss
            state = state._replace(since=view.step, first=first)
        state = state._replace(num=state.num + 1)
        what = "NaN" if math.isnan(state.first) else "infinite"
        again = f" and has been NaN or infinite in {count(state.num, 'step')} so far" if state.num > 1 else ""
        usual = "no loss was finite" if math.isnan(state.usual) else f"the last finite loss was {amount(state.usual)}"
        message = f"the loss became {what} at step {state.since:,}{again}; {usual}"
        tag = f"loss/part@{bad[0]}" if bad else "loss"
        evidence = [Evidence(tag=tag, step=state.since, value=state.first, expected=_known(state.usual))]
        if "grad/norm" in view:
            norm = view.value("grad/norm")
            evidence.append(look.evidence("grad/norm", norm, _known(state.norm)))
        return state, (Sighting(Severity.CRITICAL, message, bad, tuple(evidence), state.since),)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
