"""How sharp attention is, and how large its logits have grown."""

import functools
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack, _pop_mode, _push_mode

from sonde.core.frames import MISSING, Columns, Detail
from sonde.core.records import Float64
from sonde.core.tags import clean_name
from sonde.probes import attention_logits
from sonde.probes.apart import apart
from sonde.probes.blocks import blocks_of
from sonde.probes.calls import CALLS
from sonde.probes.hooks import is_compiled, lineages, readable
from sonde.probes.probe import Reading, Row, columns_at
from sonde.probes.seams import compiled_code
from sonde.probes.stopwatch import Stopwatch

_PATIENCE = 3  # armed iterations without attention before a slot is no longer listened to

_PRODUCTS = frozenset({"matmul", "__matmul__", "__rmatmul__", "bmm", "baddbmm", "einsum"})
_SOFTMAXES = frozenset({"softmax", "_softmax", "special_softmax", "_safe_softmax"})


_Place = tuple[str, nn.Module]
"""A module that may attend, and what it is called."""


@final
class Attention:
    """The logits and the entropy of attention, module by module: a probe (see `Probe`), a slot a block.

    Found are `nn.MultiheadAttention`, `scaled_dot_product_attention` however it was imported, and attention written by
    hand: a softmax over the last dimension of scores of at least three dimensions, the last two queries × keys, that a
    product of two activations made, or that stands in a module called attention (`attn`) by its class or attribute.
    Everything is measured on what the softmax is given, z_ij = scale · q_i·k_j + bias_ij, in float32:

    - a key j is open to the query i unless a boolean mask or causality shuts it out or z_ij ≤ -5000 (masks that are
      added);
    - `attn/logit_max` = max z_ij over open keys;
    - H_i = -Σ_j p_ij ln p_ij with p_i = softmax(z_i); `attn/entropy` is its mean over queries and heads,
      `attn/entropy_min` the smallest mean of a head, `attn/entropy_relative` the mean of H_i / ln(number of keys open
      to i) over the queries with at least two. Queries with no open key are left out.

    Sampled are at most 64 queries and 4 entries of the batch, evenly spread and the same for all heads, the last one
    among them; fewer where that would be more than 8 million logits (1 million on a CPU). So the maximum is a lower
    bound, exact where nothing had to be left out. Of scores with three dimensions the first is batch and heads in one:
    each of its entries (256 at most) counts as a head.

    A module is measured in the first of its calls in an iteration that has gradients enabled, and named as the
    innermost module that attends, for example `blocks.3.attn`. A slot is a block, and the last one is all that lies in
    none; which modules attend is learned when a slot is armed first, with a listener around its modules' calls, and
    later only those are hooked. Values that are not finite come through as they are. Not measured: modules in
    compiled regions, kernels that torch does not know (flash-attn, xFormers) and `flex_attention`; and, since listening
    would switch off torch's fast path, `nn.MultiheadAttention` that is frozen and in evaluation mode.

    Args:
        models: By name; a name that is not empty stands before the names of the model's modules.

    Example:
        >>> net, x = nn.MultiheadAttention(4, 2), torch.zeros(3, 1, 4)
        >>> probe = Attention({"": net})
        >>> probe.arm([0])
        >>> _ = net(x, x, x)
        >>> (reading,) = probe.collect()
        >>> (row,) = reading.report(reading.tensors[0].double().flatten().numpy())
        >>> for tag, value in zip(row.columns.tags, row.values, strict=True):
        ...     print(tag, round(float(value), 3))
        attn/logit_max@model 0.0
        attn/entropy@model 1.099
        attn/entropy_min@model 1.099
        attn/entropy_relative@model 1.0

    References:
        Zhai et al., Stabilizing Transformer Training by Preventing Attention Entropy Collapse, ICML 2023.
        Wortsman et al., Small-scale proxies for large-scale Transformer training instabilities, ICLR 2024, section 3.1.
    """

    yields: Mapping[str, str] = {
        "attn/logit_max@": "largest input of the attention's softmax among sampled queries: a lower bound for all",
        "attn/entropy@": "mean entropy of a query's attention over its keys, in nats",
        "attn/entropy_min@": "mean entropy of the head that has the smallest",
        "attn/entropy_relative@": "mean of entropy / log(number of keys open to a query): 1 is uniform, 0 one key",
    }

    def __init__(self, models: Mapping[str, nn.Module], *, clock: Stopwatch | None = None) -> None:
        self._clock = clock or Stopwatch()
        self._slots = list(_slots(models))
        self._attending = list(self._slots)  # what is hooked: of a slot that was heard to attend, the modules that did
        self._above = lineages(models.values())
        self._misses = [0] * len(self._slots)
        self._silent = [0] * len(self._slots)
        self._compiled: set[str] = set()
        self._listeners: dict[int, _Listener] = {}

    @property
    def num_slots(self) -> int:
        return len(self._slots)

    def arm(self, slots: Sequence[int]) -> None:
        for slot in slots:
            if slot not in self._listeners and self._misses[slot] < _PATIENCE:
                self._listeners[slot] = _Listener(self._uncompiled(self._attending[slot]), self._clock)

    def collect(self) -> Sequence[Reading]:
        listeners, self._listeners = self._listeners, {}
        for listener in listeners.values():
            listener.release()
        found: dict[str, Tensor] = {}
        for slot, listener in listeners.items():
            if listener.failure is not None:
                raise listener.failure
            if listener.found:
                self._attending[slot] = [place for place in self._slots[slot] if place[0] in listener.found]
                self._misses[slot] = 0
                found.update(listener.found)
            elif listener.heard:
                self._attending[slot] = self._slots[slot]
                self._misses[slot] += 1
                self._silent[slot] = 0
            else:
                self._silent[slot] += 1
        if not found:
            return []
        columns = columns_at("attention", tuple(self.yields), tuple(found), Detail.LAYER)
        num_heads = [tensor.size(1) for tensor in found.values()]
        return [Reading(list(found.values()), functools.partial(_report, columns, num_heads))]

    def not_measured(self) -> Mapping[str, str]:
        """Reasons by pattern: `attn/*@blocks.0` is for that module and all inside it."""
        reasons = {f"attn/*@{name}": "it lies in a compiled region" for name in sorted(self._compiled)}
        if self._misses and min(self._misses) >= _PATIENCE:
            reasons["attn/*"] = "no attention was seen in the calls of the model's modules"
        elif self._silent and min(self._silent) >= _PATIENCE:
            reasons["attn/*"] = f"no module was called with gradients, {_PATIENCE} times in a row: compiled, perhaps"
        return reasons

    def close(self) -> None:
        for listener in self._listeners.values():
            listener.release()
        self._slots, self._attending, self._above, self._listeners = [], [], {}, {}

    def _uncompiled(self, places: Sequence[_Place]) -> list[_Place]:
        """Those that lie in no compiled region and around none: code is compiled anew where somebody listens."""
        inside = {id(module): name for name, module in places if any(map(is_compiled, self._above[id(module)]))}
        for key, name in inside.items():
            if not any(id(module) in inside and id(module) != key for module in self._above[key]):
                self._compiled.add(name)
        return [p for p in places if id(p[1]) not in inside and not any(map(is_compiled, p[1].modules()))]


def _report(columns: Columns, num_heads: Sequence[int], numbers: Float64) -> Iterator[Row]:
    ends = np.cumsum([5 * heads for heads in num_heads])[:-1]
    yield Row(columns, np.concatenate([_values(part.reshape(5, -1)) for part in np.split(numbers, ends)]))


def _values(heads: Float64) -> Float64:
    top, entropy, queries, relative, several = heads
    if not queries.any():
        return np.full(len(Attention.yields), MISSING, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        smallest = np.min((entropy / queries)[queries > 0])
        ratio = relative.sum() / several.sum() if several.any() else MISSING
    return np.array([top.max(), entropy.sum() / queries.sum(), smallest, ratio])


def _slots(models: Mapping[str, nn.Module]) -> Iterator[list[_Place]]:
    """The modules that may attend: those of each block, then those outside."""
    blocks = [block for block in blocks_of(models) if _may_attend(block.module) or any(block.module.children())]
    for block in blocks:
        if places := list(_places(block.name, block.module)):
            yield places
    # A module around blocks would be listened to through all of them.
    inside = {id(module) for block in blocks for module in block.module.modules()}
    outside: dict[int, _Place] = {}
    for prefix, model in models.items():
        for name, module in _places(prefix, model):
            if inside.isdisjoint(map(id, module.modules())):
                outside.setdefault(id(module), (name, module))
    if outside:
        yield list(outside.values())


def _places(name: str, module: nn.Module) -> Iterator[_Place]:
    for below, inner in module.named_modules():
        if _may_attend(inner):
            yield clean_name(".".join(filter(None, (name, below)))) or "model", inner


def _may_attend(module: nn.Module) -> bool:
    # Of torch's own modules one computes attention; the others call it, or are wrappers.
    return isinstance(module, nn.MultiheadAttention) or not type(module).__module__.startswith("torch.")


@final
class _Listener(TorchFunctionMode):
    """Hooks on the modules of a slot for one iteration, and the attention that was heard in their calls.

    Torch tells it of every function called while it is on the stack of modes, which it is only inside the calls of
    these modules.
    """

    def __init__(self, places: Sequence[_Place], clock: Stopwatch) -> None:
        super().__init__()
        self._clock = clock
        self.found: dict[str, Tensor] = {}
        self.heard = False
        """Whether any call was listened to."""
        self.failure: Exception | None = None
        self._names = {id(module): name for name, module in places}
        self._calls: list[nn.Module] = []
        self._thread: int | None = None
        self._products: set[tuple[int, ...]] = set()
        self._heads: int | None = None
        self._aside: int | None = None
        """Where on the stack it was before compiled code began."""
        self._leave = [CALLS.around(module, self._before, self._after) for _, module in places]
        if places:
            self._leave.append(compiled_code().listen(self._step_aside))

    def release(self) -> None:
        """Hook nothing any more."""
        for leave in self._leave:
            leave()
        self._leave.clear()
        self._names.clear()
        self._calls.clear()
        self._off_stack()  # there still where it is released in the middle of a call

    def _before(self, module: nn.Module, _args: Any, _kwargs: Any) -> None:
        # A mode belongs to a thread, and `DataParallel` runs copies of a module in several.
        if self._thread not in (None, threading.get_ident()) or id(module) not in self._names:
            return
        if not self._calls:
            if not torch.is_grad_enabled() or self._names[id(module)] in self.found or _may_be_fast(module):
                return
            self._thread, self.heard, self._aside = threading.get_ident(), True, None
            self._products.clear()
            _push_mode(self)  # type: ignore[no-untyped-call]
        self._calls.append(module)

    def _after(self, module: nn.Module) -> None:
        if self._calls and self._calls[-1] is module and self._thread == threading.get_ident():
            self._calls.pop()
            if not self._calls:
                self._thread = None
                self._off_stack()

    def _step_aside(self, is_compiled: bool) -> None:
        """Not be on the stack while compiled code runs, which guards on what is there."""
        if not self._calls or self._thread != threading.get_ident():
            return
        if is_compiled:
            self._aside = self._off_stack() if self._aside is None else self._aside
        elif self._aside is not None:
            place, self._aside = self._aside, None
            _restack(place, [self, *_stack()[place:]])  # under those that the training has put above it

    def _off_stack(self) -> int | None:
        """Where it was; None where it is not on the stack."""
        stack = _stack()
        if self not in stack:
            return None
        place = stack.index(self)
        _restack(place, stack[place + 1 :])
        return place

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.compiler.is_compiling() or not self._is_wanted():
            return func(*args, **kwargs)
        if func is functional.multi_head_attention_forward and set(types) <= {Tensor, nn.Parameter}:
            return self._through(func, args, kwargs)
        name = getattr(func, "__name__", "").partition(".")[0]
        result = func(*args, **kwargs)
        if name == "scaled_dot_product_attention":
            self._take(attention_logits.of_queries, args, kwargs)
        elif name in _SOFTMAXES:
            self._take(self._of_softmax, args, kwargs)
        elif name in _PRODUCTS and isinstance(result, Tensor) and _is_of_activations(args):
            self._products.add(tuple(result.shape[-2:]))
        return result

    def _is_wanted(self) -> bool:
        return (
            bool(self._calls)
            and self.failure is None
            and torch.is_grad_enabled()
            and self._names[id(self._calls[-1])] not in self.found
        )

    def _through(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call a function of torch so that what it calls is heard as well.

        It would ask for modes first, and hand the call over to us, for ever; a twin of it is told that there is none.
        """
        names = {**function.__globals__, "has_torch_function": lambda _: False}
        twin = types.FunctionType(function.__code__, names, function.__name__, function.__defaults__)
        twin.__kwdefaults__ = function.__kwdefaults__
        self._heads = kwargs["num_heads"] if "num_heads" in kwargs else args[4]
        _push_mode(self)  # type: ignore[no-untyped-call]
        try:
            return twin(*args, **kwargs)
        finally:
            self._heads = None
            self._off_stack()

    def _take(self, logits: Callable[..., Tensor | None], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Measure one attention of the innermost call, if it is one."""
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        if not tensors or not all(t.dtype is torch.bool or (readable(t) and not t.is_nested) for t in tensors):
            return
        try:
            with self._clock, apart(tensors[0].device):
                sampled = logits(*args, **kwargs)
                if sampled is not None:
                    self.found[self._names[id(self._calls[-1])]] = attention_logits.statistics(sampled)
        except Exception as failure:  # the training goes on; `collect` says it
            self.failure = failure

    def _of_softmax(self, input: Tensor, dim: int | None = None, *_args: Any, **_kwargs: Any) -> Tensor | None:  # noqa: A002
        is_last = dim in (-1, input.dim() - 1) and input.dim() >= 3
        if is_last and (tuple(input.shape[-2:]) in self._products or self._is_called_attention()):
            return attention_logits.of_scores(input, self._heads)
        return None

    def _is_called_attention(self) -> bool:
        called = (f"{self._names[id(m)].rpartition('.')[2]} {type(m).__name__}".lower() for m in self._calls)
        return any("attn" in words or "attention" in words for words in called)


def _stack() -> list[Any]:
    return _get_current_function_mode_stack()  # type: ignore[no-untyped-call, no-any-return]


def _restack(place: int, modes: Sequence[Any]) -> None:
    """Have these modes on the stack from a place of it on, and no others."""
    for _ in _stack()[place:]:
        _pop_mode()  # type: ignore[no-untyped-call]
    for mode in modes:
        _push_mode(mode)  # type: ignore[no-untyped-call]


def _may_be_fast(module: nn.Module) -> bool:
    """Whether torch might use its fused inference path in a call, which it does not where anybody listens."""
    return torch.backends.mha.get_fastpath_enabled() and any(
        isinstance(inner, nn.MultiheadAttention)
        and not inner.training
        and not any(parameter.requires_grad for parameter in inner.parameters())
        for inner in module.modules()
    )


def _is_of_activations(args: Sequence[Any]) -> bool:
    flat = [value for arg in args for value in (arg if isinstance(arg, list | tuple) else (arg,))]
    return sum(isinstance(a, Tensor) and not isinstance(a, nn.Parameter) and a.dim() >= 3 for a in flat) >= 2
