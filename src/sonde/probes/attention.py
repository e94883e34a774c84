"""How sharp attention is, and how large its logits have grown."""

import functools
import math
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack, _pop_mode, _push_mode

from sonde.core.frames import MISSING, Columns, Detail
from sonde.core.records import Float64
from sonde.core.tags import clean_name
from sonde.probes.apart import apart
from sonde.probes.blocks import blocks_of
from sonde.probes.calls import CALLS
from sonde.probes.hooks import is_compiled, lineages, readable
from sonde.probes.probe import Reading, Row
from sonde.probes.seams import compiled_code
from sonde.probes.stopwatch import Stopwatch

_MOST_QUERIES = 64
_MOST_ENTRIES = 4
_MOST_HEADS = 256
_MOST_KEYS = 2**25  # numbers of them in float32 at once: 128 MB

# Masks are written as -inf, the smallest float, -1e9 or -1e4, and are added to logits; real logits stay far above.
_SHUT = -5000.0

_PATIENCE = 3  # armed iterations without attention before a slot is no longer listened to

_PRODUCTS = frozenset({"matmul", "__matmul__", "__rmatmul__", "bmm", "baddbmm", "einsum"})
_SOFTMAXES = frozenset({"softmax", "_softmax", "special_softmax", "_safe_softmax"})


class _Place(NamedTuple):
    name: str
    module: nn.Module


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
        self._columns: dict[tuple[str, ...], Columns] = {}
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
                self._attending[slot] = [place for place in self._slots[slot] if place.name in listener.found]
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
        names = tuple(found)
        if names not in self._columns:
            tags = [f"{tag}{name}" for name in names for tag in self.yields]
            self._columns[names] = Columns("attention", tags, Detail.LAYER)
        sizes = [tensor.size(1) for tensor in found.values()]
        return [Reading(list(found.values()), functools.partial(_report, self._columns[names], sizes))]

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
        compiled = {id(place.module): place for place in places if any(map(is_compiled, self._above[id(place.module)]))}
        for key, place in compiled.items():
            if not any(id(module) in compiled and id(module) != key for module in self._above[key]):
                self._compiled.add(place.name)
        return [
            place
            for place in places
            if id(place.module) not in compiled and not any(map(is_compiled, place.module.modules()))
        ]


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
    inside: set[int] = set()
    for block in blocks:
        if places := list(_places(block.name, block.module)):
            yield places
        inside.update(map(id, block.module.modules()))
    # A module around blocks would be listened to through all of them.
    outside: dict[int, _Place] = {}
    for prefix, model in models.items():
        for place in _places(prefix, model):
            if not inside.intersection(map(id, place.module.modules())):
                outside.setdefault(id(place.module), place)
    if outside:
        yield list(outside.values())


def _places(name: str, module: nn.Module) -> Iterator[_Place]:
    for below, inner in module.named_modules():
        if _may_attend(inner):
            yield _Place(clean_name(".".join(filter(None, (name, below)))) or "model", inner)


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
        self._names = {id(place.module): place.name for place in places}
        self._calls: list[nn.Module] = []
        self._thread: int | None = None
        self._products: set[tuple[int, ...]] = set()
        self._heads: int | None = None
        self._aside: int | None = None
        """Where on the stack it was before compiled code began."""
        self._leave = [CALLS.around(place.module, self._before, self._after) for place in places]
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
            above = [_pop_mode() for _ in _get_current_function_mode_stack()[place:]]  # type: ignore[no-untyped-call]
            for mode in (self, *reversed(above)):  # under those that the training has put above it
                _push_mode(mode)  # type: ignore[no-untyped-call]

    def _off_stack(self) -> int | None:
        """Where it was; None where it is not on the stack."""
        stack = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
        if self not in stack:
            return None
        place: int = stack.index(self)
        above = stack[place + 1 :]
        for _ in range(len(above) + 1):
            _pop_mode()  # type: ignore[no-untyped-call]
        for mode in above:
            _push_mode(mode)  # type: ignore[no-untyped-call]
        return place

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if torch.compiler.is_compiling() or not self._is_wanted():
            return func(*args, **kwargs)
        if func is functional.multi_head_attention_forward and set(types) <= {Tensor, nn.Parameter}:
            return self._through(func, args, kwargs)
        name = getattr(func, "__name__", "").partition(".")[0]
        result = func(*args, **kwargs)
        if name == "scaled_dot_product_attention":
            self._take(_of_queries, args, kwargs)
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
                    self.found[self._names[id(self._calls[-1])]] = _statistics(sampled)
        except Exception as failure:  # the training goes on; `collect` says it
            self.failure = failure

    def _of_softmax(self, input: Tensor, dim: int | None = None, *_args: Any, **_kwargs: Any) -> Tensor | None:  # noqa: A002
        if (
            dim not in (-1, input.dim() - 1)
            or input.dim() < 3
            or not (tuple(input.shape[-2:]) in self._products or self._is_called_attention())
        ):
            return None
        heads = self._heads if input.dim() == 3 else None
        scores = _with_heads(input) if heads is None else input.reshape(-1, heads, *input.shape[1:])
        entries, some_heads, queries = _sampled(scores.shape, input.device)
        return scores[entries][..., some_heads, queries, :].flatten(0, -4).float()

    def _is_called_attention(self) -> bool:
        called = (f"{self._names[id(m)].rpartition('.')[2]} {type(m).__name__}".lower() for m in self._calls)
        return any("attn" in words or "attention" in words for words in called)


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


def most_logits(device: torch.device) -> int:
    """How many logits are looked at: on a GPU 32 MB in float32 (and four times that for a moment), on a CPU 10 ms."""
    return 2**23 if device.type == "cuda" else 2**20


def _with_heads(tensor: Tensor) -> Tensor:
    """With a dimension for the batch and one for heads."""
    return tensor[(None,) * max(0, 4 - tensor.dim())]


def _spread(size: int, most: int) -> slice:
    """At most so many of `size` places, evenly spread, the last one among them."""
    stride = -(-size // most)
    return slice((size - 1) % stride, None, stride)


def _sampled(shape: Sequence[int], device: torch.device) -> tuple[slice, slice, slice]:
    """Which entries of the batch, which heads and which queries of (batch, …, heads, queries, keys) are looked at."""
    batch, *others, heads, queries, keys = shape
    num_heads = min(heads, _MOST_HEADS)
    most = most_logits(device) // (math.prod(others) * num_heads * keys)
    entries = min(_MOST_ENTRIES, max(1, most // min(queries, _MOST_QUERIES)))
    rows = min(_MOST_QUERIES, max(1, most // min(batch, entries)))
    return _spread(batch, entries), _spread(heads, num_heads), _spread(queries, rows)


def _of_queries(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """The logits of `scaled_dot_product_attention`, (entries, heads, queries, keys); -inf where a key is shut out."""
    query, key = _with_heads(query), _with_heads(key)
    groups = query.size(-3) // key.size(-3) if enable_gqa else 1
    batch = torch.broadcast_shapes(query.shape[:-3], key.shape[:-3])  # type: ignore[no-untyped-call]
    heads = max(query.size(-3), key.size(-3))
    shape = (*batch, heads, query.size(-2), key.size(-2))
    entries, some_heads, queries = _sampled(shape, query.device)
    if enable_gqa:
        some_heads = slice(None)

    def sample(tensor: Tensor, rows: slice, num_heads: int = heads) -> Tensor:
        whole = tensor.expand(*batch, num_heads, *tensor.shape[-2:])
        return whole[entries][..., some_heads, rows, :].flatten(0, -4)

    keys = sample(key, slice(None), heads // groups)
    rows = sample(query, queries).float() * (query.size(-1) ** -0.5 if scale is None else scale)
    num_entries, num_heads, num_rows, width = rows.shape
    rows = rows.reshape(num_entries, num_heads // groups, groups * num_rows, width)  # by the keys that heads share
    at_once = max(1, _MOST_KEYS // keys[:, 0].numel())
    parts = [
        q @ k.float().mT for q, k in zip(torch.split(rows, at_once, 1), torch.split(keys, at_once, 1), strict=True)
    ]
    logits = (parts[0] if len(parts) == 1 else torch.cat(parts, 1)).reshape(num_entries, num_heads, num_rows, -1)
    if is_causal:
        places = torch.arange(key.size(-2), device=logits.device)
        own = torch.arange(queries.start, query.size(-2), queries.step, device=logits.device)
        logits = logits.masked_fill(places > own[:, None], -torch.inf)
    if attn_mask is not None:
        mask = sample(attn_mask.expand(shape), queries)
        logits = logits.masked_fill(~mask, -torch.inf) if mask.dtype is torch.bool else logits + mask.float()
    return logits


def _statistics(logits: Tensor) -> Tensor:
    """For each head: largest logit, sum of entropies, number of queries, sum of relative entropies, their number."""
    shut = logits <= _SHUT
    logits = logits.masked_fill(shut, -torch.inf)
    keys = logits.size(-1) - shut.sum(-1)
    entropy = torch.special.entr(logits.softmax(-1)).sum(-1)
    sees, several = keys > 0, keys > 1
    of_queries = torch.stack(
        [
            torch.where(sees, entropy, 0.0),
            sees.float(),
            torch.where(several, entropy / keys.log(), 0.0),
            several.float(),
        ]
    )
    return torch.cat([logits.amax((0, 2, 3))[None], of_queries.sum((1, 3))])
