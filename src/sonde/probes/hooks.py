"""What listens to the modules and tensors of a training for an iteration, and where nothing may listen."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn

from sonde.probes.calls import CALLS, After, Before
from sonde.probes.seams import Seam
from sonde.probes.stopwatch import Stopwatch


@final
class Hook:
    """A function as a hook of a tensor.

    Calling it calls the function and gives None, so that no output and no gradient is ever replaced. Where it is called
    inside a region that is being compiled or traced, it does nothing and leaves nothing in the graph. Torch copies and
    saves tensors without their hooks.

    Args:
        function: Called with whatever torch gives; what it returns is dropped.

    Example:
        >>> seen = []
        >>> hook = Hook(seen.append)
        >>> hook(1)
        >>> hook.drop()
        >>> hook(2)
        >>> seen
        [1]
    """

    __torch_unserializable__ = True  # torch warns of hooks that it does not save, unless they say that it may

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function: Callable[..., Any] = function

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        if not torch.compiler.is_compiling() and not torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
            self._function(*args, **kwargs)

    def drop(self) -> None:
        """Let go of the function: whoever still holds the hook (a graph, a frame) holds nothing of ours."""
        self._function = lambda *_args, **_kwargs: None


@final
class Hooks:
    """What listens in one iteration, attached piece by piece and taken away together.

    On modules nothing is registered (see `Calls`).

    A function that fails must not fail in the middle of a forward or backward pass: the first exception is kept, no
    function of this set is called any more, and `release` raises it where the monitor listens.

    Args:
        clock: Runs while a function is called.
    """

    def __init__(self, clock: Stopwatch | None = None) -> None:
        self._attached: list[tuple[Hook, Callable[[], None]]] = []
        self._failure: Exception | None = None
        self._clock = clock or Stopwatch()

    def before(self, module: nn.Module, function: Before) -> None:
        """Call `function(module, args, kwargs)` before each call of the module."""
        self._attach(function, partial(CALLS.before, module))

    def after(self, module: nn.Module, function: Callable[[nn.Module, Any, Any], None]) -> None:
        """Call `function(module, args, output)` after each call of the module."""
        self._attach(lambda module, args, _kwargs, output: function(module, args, output), partial(CALLS.after, module))

    def after_all(self, function: After) -> None:
        """Call `function(module, args, kwargs, output)` after each call of any module."""
        self._attach(function, CALLS.after_all)

    def on_gradient(self, tensor: Tensor, function: Callable[[Tensor], None]) -> None:
        """Call `function(gradient)` when the gradient of a tensor that requires one is known.

        It is the whole one, over all ways in which the tensor is used, and of the values that the tensor has now: a
        change in place afterwards leaves the hook with what was before. Of views this is not true: see `Gains`.
        """
        self._attach(function, lambda hook: tensor.register_hook(hook).remove)  # type: ignore[no-untyped-call]

    def listen(self, seam: Seam, function: Callable[[Any], None]) -> None:
        """Call `function(event)` for all that a seam of torch tells."""
        self._attach(function, seam.listen)

    @property
    def is_idle(self) -> bool:
        """Whether `release` has nothing to do."""
        return not self._attached and self._failure is None

    def release(self) -> None:
        """Take everything away.

        Raises:
            Exception: what a function raised, if one did.
        """
        for hook, leave in self._attached:
            leave()
            hook.drop()
        self._attached.clear()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _attach(self, function: Callable[..., None], register: Callable[[Hook], Callable[[], None]]) -> None:
        def call(*args: Any, **kwargs: Any) -> None:
            if self._failure is None:
                try:
                    with self._clock:
                        function(*args, **kwargs)
                except Exception as failure:  # whatever it is: the training goes on, and `release` says it
                    self._failure = failure

        hook = Hook(call)
        self._attached.append((hook, register(hook)))


def is_compiled(module: nn.Module) -> bool:
    """Whether a module begins a compiled region: `torch.compile` wrapped it, its `compile()` was called, or scripted.

    A hook added inside after compilation is never called, one added before would be compiled along. What lies in a
    compiled *function* cannot be told from outside.

    Example:
        >>> net = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
        >>> net[0].compile(backend="eager")
        >>> [any(map(is_compiled, lineages([net])[id(module)])) for module in net]
        [True, False]
    """
    # By its name: whoever compiles has imported `torch._dynamo`, and importing it here would cost all others a second.
    return (
        type(module).__name__ == "OptimizedModule"
        or getattr(module, "_compiled_call_impl", None) is not None
        or isinstance(module, torch.jit.ScriptModule)
    )


def lineages(models: Iterable[nn.Module]) -> dict[int, tuple[nn.Module, ...]]:
    """Every module, by its `id`, with all that it lies in: where to look for `is_compiled` without walking a model.

    Example:
        >>> net = nn.Sequential(nn.Sequential(nn.ReLU()))
        >>> [type(module).__name__ for module in lineages([net])[id(net[0][0])]]
        ['ReLU', 'Sequential', 'Sequential']
    """
    found: dict[int, dict[int, nn.Module]] = {}
    waiting: list[tuple[nn.Module, dict[int, nn.Module]]] = [(model, {}) for model in models]
    while waiting:
        module, above = waiting.pop()
        own = found.setdefault(id(module), {id(module): module})
        if own.keys() >= above.keys() and len(own) > 1:
            continue  # it stands in two places of one parent
        own.update(above)
        waiting.extend((child, own) for child in module.children())
    return {key: tuple(own.values()) for key, own in found.items()}


def first_tensor(value: Any, wanted: Callable[[Tensor], bool] = Tensor.is_floating_point) -> Tensor | None:
    """The first tensor of floating-point numbers in what a module gets or gives; None where there is none.

    Tuples, lists, mappings (those of Hugging Face included) and dataclasses are looked into, in their order.

    Example:
        >>> first_tensor({"ids": torch.tensor([1]), "hidden": (torch.ones(2), torch.zeros(2))})
        tensor([1., 1.])
    """
    if isinstance(value, Tensor):
        return value if wanted(value) else None
    if isinstance(value, Mapping):
        value = value.values()
    elif dataclasses.is_dataclass(value):
        value = [getattr(value, field.name) for field in dataclasses.fields(value)]
    elif not isinstance(value, tuple | list):
        return None
    return next((found for part in value if (found := first_tensor(part, wanted)) is not None), None)


def readable(tensor: Tensor) -> bool:
    """Whether a tensor's values can be read at this moment, by launching something, without harm.

    Not so of types with a life of their own (distributed, nested, inside `torch.func`), of those without values, and
    while a CUDA graph is captured: what is launched then would become part of it.
    """
    return (
        type(tensor) in (Tensor, nn.Parameter)
        and tensor.dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64)
        and tensor.layout is torch.strided
        and not tensor.is_meta
        and tensor.numel() > 0
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        and not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())
    )
