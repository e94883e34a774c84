"""Whole models: modules that a script calls itself, not through another module."""

import weakref
from collections import Counter
from typing import Any, Protocol, final

import torch
from torch import Tensor, nn
from torch.nn.modules import module as nn_module

from sonde.integrations.listening import Listening
from sonde.probes.hooks import Hook, first_tensor, take_off

_ENOUGH_CALLS = 20  # of a model that gave no single number, which would be its loss
_MOST_ROOTS = 256


class Listener(Protocol):
    """Who is told about calls of whole models."""

    @property
    def is_differentiating(self) -> bool:
        """Whether `backward` is under way: what is called then is not called by the script."""

    def before_model(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """One that is followed is about to be called."""

    def gave_loss(self, module: nn.Module, args: Any, kwargs: Any, loss: Tensor) -> None:
        """One gave a single number."""


@final
class Roots:
    """Follows all modules until `stop_following`, then those that it is told to `follow`.

    Args:
        listening: Through which the hooks are called.
        listener: Told what they see.
    """

    def __init__(self, listening: Listening, listener: Listener) -> None:
        self._listening, self._listener = listening, listener
        self._depth = 0
        """Of modules that call each other, while all are followed."""
        self._called: dict[int, weakref.ref[nn.Module]] = {}
        self._followed: dict[int, weakref.ref[nn.Module]] = {}
        self._handles: list[Any] = []
        """Of hooks on modules, to take them off by …"""
        self._after_hooks: dict[int, Any] = {}
        """… some of them by the `id` of their module."""
        self._num_without_loss: Counter[int] = Counter()
        """By the `id` of a model: how often it gave no single number."""
        guarded = listening.guarded
        # Until the models are known. Afterwards only they have a hook: these cost every module some microseconds.
        self._on_all: list[Any] = [
            nn_module.register_module_forward_pre_hook(guarded(self._entered)),
            nn_module.register_module_forward_hook(guarded(self._left), always_call=True),
        ]

    def __contains__(self, thing: Any) -> bool:
        return id(thing) in self._followed

    @property
    def called(self) -> list[nn.Module]:
        """Those that were called with gradients while all were followed, in the order of their first calls."""
        return [module for ref in self._called.values() if (module := ref()) is not None]

    def _entered(self, module: nn.Module, _args: Any) -> None:
        self._depth += 1
        is_new = self._depth == 1 and len(self._called) < _MOST_ROOTS
        if is_new and not self._listener.is_differentiating and torch.is_grad_enabled():
            self._called.setdefault(id(module), weakref.ref(module))

    def _left(self, module: nn.Module, args: Any, output: Any) -> None:
        self._depth = max(self._depth - 1, 0)
        if self._depth == 0:
            self._after(module, args, {}, output)  # torch keeps a trace of a hook on all modules that takes keywords

    def stop_following(self) -> None:
        """Follow no longer all of them."""
        for handle in self._on_all:
            handle.remove()
        self._on_all = []
        self._depth = 0

    def follow(self, module: nn.Module) -> None:
        """Hear when this one is called. A hook of ours is a no-op in copies, files and compiled regions."""
        if getattr(module, "_compiled_call_impl", None) is not None or isinstance(module, torch.jit.ScriptModule):
            return
        self._followed[id(module)] = weakref.ref(module)
        guarded = self._listening.guarded
        before, after = Hook(guarded(self._listener.before_model)), Hook(guarded(self._after))
        self._after_hooks[id(module)] = module.register_forward_hook(after, with_kwargs=True)
        self._handles += [module.register_forward_pre_hook(before, with_kwargs=True), self._after_hooks[id(module)]]

    def _after(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if self._listener.is_differentiating:
            return
        loss = first_tensor(output, lambda t: t.is_floating_point() and t.numel() == 1)
        if loss is not None:
            self._listener.gave_loss(module, args, kwargs, loss)
        elif id(module) in self._after_hooks:
            self._num_without_loss[id(module)] += 1
            if self._num_without_loss[id(module)] == _ENOUGH_CALLS:
                self._after_hooks.pop(id(module)).remove()

    def scripted(self, module: nn.Module) -> None:
        """It is about to be scripted: hooks would be scripted along."""
        take_off(module.modules())
        self._followed = {key: ref for key, ref in self._followed.items() if ref() is not module}

    def forget(self) -> None:
        """The models of another training follow. Hooks on those of this one stay until `stop`."""
        self._followed = {}

    def stop(self) -> None:
        """Take all hooks away."""
        self.stop_following()
        for handle in self._handles:
            handle.remove()
        self._handles = []


def label(module: nn.Module) -> str:
    """What a module that gives the loss is called among the sources of losses."""
    return f"module:{type(module).__name__}"
