"""A training loop with preflight at work, as the monitor drives it."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from sonde.probes.events import Events
from sonde.probes.preflight import Preflight
from sonde.probes.seams import CLIP_BY_NORM, SCALER_STEP


class Loop:
    """Arms preflight around each iteration, and keeps what it says, by check.

    Args:
        model: One, or several by name.
        optimizer: Likewise.
    """

    def __init__(
        self,
        model: nn.Module | Mapping[str, nn.Module],
        optimizer: Optimizer | Mapping[str, Optimizer],
        **settings: Any,
    ) -> None:
        models = model if isinstance(model, Mapping) else {"": model}
        optimizers = optimizer if isinstance(optimizer, Mapping) else {"": optimizer}
        self.facts: dict[str, list[dict[str, Any]]] = {}
        self.said_at: dict[str, int] = {}
        self.step = 0
        self.preflight = Preflight(models, optimizers, self._say, **settings)
        self.events = events = Events(_fail)
        self.preflight.listen(events)
        self._undo: list[Callable[[], None]] = [
            CLIP_BY_NORM.listen(lambda clip: events.tell(events.clip, clip)),
            SCALER_STEP.listen(lambda event: events.tell(events.scaler_step, event)),
        ]
        for one in optimizers.values():
            enters = one.register_step_pre_hook(lambda o, *_: events.tell(events.optimizer_enters, o))
            left = one.register_step_post_hook(lambda o, *_: events.tell(events.optimizer_left, o))
            self._undo += [enters.remove, left.remove]
        self.preflight.arm()

    def _say(self, check: str, fact: Mapping[str, Any]) -> None:
        self.facts.setdefault(check, []).append(dict(fact))
        self.said_at.setdefault(check, self.step)

    def batch(self, x: Any, y: Any) -> None:
        """A batch is about to be used."""
        self.events.tell(self.events.batch, x, y)

    def close_step(self, loss: Any = None, *, over: bool = True) -> None:
        """What `watch.step` does; `over` is whether the optimiser made its step."""
        self.events.tell(self.events.loss, loss)
        if over:
            self.step += 1
            for reading in self.preflight.collect():
                numbers = torch.cat([torch.empty(0, dtype=torch.float64), *(_vector(t) for t in reading.tensors)])
                assert not list(reading.report(numbers.numpy()))
            self.preflight.arm()

    def close(self) -> None:
        """Take everything away."""
        for undo in self._undo:
            undo()
        self.preflight.close()

    def checks(self) -> set[str]:
        """The checks that had something to say, without those that only describe."""
        return set(self.facts) - {"input-scale", "labels", "loss-kind", "frozen-parameter"}


def _vector(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().double().reshape(-1)


def _fail(error: Exception) -> None:
    raise error
