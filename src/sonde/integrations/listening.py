"""Being called by torch: at its entries, and around the steps of all optimisers."""

import threading
import time
from collections.abc import Callable
from typing import Any, cast, final

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from sonde.monitor.guard import Guard
from sonde.probes.seams import Seam


@final
class Listening:
    """Listeners whose faults end at a guard, and that are called from no compiled region.

    Args:
        guard: Around each call.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self.thread = 0
        """On which they are called, once it is chosen; 0 for any."""
        self.is_over = False
        """Whether they are called no more, though some may still be in place."""
        self._own_s = 0.0
        self._undo: list[Callable[[], None]] = []
        self._at_steps: tuple[Callable[..., None], Callable[..., None]] | None = None
        self._step_hooks: list[Any] = []
        self._is_compiling = False

    def guarded(self, function: Callable[..., None]) -> Callable[..., None]:
        """The same function as a listener."""
        is_compiling, this_thread, clock = torch.compiler.is_compiling, threading.get_ident, time.perf_counter
        failed = self._guard.failed

        def call(*args: Any) -> None:
            if self.is_over or is_compiling() or (self.thread and self.thread != this_thread()):
                return
            began = clock()
            try:  # the guard's `with` would be two calls more, at each of the events of each step
                function(*args)
            except Exception as error:
                failed(error)
            self._own_s += clock() - began

        return call

    def take_own_s(self) -> float:
        """Seconds that listeners have taken since the last call."""
        own_s, self._own_s = self._own_s, 0.0
        return own_s

    def at(self, listener: Callable[[Any], None], *seams: Seam) -> None:
        """Call a listener with what passes there."""
        for seam in seams:
            self._undo.append(seam.listen(self.guarded(listener)))

    def at_steps(self, before: Callable[..., None], after: Callable[..., None]) -> None:
        """Call these around the steps of all optimisers."""
        self._at_steps = self.guarded(before), self.guarded(after)
        self._hook_steps(lambda function: function)

    def compiles(self) -> None:
        """The script compiles something: listeners are not to be traced into a compiled optimiser step."""
        if not self._is_compiling:
            self._is_compiling = True
            self._hook_steps(cast("Any", torch.compiler.disable))  # importing the compiler takes others a second

    def _hook_steps(self, wrap: Callable[[Any], Any]) -> None:
        for handle in self._step_hooks:
            handle.remove()
        if self._at_steps is not None:
            before, after = self._at_steps
            self._step_hooks = [
                register_optimizer_step_pre_hook(wrap(before)),
                register_optimizer_step_post_hook(wrap(after)),
            ]

    def stop(self) -> None:
        """Take all of them away."""
        self.is_over = True
        for undo in (*self._undo, *(handle.remove for handle in self._step_hooks)):
            undo()
        self._undo, self._step_hooks = [], []
