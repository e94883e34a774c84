"""GRD002 gradient-spike."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.rules.rule import Cause, Claims, Evidence, For, Look, Onset, Severity, Sighting
from sonde.rules.scene import Layers

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
        A norm before clipping whose logarithm is more than `score` robust standard deviations above the median of the
        last 128 steps, and at least `least` times the usual norm. By itself that is information; it is a warning where
        the loss leaves its own band upwards (`score` deviations, a fifth of its level) within `patience` steps, to
        above the first losses of the run, and stays out for `lasting` losses: a single bad batch is over with the next
        one, and at the edge of stability the loss jumps too, and goes on to fall. Steps must have been large since, or
        weights have changed, or the gradient have stayed high (`Picture.is_upset`): new data raise both as well. Where
        at most `most_named` parameters have `share` of the squared norm, they are named.

    Why it matters:
        Spikes of the gradient come before spikes of the loss, by one to a few steps.

    Evidence:
        `grad/norm` against its median of 128 steps; `loss`.

    What to do:
        Look at the batch of that step. Clip at 1, or at 0.7 of the usual norm; let the guard skip such steps.

    When it is wrong:
        Heavy-tailed gradients (reinforcement learning, tiny batches, rare tokens) spike in trainings that go well: then
        it stays information.

    References:
        OLMo team, 2 OLMo 2 Furious, 2025. Kumar et al., ZClip, 2025.
    """

    code: ClassVar[str] = "GRD002"
    name: ClassVar[str] = "gradient-spike"
    onset: ClassVar[Onset] = Onset.SUDDEN
    needs: ClassVar[tuple[str, ...]] = ("grad/norm",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.MISSING_CLIPPING: For("gradient spikes come before the loss jumps"),
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
        picture = look.picture
        if len(state.starts) < _FIRST and math.isfinite(picture.loss):
            state = state._replace(starts=(*state.starts, picture.loss))
        spikes = picture.grad_z > self.score and picture.grad_norm > self.least * picture.grad_median
        if spikes:
            where = self._where(look.scene.layers("grad/norm"))
            state = state._replace(step=picture.step, norm=picture.grad_norm, usual=picture.grad_median, where=where)
        if state.step < 0 or (picture.step - state.step > self.patience and not state.num_out):
            return state, ()
        rise = picture.loss - picture.loss_median
        out = picture.loss_z > self.score and rise > 0.2 * abs(picture.loss_median)
        out = out and picture.loss > max(state.starts)
        state = state._replace(num_out=state.num_out + 1 if out else 0)
        followed = state.num_out >= self.lasting
        if not (spikes or followed):
            return state, ()
        message = f"gradient norm {state.norm:.4g}, {state.norm / state.usual:.3g} times its usual {state.usual:.4g}"
        evidence = [Evidence(tag="grad/norm", step=state.step, value=state.norm, expected=state.usual)]
        if followed:
            message += f", and the loss rose to {picture.loss:.4g} (usually {picture.loss_median:.4g})"
            evidence.append(Evidence(tag="loss", step=picture.step, value=picture.loss, expected=picture.loss_median))
        severity = Severity.WARNING if followed and picture.is_upset else Severity.INFO
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
