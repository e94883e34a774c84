"""Whole models: modules that a script calls itself, not through another module."""

import weakref
from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol, final

import torch
from torch import Tensor, nn

from sonde.integrations.listening import Listening
from sonde.probes.calls import CALLS
from sonde.probes.hooks import first_tensor

if TYPE_CHECKING:
    from collections.abc import Callable

_ENOUGH_CALLS = 20  # of a model that gave no single number, which would be its loss
_MOST_ROOTS = 256


class Listener(Protocol):
    """Who is told about calls of whole models."""

    @property
    def is_differentiating(self) -> bool:
        """Whether `backward` is under way: what is called then is not called by the script."""

    def before_any(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """One is about to be called by the script, while all are followed."""

    def before_model(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """One that is followed is about to be called."""

    def gave_loss(self, module: nn.Module, args: Any, kwargs: Any, loss: Tensor) -> None:
        """One gave a single number."""


@final
class Roots:
    """Follows all modules until `stop_following`, then those that it is told to `follow`.

    Args:
        listening: Through which it is told of calls.
        listener: Told what they are.
    """

    def __init__(self, listening: Listening, listener: Listener) -> None:
        self._listening, self._listener = listening, listener
        self._depth = 0
        """Of modules that call each other, while all are followed."""
        self._called: dict[int, weakref.ref[nn.Module]] = {}
        self._followed: dict[int, weakref.ref[nn.Module]] = {}
        self._leave: list[Callable[[], None]] = []
        """What to call to be told no more of modules …"""
        self._leave_after: dict[int, Callable[[], None]] = {}
        """… and of the ends of their calls, by their `id`."""
        self._num_without_loss: Counter[int] = Counter()
        """By the `id` of a model: how often it gave no single number."""
        guarded = listening.guarded
        # Until the models are known. Afterwards it is told of them only: this costs every module some microseconds.
        self._leave_all = CALLS.around_all(guarded(self._entered), guarded(self._left), guarded(self._after_any))

    def __contains__(self, thing: Any) -> bool:
        return id(thing) in self._followed

    @property
    def called(self) -> list[nn.Module]:
        """Those that were called with gradients while all were followed, and those that it was told to follow."""
        return [module for ref in self._called.values() if (module := ref()) is not None]

    def _entered(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        self._depth += 1
        if self._depth > 1 or self._listener.is_differentiating:
            return
        if len(self._called) < _MOST_ROOTS and torch.is_grad_enabled():
            self._called.setdefault(id(module), weakref.ref(module))
        self._listener.before_any(module, args, kwargs)

    def _left(self, _module: nn.Module) -> None:
        self._depth = max(self._depth - 1, 0)

    def _after_any(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if self._depth == 0:
            self._after(module, args, kwargs, output)

    def stop_following(self) -> None:
        """Follow no longer all of them."""
        self._leave_all()
        self._depth = 0

    def follow(self, module: nn.Module) -> None:
        """Hear when this one is called; not so from compiled regions, nor of copies."""
        if getattr(module, "_compiled_call_impl", None) is not None or isinstance(module, torch.jit.ScriptModule):
            return
        self._followed[id(module)] = self._called[id(module)] = weakref.ref(module)
        guarded = self._listening.guarded
        leave_after = self._leave_after[id(module)] = CALLS.after(module, guarded(self._after))
        self._leave += [CALLS.before(module, guarded(self._listener.before_model)), leave_after]

    def _after(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if self._listener.is_differentiating:
            return
        loss = first_tensor(output, lambda t: t.is_floating_point() and t.numel() == 1)
        if loss is not None:
            self._listener.gave_loss(module, args, kwargs, loss)
        elif id(module) in self._leave_after:
            self._num_without_loss[id(module)] += 1
            if self._num_without_loss[id(module)] == _ENOUGH_CALLS:
                self._leave_after.pop(id(module))()

    def forget(self) -> None:
        """The models of another training follow. Of those of this one it is told until `stop`."""
        self._followed = {}

    def stop(self) -> None:
        """Be told of nothing any more."""
        self.stop_following()
        for leave in self._leave:
            leave()
        self._leave = []


def label(module: nn.Module) -> str:
    """What a module that gives the loss is called among the sources of losses."""
    return f"module:{type(module).__name__}"
