"""LOS012 loss-swells."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import amount, share
from sonde.rules.rule import Cause, Claims, For, Look, Severity, Sighting, When
from sonde.signals.medians import middle

_MEMORY = 33
_TROUGH = 8
_LEAST_LOSSES = 16


class LossSwellsState(NamedTuple):
    """The last losses and gradient norms, the lowest loss, and the swells so far."""

    losses: tuple[float, ...] = ()
    norms: tuple[float, ...] = ()
    low: float = float("inf")
    """The lowest median of three losses in a row."""
    is_up: bool = False
    """Whether the last swell has not come down yet."""
    swells: tuple[int, ...] = ()
    large_step: int = -1
    """When the optimiser last changed the weights by more than a tenth."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LossSwells:
    """Loss and gradient rise together over several steps, undo most of what was learned, and do so again.

    What it detects:
        - A swell: the loss rises for two steps or more until it has lost more than `share` of what it had gained since
          its start, and by more than `deviations` deviations of the noise between neighbouring losses. The gradient
          norm has grown for two steps or more as well, to twice its size three steps before. A swell ends when no more
          than a third of the gain is missing.
        - The first swell is information.
        - Another one within `span` steps is a warning if a step in that time has changed the weights by more than
          `ratio` of their norm, or if steps, weights or gradients have otherwise changed abruptly.

    Why it matters:
        The spike of one bad batch jumps. A swell comes from the training itself: the learning rate is too high for the
        curvature, and the weights fly outward until they land in a flatter place. They may also not land: such runs end
        in infinity within a few steps, without any other warning.

    Evidence:
        `loss` against its lowest value and its start; `grad/norm`, which grows with it.

    What to do:
        Divide the learning rate by 3 to 10, or clip the gradient norm at its usual value. Give predicted variances and
        scales a lower bound: if they shrink, the curvature grows without bound.

    When it is wrong:
        - High learning rates on purpose have a swell or two in their first steps, most often one.
        - Losses of players of a game are not judged.

    References:
        Lewkowycz et al., The large learning rate phase of deep learning: the catapult mechanism, 2020. Cohen et al.,
        Gradient descent on neural networks typically occurs at the edge of stability, ICLR 2021.
    """

    code: ClassVar[str] = "LOS012"
    name: ClassVar[str] = "loss-swells"
    needs: ClassVar[tuple[str, ...]] = ("loss",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.LR_TOO_HIGH: For("loss and gradient rise together, again and again", when=When.ALARM),
        Cause.DATA_NOT_SHUFFLED: For("each class is unlearned by the next one"),
    }
    quiet_steps: ClassVar[int] = 100
    guide: ClassVar[str] = "loss-spike"

    share: float = 0.5
    deviations: float = 10.0
    span: int = 64
    ratio: float = 0.1

    def init(self) -> LossSwellsState:
        """Before the first step."""
        return LossSwellsState()

    def step(self, state: LossSwellsState, look: Look) -> tuple[LossSwellsState, Sequence[Sighting]]:
        """Look at one more loss and gradient norm."""
        run = look.run
        loss = run.loss
        if not math.isfinite(loss) or not run.is_alone:
            return state, ()
        norms = (*state.norms, run.grad_norm)[-4:]
        gain, back = run.loss_start - state.low, loss - state.low
        is_up, swells = state.is_up and back > 0.35 * gain, state.swells
        begins = not is_up and run.num_losses >= _LEAST_LOSSES and self._swells(state.losses, norms, look, gain)
        if begins:
            is_up, swells = True, (*swells, run.step)[-8:]
        losses = (*state.losses, loss)[-_MEMORY:]
        low = min(state.low, middle(losses[-3:])) if len(losses) >= 3 else state.low
        large_step = run.step if look.view.value("update/ratio") > self.ratio else state.large_step
        state = LossSwellsState(losses, norms, low, is_up, swells, large_step)
        if not begins:
            return state, ()
        recent = [step for step in swells if run.step - step <= self.span]
        message = (
            f"the loss rose from {amount(low)} to {amount(loss)} together with the gradient, which undoes "
            f"{share(back / gain)} of the gain since the start ({amount(run.loss_start)})"
        )
        if len(recent) > 1:
            message += f"; it has happened {len(recent)} times in {run.step - recent[0]} steps"
        evidence = look.evidence("loss", loss, low), look.evidence("grad/norm", run.grad_norm, norms[0])
        # Batches that become harder and easier in turns make swells as well, but no large steps.
        is_thrown = run.is_upset or (large_step >= 0 and run.step - large_step <= self.span)
        severity = Severity.WARNING if len(recent) > 1 and is_thrown else Severity.INFO
        return state, (Sighting(severity, message, evidence=evidence, since=recent[0]),)

    def _swells(self, before: tuple[float, ...], norms: tuple[float, ...], look: Look, gain: float) -> bool:
        loss = look.run.loss
        if len(norms) < 4 or not loss > before[-1] > before[-2]:
            return False
        # A single batch may multiply the norm, but only at its own step.
        if not (norms[3] > norms[2] > norms[1] and norms[2] > 1.2 * norms[0] and norms[3] >= 2 * norms[0]):
            return False
        noise = 1.0483 * middle([abs(b - a) for a, b in itertools.pairwise(before)])  # for normal losses
        least = self.deviations * noise
        rise = loss - min(before[-_TROUGH:])
        # What was gained must be something: of a loss above zero, a fifth.
        is_gain = gain > max(least, 0.2 * abs(look.run.loss_start))
        given_back = look.run.loss_start - loss < (1 - self.share) * gain
        return is_gain and given_back and rise > max(least, 0.6 * self.share * gain)
