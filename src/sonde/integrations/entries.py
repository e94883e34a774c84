"""Places inside torch through which every training passes: backward, loaders, losses, modes.

Each is a `Seam`: replaced while anybody listens, its work and result untouched.
"""

import functools
import time
from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple

import torch
import torch.utils.data
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import dataloader

from sonde.probes.seams import Seam

Tell = Callable[[Any], None]


class Scaled(NamedTuple):
    """A gradient scaler has multiplied a loss."""

    loss: Tensor
    scaled: Tensor


class Opened(NamedTuple):
    """A pass over a loader begins."""

    loader: Any
    iterator: Any


class Fetched(NamedTuple):
    """A loader is about to be asked for a batch, or was."""

    iterator: Any
    done: bool
    batch: Any = None
    waited_s: float = 0.0
    worked_s: float = 0.0
    """Of the wait, how long this thread made the batch itself."""
    is_last: bool = False
    """Whether there was none left."""


class LossCall(NamedTuple):
    """A loss function of torch was called."""

    function: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any


def _wrap_scale(original: Callable[..., Any], tell: Tell) -> Callable[..., Any]:
    @functools.wraps(original)
    def scale(self: Any, outputs: Any) -> Any:
        result = original(self, outputs)
        if isinstance(outputs, Tensor) and isinstance(result, Tensor) and result is not outputs:
            tell(Scaled(outputs, result))
        return result

    return scale


def _wrap_iter(original: Callable[..., Any], tell: Tell) -> Callable[..., Any]:
    @functools.wraps(original)
    def begin(self: Any) -> Any:
        iterator = original(self)
        tell(Opened(self, iterator))
        return iterator

    return begin


def _wrap_next(original: Callable[..., Any], tell: Tell) -> Callable[..., Any]:
    @functools.wraps(original)
    def fetch(self: Any) -> Any:
        tell(Fetched(self, done=False))
        began, worked = time.perf_counter(), time.thread_time()
        try:
            batch = original(self)
        except StopIteration:
            tell(Fetched(self, done=True, is_last=True))
            raise
        worked_s, waited_s = time.thread_time() - worked, time.perf_counter() - began
        tell(Fetched(self, done=True, batch=batch, waited_s=waited_s, worked_s=worked_s))
        return batch

    return fetch


def _wrap_loss(original: Callable[..., Any], tell: Tell) -> Callable[..., Any]:
    name, call, is_compiling = original.__name__, LossCall, torch.compiler.is_compiling

    def loss(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if not is_compiling():
            tell(call(name, args, kwargs, result))
        return result

    # `torch.jit.script` reads the source of what is wrapped, and looks for its names where the wrapper's are.
    at_home = FunctionType(loss.__code__, functional.__dict__, name, None, loss.__closure__)
    return functools.wraps(original)(at_home)


def _wrap_train(original: Callable[..., Any], tell: Tell) -> Callable[..., Any]:
    @functools.wraps(original)
    def train(self: nn.Module, mode: bool = True) -> Any:
        result = original(self, mode)
        if not mode and not torch.compiler.is_compiling():  # a trainer may call `train` at every step, of each module
            tell(self)
        return result

    return train


def _wrap_zero_grad(original: Callable[..., Any], tell: Tell) -> Callable[..., Any]:
    @functools.wraps(original)
    def zero_grad(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            tell(self)  # while the gradients are there
        return original(self, *args, **kwargs)

    return zero_grad


def _wrap_made(original: Callable[..., Any], tell: Tell) -> Callable[..., Any]:
    @functools.wraps(original)
    def patch(self: Any) -> Any:
        tell(self)
        return original(self)

    return patch


def _wrap_compiler(original: Callable[..., Any], tell: Tell) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        tell(args[0] if args else None)
        return original(*args, **kwargs)

    return call


_LOSSES = (
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cosine_embedding_loss",
    "cross_entropy",
    "ctc_loss",
    "gaussian_nll_loss",
    "hinge_embedding_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "margin_ranking_loss",
    "mse_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
)

SCALE = Seam(torch.amp.GradScaler, "scale", _wrap_scale)
LOADER_ITER = Seam(torch.utils.data.DataLoader, "__iter__", _wrap_iter)
LOADER_NEXT = Seam(dataloader._BaseDataLoaderIter, "__next__", _wrap_next)
EVAL = Seam(nn.Module, "train", _wrap_train)
"""A module is put into evaluation mode: `eval` calls `train`."""
ZERO_GRADS = (Seam(torch.optim.Optimizer, "zero_grad", _wrap_zero_grad), Seam(nn.Module, "zero_grad", _wrap_zero_grad))
OPTIMIZER_MADE = Seam(torch.optim.Optimizer, "_patch_step_function", _wrap_made)
"""An optimiser is made, copied or unpickled; it has no parameters yet."""
COMPILE = Seam(torch, "compile", _wrap_compiler)
COMPILE_IN_PLACE = Seam(nn.Module, "compile", _wrap_compiler)
LOSSES = tuple(Seam(functional, name, _wrap_loss) for name in _LOSSES if hasattr(functional, name))
"""Modules such as `nn.CrossEntropyLoss` call them by their names in the module."""
