"""Places inside torch where something passes that no hook shows: backward, clipping, the scaler's step, CUDA graphs.

A seam replaces one function of torch while anybody listens and puts it back with the last listener. The function's work
and result are untouched; a listener that fails is the monitor's problem, not the training's.
"""

import functools
import importlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils import clip_grad
from torch.optim import Optimizer


class Clip(NamedTuple):
    """Gradients are about to be clipped, or were just clipped."""

    parameters: list[Tensor]
    limit: float
    norm: Tensor | None
    """Their norm together before, as torch found it; None where they are clipped by value."""
    done: bool


class Backward(NamedTuple):
    """`backward` is about to begin, or is over."""

    tensors: Any
    gradients: Any
    retained: bool
    done: bool


class Gradient(NamedTuple):
    """Gradients are about to be computed and handed over, not added to `.grad`; or were."""

    outputs: Any
    inputs: Any
    retained: bool
    created: bool
    """Whether they can be differentiated in turn."""
    done: bool


class ScalerStep(NamedTuple):
    """A gradient scaler was asked for a step."""

    optimizer: Optimizer
    scale: Tensor | None
    unscaled_here: bool
    """Whether gradients came scaled: `unscale_` was not called before."""


class Seam:
    """A function of torch that tells its listeners."""

    def __init__(self, owner: Any, name: str, wrap: "Callable[[Callable[..., Any], Seam], Any]") -> None:
        self._owner, self._name, self._wrap = owner, name, wrap
        self._listeners: list[Callable[[Any], None]] = []
        self.attending: list[Callable[[Any], None]] = []
        """Those of them that want to be told now."""
        self._original: Any = None
        self._wrapped: Any = None

    def listen(self, listener: Callable[[Any], None], *, attends: bool = True) -> Callable[[], None]:
        """Be told from now on; what to call to be told no more.

        Args:
            listener: Who is told.
            attends: Whether at once, or only between `attend` and `ignore`, which cost nothing: the function is not
                replaced again, which compiled code would notice.
        """
        if not self._listeners:
            self._original = getattr(self._owner, self._name)
            self._wrapped = self._wrap(self._original, self)
            setattr(self._owner, self._name, self._wrapped)
        self._listeners.append(listener)
        if attends:
            self.attend(listener)
        return functools.partial(self._leave, listener)

    def attend(self, listener: Callable[[Any], None]) -> None:
        """Tell a listener from now on."""
        if listener not in self.attending:
            self.attending.append(listener)

    def ignore(self, listener: Callable[[Any], None]) -> None:
        """Tell a listener nothing for now."""
        if listener in self.attending:
            self.attending.remove(listener)

    def _leave(self, listener: Callable[[Any], None]) -> None:
        self.ignore(listener)
        if listener in self._listeners:
            self._listeners.remove(listener)
            # Where somebody has wrapped ours since, taking it out would take theirs along.
            if not self._listeners and getattr(self._owner, self._name) is self._wrapped:
                setattr(self._owner, self._name, self._original)

    def __call__(self, event: Any) -> None:
        """Tell those that attend."""
        for listener in list(self.attending):
            listener(event)


def _listed(parameters: Iterable[Tensor] | Tensor) -> list[Tensor]:
    return [parameters] if isinstance(parameters, Tensor) else list(parameters)


def _wrap_clip_by_norm(original: Callable[..., Any], seam: Seam) -> Callable[..., Any]:
    @functools.wraps(original)
    def clip(parameters: Any, max_norm: float, total_norm: Tensor, foreach: bool | None = None) -> Any:
        if torch.compiler.is_compiling() or not seam.attending:  # nobody can be told from within a graph
            return original(parameters, max_norm, total_norm, foreach)
        parameters = _listed(parameters)
        seam(Clip(parameters, float(max_norm), total_norm, done=False))
        result = original(parameters, max_norm, total_norm, foreach)
        seam(Clip(parameters, float(max_norm), total_norm, done=True))
        return result

    return clip


def _wrap_clip_by_value(original: Callable[..., Any], seam: Seam) -> Callable[..., Any]:
    @functools.wraps(original)
    def clip(parameters: Any, clip_value: float, foreach: bool | None = None) -> Any:
        if torch.compiler.is_compiling() or not seam.attending:
            return original(parameters, clip_value, foreach)
        parameters = _listed(parameters)
        seam(Clip(parameters, float(clip_value), None, done=False))
        result = original(parameters, clip_value, foreach)
        seam(Clip(parameters, float(clip_value), None, done=True))
        return result

    return clip


def _wrap_span(original: Callable[..., Any], seam: Seam) -> Callable[..., Any]:
    """Tells whether it is over: False before, True after."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or not seam.attending:
            return original(*args, **kwargs)
        seam(False)
        try:
            return original(*args, **kwargs)
        finally:
            seam(True)

    return call


def _wrap_backward(original: Callable[..., Any], seam: Seam) -> Callable[..., Any]:
    @functools.wraps(original)
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or not seam.attending:
            return original(tensors, *args, **kwargs)
        # Positions of `torch.autograd.backward`: gradients, retain_graph, create_graph.
        named = dict(zip(("grad_tensors", "retain_graph", "create_graph"), args, strict=False)) | kwargs
        retained = bool(named.get("retain_graph") or named.get("create_graph"))
        event = Backward(tensors, named.get("grad_tensors"), retained, done=False)
        seam(event)
        try:
            return original(tensors, *args, **kwargs)
        finally:
            seam(event._replace(done=True))

    return backward


def _wrap_grad(original: Callable[..., Any], seam: Seam) -> Callable[..., Any]:
    @functools.wraps(original)
    def grad(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or not seam.attending:
            return original(outputs, inputs, *args, **kwargs)
        # Positions of `torch.autograd.grad`, after the outputs and inputs.
        named = dict(zip(("grad_outputs", "retain_graph", "create_graph"), args, strict=False)) | kwargs
        created = bool(named.get("create_graph"))
        event = Gradient(outputs, inputs, created or bool(named.get("retain_graph")), created, done=False)
        seam(event)
        try:
            return original(outputs, inputs, *args, **kwargs)
        finally:
            seam(event._replace(done=True))

    return grad


def _wrap_scaler_step(original: Callable[..., Any], seam: Seam) -> Callable[..., Any]:
    @functools.wraps(original)
    def step(self: Any, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        state = getattr(self, "_per_optimizer_states", {}).get(id(optimizer), {})
        unscaled_here = getattr(state.get("stage"), "name", "READY") == "READY"
        result = original(self, optimizer, *args, **kwargs)
        if self.is_enabled():
            # The public `get_scale` waits for the device.
            seam(ScalerStep(optimizer, getattr(self, "_scale", None), unscaled_here))
        return result

    return step


def _wrap_make_graphs(original: Callable[..., Any], seam: Seam) -> Callable[..., Any]:
    @functools.wraps(original)
    def make(callables: Any, *args: Any, **kwargs: Any) -> Any:
        seam(callables if isinstance(callables, tuple) else (callables,))
        return original(callables, *args, **kwargs)

    return make


def _wrap_set_frame(original: Callable[..., Any], seam: Seam) -> Callable[..., Any]:
    @functools.wraps(original)
    def set_frame(callback: Any) -> Any:
        if callback is not None:
            seam(True)  # before: what is called once it is set would be compiled
            return original(callback)
        result = original(callback)
        seam(False)
        return result

    return set_frame


@functools.cache
def compiled_code() -> Seam:
    """Tells True where code compiled by `torch.compile` is about to be called, False where it, or a part, is over."""
    # Importing the compiler takes a second, and most who import this have no use for it.
    return Seam(importlib.import_module("torch._dynamo.eval_frame"), "_maybe_set_eval_frame", _wrap_set_frame)


# `clip_grad_norm_` calls the first one by its name in the module, so that it is seen however it was imported. The
# second has no such inside: where it was imported by name before the watching began, it is not seen.
CLIP_BY_NORM = Seam(clip_grad, "_clip_grads_with_norm_", _wrap_clip_by_norm)
CLIP_BY_VALUE = Seam(torch.nn.utils, "clip_grad_value_", _wrap_clip_by_value)
CLIP_TOTAL = Seam(clip_grad, "_get_total_norm", _wrap_span)
"""The norm that a clip by norm begins with."""
COLLECTIVES = tuple(
    Seam(torch.distributed, name, _wrap_span)
    for name in (
        "all_reduce",
        "reduce",
        "broadcast",
        "all_gather",
        "all_gather_into_tensor",
        "reduce_scatter",
        "reduce_scatter_tensor",
        "all_to_all",
        "all_to_all_single",
        "barrier",
    )
    if hasattr(torch.distributed, name)
)
"""As a script calls them. Data-parallel wrappers call what lies below."""
BACKWARD = Seam(torch.autograd, "backward", _wrap_backward)
"""`Tensor.backward` calls it by its name in the module."""
GRAD = Seam(torch.autograd, "grad", _wrap_grad)
SCALER_STEP = Seam(torch.amp.GradScaler, "step", _wrap_scaler_step)
# Where it was imported by name before the watching began, it is not seen.
MAKE_GRAPHS = Seam(torch.cuda, "make_graphed_callables", _wrap_make_graphs)
