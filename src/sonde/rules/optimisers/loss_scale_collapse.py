"""OPT003 loss-scale-collapse."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import amount, count
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Onset, Severity, Sighting, When


class LossScaleCollapseState(NamedTuple):
    """The scale of the step before, the largest since the first search ended, and the steps of later falls."""

    scale: float = float("nan")
    settled: float = float("nan")
    num_calm: int = 0
    falls: tuple[int, ...] = ()
    num_skipped: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class LossScaleCollapse:
    """The gradient scaler lowers its scale again and again, because gradients overflow at every scale.

    What it detects:
        - Low scale: the scale is below `least`. Then the forward pass overflows and not the scaled gradients, or the
          gradient is not finite at any scale. Warning; critical below 1e-3 of `least`.
        - Falls: after the first search for a scale (`calm` steps without a skipped one), the scale fell `falls` times
          within `window` steps. Warning if it is a hundredth of the value that it had settled at; information
          otherwise.
        - Skipped steps: `skips` steps in a row were skipped. Each one halves the scale, and no scale is left to be
          tried. Critical.
        - The first search for a scale is healthy, and nothing is said of it.

    Why it matters:
        Each fall is a step that was not taken. A scale that goes to zero ends in gradients that underflow, and in a run
        that takes no steps at all.

    Evidence:
        `amp/scale`, the events `skipped-step`.

    What to do:
        - Use bf16 instead of float16.
        - Or use float32 for the module that overflows; `act/headroom@…` shows which.
        - Clip the gradient, or lower the learning rate.

    When it is wrong:
        - A scaler with an unusual growth interval may go up and down in rhythm. It is information then.

    References:
        Micikevicius et al., Mixed precision training, ICLR 2018.
    """

    code: ClassVar[str] = "OPT003"
    name: ClassVar[str] = "loss-scale-collapse"
    onset: ClassVar[Onset] = Onset.OF_COLLAPSE
    needs: ClassVar[tuple[str, ...]] = ("amp/scale",)
    reads: ClassVar[tuple[str, ...]] = needs
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.PRECISION_OVERFLOW: (For("the loss scale falls again and again"), For(when=When.ALARM)),
        Cause.MISSING_LOSS_SCALING: Against("there is a scaler"),
    }
    quiet_steps: ClassVar[int] = 200
    guide: ClassVar[str] = "explosion"

    least: float = 1.0
    calm: int = 20
    falls: int = 3
    window: int = 200
    skips: int = 40

    def init(self) -> LossScaleCollapseState:
        """Before the first step."""
        return LossScaleCollapseState()

    def step(self, state: LossScaleCollapseState, look: Look) -> tuple[LossScaleCollapseState, Sequence[Sighting]]:
        """Look at one more step."""
        view = look.view
        skipped = sum(fact.kind == "skipped-step" for fact in view.facts)
        state = state._replace(num_skipped=state.num_skipped + skipped)
        scale = view.value("amp/scale")
        if skipped >= self.skips:
            message = f"{skipped} steps in a row were skipped: gradients are not finite at any loss scale"
            evidence = tuple(Evidence(tag="amp/scale", step=view.step, value=v) for v in (scale,) if math.isfinite(v))
            return state, (Sighting(Severity.CRITICAL, message, evidence=evidence, since=view.step),)
        if not math.isfinite(scale):
            return state, ()
        fell = scale < state.scale
        calm = 0 if fell or skipped else state.num_calm + 1
        searched = math.isfinite(state.settled)
        settled = float(np.fmax(state.settled, scale)) if searched or calm >= self.calm else float("nan")
        recent = tuple(step for step in state.falls if view.step - step < self.window)
        if searched and fell:
            recent = (*recent, view.step)[-16:]
        state = state._replace(scale=scale, settled=settled, num_calm=calm, falls=recent)
        low, again = scale < self.least, searched and fell and len(recent) >= self.falls
        if not (low or again):
            return state, ()
        bad = low or scale <= 0.01 * settled
        severity = Severity.CRITICAL if scale < 1e-3 * self.least else Severity.WARNING if bad else Severity.INFO
        message = f"the loss scale is down to {amount(scale)} after {count(state.num_skipped, 'skipped step')}"
        message += f"; it fell {len(recent)} times within {self.window} steps" if again else ""
        expected = settled if math.isfinite(settled) else 65536.0
        fallen = Evidence(tag="amp/scale", step=view.step, value=scale, expected=expected)
        return state, (Sighting(severity, message, evidence=(fallen,), since=recent[0] if recent else None),)
