"""LOS001 non-finite-loss."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

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
        A loss that is not a finite number, at once. It says whether infinity or NaN came first (infinity is an
        overflow; NaN comes of data, of inf − inf, 0/0, or the root or logarithm of a negative number), and which parts
        of a composite loss are concerned.

    Why it matters:
        The gradient of such a loss is not finite either: one step writes it into all weights, and they stay so.

    Evidence:
        `loss` and the last finite value before it; `grad/norm` of that step: large, it exploded; usual, look at the
        data.

    What to do:
        Go back to the last checkpoint before the step. Look at its batch, then lower the rate or clip the gradient if
        the loss or the gradient had grown before.

    When it is wrong:
        Steps that a gradient scaler skips are not looked at. A loss that is masked later on, or only logged, may be NaN
        without harm.

    References:
        Micikevicius et al., Mixed precision training, ICLR 2018 (overflow and loss scaling).
    """

    code: ClassVar[str] = "LOS001"
    name: ClassVar[str] = "non-finite-loss"
    onset: ClassVar[Onset] = Onset.OF_COLLAPSE
    needs: ClassVar[tuple[str, ...]] = ("loss",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.NONFINITE_INPUT: For("the loss is not finite"),
        Cause.EXPLODING_GRADIENTS: For("it ended in a loss that is not finite"),
        Cause.PRECISION_OVERFLOW: For("the loss is not finite"),
        Cause.LR_TOO_HIGH: For("it ended in a loss that is not finite"),
        Cause.WEIGHT_NORM_JUMP: Against("rather an explosion"),
        Cause.PLATEAU: Against("the loss is no number"),
        Cause.OVERFITTING: Against("the loss is no number"),
    }
    quiet_steps: ClassVar[int] = 50
    guide: ClassVar[str] = "explosion"

    def init(self) -> NonFiniteLossState:
        """Before the first step."""
        return NonFiniteLossState()

    def step(self, state: NonFiniteLossState, look: Look) -> tuple[NonFiniteLossState, Sequence[Sighting]]:
        """Look at one more loss."""
        scene = look.scene
        parts = scene.layers("loss/part")
        bad = () if parts is None else tuple(
            name for name, value in zip(parts.names, parts.values.tolist(), strict=True) if not math.isfinite(value)
        )  # fmt: skip
        if "loss" not in scene and not bad:
            return state, ()
        loss = scene.value("loss")
        if math.isfinite(loss) and not bad:
            norm = scene.value("grad/norm")
            return NonFiniteLossState(loss, norm if math.isfinite(norm) else state.norm), ()
        if state.since < 0:
            first = float(parts.values[parts.names.index(bad[0])]) if parts is not None and bad else loss
            state = state._replace(since=scene.step, first=first)
        state = state._replace(num=state.num + 1)
        what = "NaN" if math.isnan(state.first) else "infinite"
        again = f", in {state.num} steps so far" if state.num > 1 else ""
        usual = "it was never finite" if math.isnan(state.usual) else f"the last finite one was {state.usual:.4g}"
        message = f"loss {what} at step {state.since}{again}; {usual}"
        tag = f"loss/part@{bad[0]}" if bad else "loss"
        evidence = [Evidence(tag=tag, step=state.since, value=state.first, expected=_known(state.usual))]
        if "grad/norm" in scene:
            norm = scene.value("grad/norm")
            evidence.append(Evidence(tag="grad/norm", step=scene.step, value=norm, expected=_known(state.norm)))
        return state, (Sighting(Severity.CRITICAL, message, bad, tuple(evidence), state.since),)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
