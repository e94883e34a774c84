"""Weights that a script changes itself, after `backward` and before the next forward."""

from collections.abc import Sequence
from operator import attrgetter
from typing import final

import torch
from torch import Tensor

from sonde.core.records import Float64
from sonde.integrations.rates import Change, infer
from sonde.monitor.by_hand import UpdatedByHand
from sonde.probes.apart import apart

_MOST_VALUES = 128  # of a tensor
_ENOUGH_RATES = 20  # updates, after which a rate is tried now and then only where most had none: it takes longer
_VERSION = attrgetter("_version")


def drawn(tensors: Sequence[Tensor]) -> Tensor:
    """Some values of each tensor, evenly spread, in one row; tensors of one type, on one device.

    Example:
        >>> drawn([torch.arange(3.0), torch.arange(1024.0)]).shape
        torch.Size([131])
    """
    return torch.cat([_spread(tensor.detach()) for tensor in tensors])


def _spread(tensor: Tensor) -> Tensor:
    flat = tensor.reshape(-1)
    return flat[:: -(-flat.numel() // _MOST_VALUES)] if flat.numel() > _MOST_VALUES else flat


@final
class HandUpdates:
    """Tells the stand-in of an optimiser when the script has changed the weights, and by which rate.

    Changes are seen by torch's version counters and by where the weights lie. `p.data.add_` changes neither: on a CPU
    values of a few tensors are compared. On a GPU nobody waits for them: where the first update was such a one, an
    update is taken to follow every `backward`, and rates are not known.

    Args:
        optimizer: The stand-in.
        tracked: Some of its parameters, of one type and on one device, whose values tell.
        is_silent: Whether updates change neither versions nor places.
    """

    def __init__(self, optimizer: UpdatedByHand, tracked: Sequence[Tensor], *, is_silent: bool) -> None:
        self.optimizer = optimizer
        self._parameters: list[Tensor] = [p for group in optimizer.param_groups for p in group["params"]]
        self._tracked, self._is_silent = list(tracked), is_silent
        self._on_cpu = self._tracked[0].device.type == "cpu"
        self.is_awaited = False
        """Whether gradients are there that no update was made with yet."""
        self._views: list[Tensor] = []
        """Of the tracked weights, where they lie at present …"""
        self._places: list[int] = []
        """… which is here …"""
        self._is_viewed = False
        """… unless some of them had to be copied."""
        self._marks: object = None
        self._arrivals: object = None
        """What the gradients were when `backward` began …"""
        self._read: object = None
        """… and when they were read."""
        self._before: Tensor | None = None
        self._after: Tensor | None = None
        self._gradient: Tensor | None = None
        self._rate: float | None = None
        self.num_unknown_rates = self.num_rates = 0

    @property
    def why_no_rate(self) -> str:
        """In words that stand behind "weights are updated by hand, "."""
        if self._on_cpu:
            return "and mostly not by the gradients times one number"
        return "and on a GPU their rate would have to be waited for: `update/effective_lr` has it by layer"

    def begins(self) -> None:
        """`backward` begins."""
        self._arrivals = self._gradient_marks()

    def is_touched(self) -> bool:
        """Whether the last `backward` gave the parameters gradients, or added to those they had."""
        return self._arrivals != self._gradient_marks()

    def _gradient_marks(self) -> object:
        gradients = [p.grad for p in self._tracked]
        return [None if gradient is None else (gradient._version, gradient.data_ptr()) for gradient in gradients]

    def differentiated(self) -> None:
        """`backward` is over: what the gradients and the weights are now is what the update begins with."""
        self.await_update()
        self.optimizer.announce()

    def await_update(self) -> None:
        """The same, and the stand-in knows."""
        self.is_awaited = True
        with apart(self._tracked[0].device):
            weights = self._weights()
            self._before = torch.cat(weights) if self._on_cpu else None
        self._marks = self._present_marks()
        self.clipped()

    def clipped(self) -> None:
        """The gradients were changed by torch."""
        if self.is_awaited and self._on_cpu:
            self._read = self._gradient_marks()
            with apart(self._tracked[0].device):
                self._gradient = self._gradients()

    def _weights(self) -> list[Tensor]:
        places = list(map(Tensor.data_ptr, self._tracked))
        if places != self._places or not self._is_viewed:
            self._views, self._places = [_spread(p.detach()) for p in self._tracked], places
            self._is_viewed = all(p.is_contiguous() for p in self._tracked)
        return self._views

    def _gradients(self) -> Tensor | None:
        found = [p.grad for p in self._tracked]
        some = [gradient for gradient in found if gradient is not None and gradient.layout is torch.strided]
        return drawn(some) if len(some) == len(found) else None

    def _present_marks(self) -> object:
        return self._places, list(map(_VERSION, self._parameters))

    def has_come(self) -> bool:
        """Whether the weights have changed since."""
        if not self.is_awaited:
            return False
        with apart(self._tracked[0].device):
            weights = self._weights()
            has_moved = self._marks != self._present_marks()
            if not self._on_cpu:
                return has_moved or self._is_silent
            self._after = torch.cat(weights)
            return has_moved or self._before is None or not torch.equal(self._after, self._before)

    def conclude(self) -> None:
        """The update has come."""
        self.is_awaited = False
        num = self.num_rates + self.num_unknown_rates
        is_hopeless = num >= _ENOUGH_RATES and self.num_unknown_rates > self.num_rates
        changed = self._changed_gradient()
        rate = None if is_hopeless and num % _ENOUGH_RATES else self._infer_rate(changed)
        self.num_rates += rate is not None
        self.num_unknown_rates += rate is None
        with torch.inference_mode(False):  # an evaluation may have begun; what is kept is used outside of it as well
            self.optimizer.conclude(rate=rate, has_new_gradients=changed is not None)

    def _changed_gradient(self) -> Tensor | None:
        """Some values of the gradients, where the script has changed and not cleared them since they were read."""
        if not self._on_cpu or self._read == self._gradient_marks():
            return None
        with apart(self._tracked[0].device):
            now = self._gradients()
            return now if now is not None and bool(now.any()) else None

    def _infer_rate(self, changed: Tensor | None) -> float | None:
        if self._before is None or self._after is None:
            return None
        before, after, epsilon = _plain(self._before), _plain(self._after), torch.finfo(self._before.dtype).eps
        rate = None
        for gradient in (changed, self._gradient):
            if gradient is not None and rate is None:
                rate = infer(Change(before, after, _plain(gradient), epsilon), self._rate)
        self._rate = rate or self._rate
        return rate


def _plain(values: Tensor) -> Float64:
    found: Float64 = values.double().numpy()
    return found
