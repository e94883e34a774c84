"""How well the gradient predicts what a step does to the loss of its own batch, where somebody asks for it."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.optim import Optimizer

from sonde.core.frames import MISSING, Columns
from sonde.core.records import Float64
from sonde.probes.calls import CALLS
from sonde.probes.events import Events
from sonde.probes.probe import Reading, Row
from sonde.probes.roots import Roots
from sonde.probes.seams import Clip, ScalerStep
from sonde.probes.stopwatch import Stopwatch
from sonde.probes.untouched import random_states, untouched

_YIELDS = {
    "grad/predicted_change": "change of the batch's loss that the gradient predicts for the step: its product with it",
    "grad/loss_change": "change of the batch's loss that the step made, found by one more forward",
    "grad/predictiveness": "R² of the predictions for the last 64 such steps, from the eighth on",
}
_COLUMNS = Columns("predictiveness", tuple(_YIELDS))
_FEWEST, _MOST = 8, 64


@final
class Predictiveness:
    """Compares gᵀΔθ with L(θ + Δθ) − L(θ) on the batch of the step: a probe (see `Probe`) with one slot.

    g is the gradient before clipping, Δθ what the optimisers really changed, L(θ) the loss that the step was given, and
    L(θ + Δθ) that of one more forward without gradients, with the random numbers of the first and the modules in the
    same mode; buffers and random generators are left as they were. With a the changes that were made and p those that
    were predicted, R² = 1 − Σ(a − p)²/Σ(a − ā)²: 1 where the loss is as good as linear, below 0 where predictions are
    worse than the mean of the changes.

    A step is passed over where g is not the gradient of that loss: after accumulation, with a gradient scaler, with a
    closure, with several processes, with sparse gradients.

    Args:
        models: By name.
    """

    yields = _YIELDS

    def __init__(self, models: Mapping[str, nn.Module], *, clock: Stopwatch | None = None) -> None:
        self._models, self._roots = dict(models), Roots(models, clock)
        self._is_asked = self._armed = False
        self._events: Events | None = None
        """To be listened to closely as soon as it is asked."""
        self._is_made = False
        """Whether the last optimiser that was entered has made its step."""
        self._pairs: deque[tuple[float, float]] = deque(maxlen=_MOST)
        self._reason = ""
        self._reset()

    def _reset(self) -> None:
        self._before: dict[int, tuple[Tensor, Tensor]] = {}
        self._gradients: dict[int, Tensor] = {}
        self._predicted: list[Tensor] = []
        self._stepped: set[int] = set()
        self._losses: list[Any] = []
        self._random: Mapping[Any, Tensor] | None = None
        self._found: Tensor | None = None

    @property
    def num_slots(self) -> int:
        """Nothing is measured before somebody has said how to compute the loss again."""
        return int(self._is_asked)

    def listen(self, events: Events) -> None:
        """Be told how a loss can be computed again; of steps and losses only once somebody has said that."""
        self._events = events
        events.again.append(self._again)

    def _listen_closely(self, events: Events) -> None:
        events.moment.append(self._moment)
        events.clip.append(self._clip)
        events.scaler_step.append(self._scaler_step)
        events.optimizer_enters.append(self._enters)
        events.gradients.append(self._take_gradients)
        events.optimizer_left.append(self._left)
        events.loss.append(self._losses_of)

    def arm(self, slots: Sequence[int]) -> None:
        """Keep what this iteration begins with."""
        self._reset()
        self._armed, self._reason = bool(slots), ""
        if self._armed:
            self._roots.attach(self._forward)

    def collect(self) -> Sequence[Reading]:
        """The two changes."""
        found = self._found
        self._armed = False
        self._reset()
        self._roots.release()
        return [] if found is None else [Reading([found], self._report)]

    def not_measured(self) -> Mapping[str, str]:
        """Where the gradient is not that of the loss."""
        return dict.fromkeys(_YIELDS, self._reason) if self._reason else {}

    def close(self) -> None:
        """Let go of models and tensors."""
        self._armed = False
        self._models.clear()
        self._reset()
        self._roots.close()

    def _forward(self, _name: str, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
        if self._random is None:
            self._random = random_states(self._models.values())

    def _moment(self, moment: str) -> None:
        if moment == "optimizer-done":
            self._is_made = True

    def _clip(self, clip: Clip) -> None:
        if self._armed and not clip.done:
            self._keep(clip.parameters)

    def _scaler_step(self, _event: ScalerStep) -> None:
        self._give_up("gradients are scaled by a gradient scaler")

    def _enters(self, optimizer: Optimizer) -> None:
        self._is_made = False
        if self._armed:
            if id(optimizer) in self._stepped:
                self._give_up("an optimiser makes several steps in an iteration")
            for parameter in _parameters(optimizer):
                self._before[id(parameter)] = parameter, parameter.detach().clone()

    def _take_gradients(self, optimizer: Optimizer) -> None:
        if self._armed:
            self._keep(_parameters(optimizer))
            if self._is_made:
                self._give_up("gradients are computed inside of the optimiser's step")

    def _keep(self, parameters: Iterable[Tensor]) -> None:
        for parameter in parameters:
            gradient = parameter.grad
            if gradient is not None and gradient.layout is not torch.strided:
                self._give_up("a gradient is sparse")
            elif gradient is not None:
                self._gradients.setdefault(id(parameter), gradient.detach().clone())

    @torch.no_grad()
    def _left(self, optimizer: Optimizer) -> None:
        if not self._armed:
            return
        self._stepped.add(id(optimizer))
        for parameter in _parameters(optimizer):
            gradient = self._gradients.pop(id(parameter), None)
            _, before = self._before.pop(id(parameter), (None, None))
            if gradient is not None and before is not None:
                self._predicted.append((gradient.double() * (parameter.detach().double() - before.double())).sum())

    def _losses_of(self, loss: Any) -> None:
        if self._armed:
            self._losses.append(loss)

    @torch.no_grad()
    def _again(self, again: Callable[[], Tensor]) -> None:
        if self._events is not None:
            self._listen_closely(self._events)
            self._events = None
        self._is_asked = True
        if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
            self._give_up("gradients are means over several processes, each with a batch of its own")
        if self._armed and len(self._losses) > 1:
            self._give_up("gradients are accumulated over several batches")
        if not self._armed or not self._predicted or self._losses[-1] is None:
            return
        with untouched(self._models.values(), self._random), CALLS.muted():
            after = again().detach().double()
        before = torch.as_tensor(self._losses[-1], dtype=torch.float64, device=after.device).detach()
        predicted = torch.stack([one.to(after.device) for one in self._predicted]).sum()
        self._found = torch.stack([predicted, after.mean() - before.mean()])

    def _give_up(self, reason: str) -> None:
        if self._armed:
            self._reason, self._armed = reason, False
            self._reset()

    def _report(self, numbers: Float64) -> Iterable[Row]:
        predicted, made = numbers.tolist()
        if np.isfinite(numbers).all():
            self._pairs.append((predicted, made))
        yield Row(_COLUMNS, np.array([predicted, made, r_squared(self._pairs)]))


def r_squared(pairs: Iterable[tuple[float, float]]) -> float:
    """How much of the changes the predictions explain; missing with fewer than 8, or where all changes are equal.

    Example:
        >>> changes = [1.0, -1.0, 2.0, -2.0, 1.0, -1.0, 3.0, -3.0]
        >>> r_squared([(0.5 * change, change) for change in changes])
        0.75
    """
    predicted, made = np.array(list(pairs), np.float64).reshape(-1, 2).T
    spread = np.sum((made - made.mean()) ** 2) if len(made) >= _FEWEST else 0.0
    return float(1 - np.sum((made - predicted) ** 2) / spread) if spread > 0 else float(MISSING)


def _parameters(optimizer: Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
