"""GRD002 gradient-spike."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import amount
from sonde.rules.rule import Cause, Claims, Evidence, For, Look, Onset, Severity, Sighting
from sonde.rules.step_view import Layers

_FIRST = 5


class GradientSpikeState(NamedTuple):
    """The last spike, its size and place, the first losses, and for how many the loss has been out of its band."""

    step: int = -1
    norm: float = float("nan")
    usual: float = float("nan")
    where: tuple[str, ...] = ()
    starts: tuple[float, ...] = ()
    num_out: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class GradientSpike:
    """One gradient is far larger than those before it.

    What it detects:
        - The norm before clipping is at least `least` times the median of the last 128 steps, and its logarithm is more
          than `score` robust standard deviations above that median. By itself this is information.
        - It is a warning if the loss then leaves its usual band upwards (by `score` deviations and a fifth of its
          level) within `patience` steps, to above the first losses of the run, and stays there for `lasting` losses.
          The loss recovers from a single bad batch at the next step; and at the edge of stability it jumps too, and
          goes on to fall.
        - The warning needs steps, weights or gradients that have changed abruptly: new data raise loss and gradient as
          well.
        - Parameters are named if at most `most_named` of them make up `share` of the squared norm.

    Why it matters:
        The gradient spikes one to a few steps before the loss does.

    Evidence:
        `grad/norm` against its median of 128 steps; `loss`.

    What to do:
        Look at the batch of that step. Clip the gradient norm at its usual value.

    When it is wrong:
        - Reinforcement learning, tiny batches and rare tokens have heavy-tailed gradients that spike in healthy
          trainings. The finding then stays information.

    References:
        OLMo team, 2 OLMo 2 Furious, 2025. Kumar et al., ZClip, 2025.
    """

    code: ClassVar[str] = "GRD002"
    name: ClassVar[str] = "gradient-spike"
    onset: ClassVar[Onset] = Onset.SUDDEN
    needs: ClassVar[tuple[str, ...]] = ("grad/norm",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.MISSING_CLIPPING: For("the gradient spiked before the loss jumped"),
        Cause.WEIGHT_NORM_JUMP: For(),
        Cause.BAD_BATCH: For("one gradient stands out"),
    }
    quiet_steps: ClassVar[int] = 50
    guide: ClassVar[str] = "loss-spike"

    score: float = 6.0
    least: float = 3.0
    patience: int = 5
    lasting: int = 3
    share: float = 0.9
    most_named: int = 3

    def init(self) -> GradientSpikeState:
        """Before the first step."""
        return GradientSpikeState()

    def step(self, state: GradientSpikeState, look: Look) -> tuple[GradientSpikeState, Sequence[Sighting]]:
        """Look at one more norm."""
        run = look.run
        if len(state.starts) < _FIRST and math.isfinite(run.loss):
            state = state._replace(starts=(*state.starts, run.loss))
        spikes = run.grad_z > self.score and run.grad_norm > self.least * run.grad_median
        if spikes:
            where = self._where(look.view.layers("grad/norm"))
            state = state._replace(step=run.step, norm=run.grad_norm, usual=run.grad_median, where=where)
        if state.step < 0 or (run.step - state.step > self.patience and not state.num_out):
            return state, ()
        rise = run.loss - run.loss_median
        out = run.loss_z > self.score and rise > 0.2 * abs(run.loss_median)
        out = out and run.loss > max(state.starts)
        state = state._replace(num_out=state.num_out + 1 if out else 0)
        followed = state.num_out >= self.lasting
        if not (spikes or followed):
            return state, ()
        times = amount(state.norm / state.usual)
        message = f"the gradient norm was {amount(state.norm)}, {times} times its usual value"
        evidence = [Evidence(tag="grad/norm", step=state.step, value=state.norm, expected=state.usual)]
        if followed:
            message += f", and the loss rose from {amount(run.loss_median)} to {amount(run.loss)}"
            evidence.append(look.evidence("loss", run.loss, run.loss_median))
        severity = Severity.WARNING if followed and run.is_upset else Severity.INFO
        where = tuple(state.where)
        return state, (Sighting(severity, message, where=where, evidence=tuple(evidence), since=state.step),)

    def _where(self, norms: Layers | None) -> tuple[str, ...]:
        """The few parameters that make up most of the squared norm of all; none where many do."""
        if norms is None:
            return ()
        squares = norms.values**2
        order = np.argsort(-squares)
        num = 1 + int(np.searchsorted(np.cumsum(squares[order]), self.share * float(squares.sum())))
        return tuple(norms.names[i] for i in order[:num]) if num <= self.most_named else ()
