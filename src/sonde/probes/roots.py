"""The watched models seen from outside: their own forwards, for single iterations."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, final

import torch
from torch import nn

from sonde.probes.hooks import Hooks
from sonde.probes.stopwatch import Stopwatch

Before = Callable[[str, tuple[Any, ...], dict[str, Any]], None]
After = Callable[[str, Any], None]

COMPILED = "its model was compiled in place (`model.compile()`), which hides its calls; `torch.compile(model)` does not"
UNSEEN = "no forward of the model itself was seen: a compiled function calls it, or only its parts are called"

# One iteration without a forward may be anything (an extra step of another model).
_ENOUGH = 3


@final
class Roots:
    """Tells of the forwards of whole models while attached, of those only that gradients are wanted for.

    The wrapper that `torch.compile(model)` gives is called like any module, and its hooks run outside the graph. A
    model whose own `compile()` was called is left alone.

    Args:
        models: By name; the empty name where there is only one.
    """

    def __init__(self, models: Mapping[str, nn.Module], clock: Stopwatch | None = None) -> None:
        self._models = dict(models)
        self._hooks = Hooks(clock)
        self._seen = False
        self._num_attached = 0

    def __len__(self) -> int:
        return len(self._models)

    def attach(self, before: Before, after: After = lambda _name, _output: None) -> None:
        """From now on call `before(name, args, kwargs)` and `after(name, output)` around each forward."""
        self._num_attached += 1
        for name, model in self._models.items():
            if not _is_compiled_in_place(model):
                self._hooks.before(model, partial(self._started, name, before))
                self._hooks.after(model, partial(_ended, name, after))

    def release(self) -> None:
        """Take everything away.

        Raises:
            Exception: what one of the functions raised, if one did.
        """
        self._hooks.release()

    def trouble(self) -> dict[str, str]:
        """Why a model's forwards cannot be seen, by the model's name; nothing of those that can.

        Where some models are called, another one that is not may just not have its turn: nothing is said.
        """
        found = {name: COMPILED for name, model in self._models.items() if _is_compiled_in_place(model)}
        if self._num_attached >= _ENOUGH and not self._seen:
            found = dict.fromkeys(self._models, UNSEEN) | found
        return found

    def close(self) -> None:
        """Let go of the models."""
        try:
            self.release()
        finally:
            self._models.clear()

    def _started(self, name: str, before: Before, _model: nn.Module, args: tuple[Any, ...], kwargs: Any) -> None:
        if torch.is_grad_enabled():
            self._seen = True
            before(name, args, kwargs)


def _ended(name: str, after: After, _model: nn.Module, _args: Any, output: Any) -> None:
    if torch.is_grad_enabled():
        after(name, output)


def _is_compiled_in_place(model: nn.Module) -> bool:
    return getattr(model, "_compiled_call_impl", None) is not None
