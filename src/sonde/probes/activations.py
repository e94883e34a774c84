"""Activations: what every module of a model gives, block by block."""

import functools
import itertools
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor, nn

from sonde.core.frames import MISSING, Columns, Detail
from sonde.core.records import Float64
from sonde.kernels import Column, TensorStats
from sonde.kernels.columns import NUM_COLUMNS, absmax
from sonde.kernels.histograms import NUM_COARSE, PERCENTS
from sonde.kernels.reference import values as flat
from sonde.probes import quantiles
from sonde.probes.activation_functions import activation_function, within
from sonde.probes.apart import apart
from sonde.probes.blocks import Leaf, blocks_of, is_leaf, leaves_outside
from sonde.probes.hooks import Hooks, first_tensor, is_compiled, lineages, readable
from sonde.probes.probe import Reading, Row
from sonde.probes.statistics import STATISTICS
from sonde.probes.stopwatch import Stopwatch

# Armed iterations without a value before it is said: an evaluation or a skipped block may explain one or two.
_PATIENCE = 3
_MOST_SIZES = 64  # for which statistics stay prepared: batches may vary in length
_MOST_HISTOGRAMS = 32  # kept in one iteration, of 257 numbers each; more come together in a burst only

_BASIC = ("mean", "std", "rms", "min", "max", "absmax", "zeros", "nonfinite")
_QUANTILES = tuple(f"p{percent}" for percent in PERCENTS)
_CHANNELS_SECOND = (nn.modules.batchnorm._NormBase, nn.GroupNorm)
_FEATURES_LAST = (nn.Linear, nn.Bilinear, nn.LayerNorm, nn.RMSNorm, nn.RNNBase, nn.MultiheadAttention)


@final
class Activations:
    """Statistics of what modules give: a probe (see `Probe`) with a slot for each block, then for the modules outside.

    Measured are every leaf module and every block: the first tensor of floating-point numbers in what it gives, at its
    first call with gradients in an armed iteration, at once, before anything can change it in place. Not measured are
    modules in compiled regions and those whose numbers are used without calling them.

    Mean, spread and extremes are over the finite values of the batch and all positions; `act/rms` of the blocks against
    their depth is the growth of the residual stream. Percentiles, `act/underflow`, and `act/positive` where there are
    values on both sides of 0, come from a histogram: of tensors from 65,536 values on, of a sample (see
    `sonde.kernels.histograms`). The histogram itself is kept in 257 bins (`act/histogram`), of at most 32 modules in
    an iteration.

    A unit is a channel of what convolutions and batch normalisation give and of tensors with four or more dimensions,
    and a place in the last dimension of everything else; an activation function has the units of the module before it.
    Units are counted of activation functions and of modules with parameters, but not of embeddings. A unit is

    - constant where its smallest value equals its largest; missing where it has only one value;
    - dead where in each of the last `window` armed iterations it gave no value above 0 (activation functions that
      silence what is negative) or nothing but 0 (all other modules). Missing until there were so many iterations, also
      after a resume. NaN is no silence.

    `act/saturated` is the share of values where a bounded activation function is flat, its slope below 2% of the
    steepest: |tanh| ≥ 0.99, sigmoid ≤ 0.005 or ≥ 0.995, |softsign| ≥ 0.86, ELU ≤ −0.98α, the ends of the hard ones. See
    `sonde.probes.activation_functions` for which function is what.

    Args:
        models: By name (see `blocks_of`).
        window: Armed iterations of silence after which a unit is dead; more means fewer dead units.
    """

    yields: Mapping[str, str] = {
        "act/mean@": "mean of a module's output",
        "act/std@": "standard deviation of a module's output",
        "act/rms@": "root mean square of a module's output; of blocks, the size of the residual stream",
        "act/min@": "smallest value of a module's output",
        "act/max@": "largest value of a module's output",
        "act/absmax@": "largest magnitude in a module's output",
        "act/zeros@": "share of exact zeros in a module's output",
        "act/nonfinite@": "number of NaN and infinite values in a module's output",
        **{f"act/p{percent}@": f"value below which {percent}% of a module's output lie" for percent in PERCENTS},
        "act/headroom@": "how often the largest magnitude can double before the number format overflows",
        "act/underflow@": "share of the nonzero values that lie below the smallest normal number of their format",
        "act/positive@": "share of values above 0 in what an activation function gives",
        "act/saturated@": "share of values where a bounded activation function is flat",
        "act/constant@": "share of units (channels, features) that gave one and the same value all over the batch",
        "act/dead@": "share of units (channels, features) that were silent in all of the last iterations looked at",
        "act/histogram@": "counts of the values of a module's output in 257 bins",
    }

    def __init__(self, models: Mapping[str, nn.Module], *, window: int = 8, clock: Stopwatch | None = None) -> None:
        if window < 1:
            raise ValueError(f"`Activations(window=...)` must be at least 1, got {window}.")
        blocks = blocks_of(models)
        above = lineages(models.values())
        slots = [(*block.leaves, Leaf(block.name, block.module)) for block in blocks] + leaves_outside(models, blocks)
        self._slots = [[_Place(leaf, above[id(leaf.module)], window) for leaf in dict.fromkeys(slot)] for slot in slots]
        self._tables: dict[int, Columns] = {}
        self._hooks = Hooks(clock)
        self._eye = _Eye()
        self._armed: list[int] = []
        self._room = _MOST_HISTOGRAMS
        self._reasons: dict[str, str] = {}
        for place in itertools.chain(*self._slots):
            place.is_out_of_reach(self._reasons)

    @property
    def num_slots(self) -> int:
        return len(self._slots)

    def arm(self, slots: Sequence[int]) -> None:
        self._armed = list(slots)
        for slot in self._armed:
            for place in self._slots[slot]:
                if not place.is_out_of_reach(self._reasons):
                    place.begin()
                    self._hooks.after(place.module, functools.partial(self._take, place))

    def collect(self) -> Sequence[Reading]:
        armed, self._armed = self._armed, []
        self._eye.blink()
        self._hooks.release()
        self._room = _MOST_HISTOGRAMS
        return [reading for slot in armed for reading in self._readings(slot)]

    def not_measured(self) -> Mapping[str, str]:
        return dict(self._reasons)

    def close(self) -> None:
        self._slots, self._armed = [], []
        self._eye = _Eye()
        self._hooks.release()

    def _take(self, place: "_Place", _module: nn.Module, _args: Any, output: Any) -> None:
        if place.found is None and torch.is_grad_enabled():
            x = first_tensor(output)
            if x is not None and readable(x):
                with apart(x.device):
                    place.found = self._eye(place, x)
            else:
                place.trouble = "it gives no floating-point numbers that can be read"

    def _readings(self, slot: int) -> Iterable[Reading]:
        if slot not in self._tables:
            tags = [f"act/{name}@{place.name}" for place in self._slots[slot] for name in place.series]
            self._tables[slot] = Columns(f"activations-{slot}", tags, Detail.LAYER)
        by_device: dict[torch.device, list[tuple[int, _Found]]] = {}
        first = 0
        for place in self._slots[slot]:
            found = place.end(self._reasons)
            if found is not None:
                by_device.setdefault(found.rows.device, []).append((first, found))
            first += len(place.series)
        for some in by_device.values():
            histograms = torch.cat([found.histogram for _, found in some])
            tensors = [found.rows for _, found in some]
            tensors += [quantiles.condense(histograms), *(c for _, found in some for c in found.counts)]
            keys = [(first, found.about) for first, found in some]
            yield Reading(tensors, functools.partial(_report, self._tables[slot], keys))
            names = tuple(self._tables[slot].tags[first].partition("@")[2] for first, _ in some[: self._room])
            if names:
                self._room -= len(names)
                yield Reading([quantiles.coarsened(histograms[: len(names)])], functools.partial(_keep, slot, names))


class _About(NamedTuple):
    """What is known of a module's output without looking at its values."""

    series: tuple[str, ...]
    dtype: torch.dtype
    numel: int
    num_units: int
    counted: tuple[str, ...]
    is_infinite: bool
    """Whether it has infinite values and no NaN, where that is known (on a CPU)."""


class _Found(NamedTuple):
    """What was seen of a module's output: statistics, histogram, and some counts."""

    about: _About
    rows: Tensor
    histogram: Tensor
    counts: list[Tensor]


@final
class _Place:
    """A module that is watched, with the memory of its units."""

    def __init__(self, leaf: Leaf, above: tuple[nn.Module, ...], window: int) -> None:
        self.name, self.module, self._above = leaf.name, leaf.module, above
        self.function = activation_function(leaf.module)
        self.has_units = self.function is not None or (
            is_leaf(leaf.module)
            and next(leaf.module.parameters(), None) is not None
            and not isinstance(leaf.module, nn.Embedding | nn.EmbeddingBag)
        )
        self.flat = self.function.flat(leaf.module) if self.function and self.function.flat else None
        self.series = (
            *_BASIC,
            *_QUANTILES,
            "headroom",
            "underflow",
            *(("positive",) if self.function and self.function.rectifies else ()),
            *(("saturated",) if self.flat else ()),
            *(("constant", "dead") if self.has_units else ()),
        )
        self.found: _Found | None = None
        self.trouble = ""
        self._window = window
        self._silent_for: Tensor | None = None
        self._num_looks = self._misses = 0

    def is_out_of_reach(self, reasons: dict[str, str]) -> bool:
        """Whether no hook of the module is called, which it then notes in `reasons`; it may be compiled at any time."""
        compiled = any(map(is_compiled, self._above))
        if compiled:
            reasons[f"act/*@{self.name}"] = "it lies in a compiled region, where no hook is called"
        return compiled

    def begin(self) -> None:
        self.found, self.trouble = None, "it was not called with gradients"

    def end(self, reasons: dict[str, str]) -> _Found | None:
        """What was found; notes in `reasons` where nothing ever is."""
        found, self.found = self.found, None
        tag = f"act/*@{self.name}"
        if found is not None:
            self._misses = 0
            reasons.pop(tag, None)
        elif self.trouble:
            self._misses += 1
            if self._misses >= _PATIENCE:
                reasons[tag] = f"{self.trouble}, {_PATIENCE} times in a row"
        self.trouble = ""
        return found

    def num_dead(self, largest: Tensor, smallest: Tensor) -> Tensor | None:
        """How many units were silent `window` times in a row, this time included; None before there were so many."""
        if self.function is not None and self.function.silences:
            silent = largest <= 0
        else:
            silent = (largest == 0) & (smallest == 0)
        age = self._silent_for
        if age is None or age.shape != silent.shape or age.device != silent.device:
            age, self._num_looks = torch.zeros_like(silent, dtype=torch.int32), 0
        self._silent_for = (age + 1) * silent
        self._num_looks += 1
        return (self._silent_for >= self._window).sum() if self._num_looks >= self._window else None


@final
class _Eye:
    """Looks at tensors, each once, even where several modules give the same one."""

    def __init__(self) -> None:
        self._stats: OrderedDict[Any, TensorStats] = OrderedDict()
        self._last: tuple[weakref.ref[Tensor], int | None, Tensor, Tensor] | None = None
        self._unit_dims: dict[torch.Size, int] = {}

    def blink(self) -> None:
        """Forget the last tensor; what was prepared stays."""
        self._last = None
        self._unit_dims.clear()

    def __call__(self, place: _Place, x: Tensor) -> _Found:
        rows, histogram = self._statistics(x)
        x = x.detach()
        counts: dict[str, Tensor] = {}
        num_units = 0
        if place.flat is not None:
            low, high = within(place.flat, x.dtype)
            counts["saturated"] = ((x <= low) | (x >= high)).sum()
        if place.has_units and x.dim() >= 2:
            unit_dim = self._unit_dim(place.module, x)
            num_units = x.shape[unit_dim]
            others = [dim for dim in range(x.dim()) if dim != unit_dim]
            largest, smallest = x.amax(others), x.amin(others)
            if x.numel() > num_units:
                counts["constant"] = (largest == smallest).sum()
            if (dead := place.num_dead(largest, smallest)) is not None:
                counts["dead"] = dead
        # Asked rarely, and only where the answer is at hand.
        is_infinite = rows.is_cpu and float(rows[0, Column.NONFINITE]) > 0 and not bool(x.isnan().any())
        about = _About(place.series, x.dtype, x.numel(), num_units, tuple(counts), is_infinite)
        return _Found(about, rows, histogram, list(counts.values()))

    def _statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        version = None if x.is_inference() else x._version  # of inference tensors changes are not counted
        if self._last is not None and version is not None:
            last, last_version, rows, histogram = self._last
            if last() is x and version == last_version:
                return rows, histogram
        values = flat(x)
        # Objects belong to one stream; those for the same number of values are shared, however they are arranged.
        stream = torch.cuda.current_stream(x.device).cuda_stream if x.is_cuda else None
        key = x.numel(), x.dtype, x.device, stream
        stats = self._stats.pop(key, None) or TensorStats([values])
        self._stats[key] = stats
        if len(self._stats) > _MOST_SIZES:
            self._stats.popitem(last=False)
        found = stats([values], histogram=True)
        assert found.histogram is not None
        self._last = weakref.ref(x), version, found.rows, found.histogram
        return found.rows, found.histogram

    def _unit_dim(self, module: nn.Module, x: Tensor) -> int:
        if isinstance(module, nn.modules.conv._ConvNd):
            dim = x.dim() - 1 - len(module.kernel_size)
        elif isinstance(module, _CHANNELS_SECOND):
            dim = 1
        elif isinstance(module, _FEATURES_LAST):
            dim = x.dim() - 1
        else:
            return self._unit_dims.get(x.shape, 1 if x.dim() >= 4 else x.dim() - 1)
        self._unit_dims[x.shape] = dim
        return dim


def _report(columns: Columns, keys: Sequence[tuple[int, _About]], numbers: Float64) -> Iterable[Row]:
    num = len(keys)
    rows, numbers = numbers[: num * NUM_COLUMNS].reshape(num, NUM_COLUMNS), numbers[num * NUM_COLUMNS :]
    shapes = quantiles.Shapes(numbers[: num * quantiles.SIZE].reshape(num, quantiles.SIZE))
    counts = iter(numbers[num * quantiles.SIZE :])
    with np.errstate(all="ignore"):
        series = {name: STATISTICS[name](rows) for name in _BASIC}
        series |= zip(_QUANTILES, shapes.percentiles(rows).T, strict=True)
        dtypes = [about.dtype for _, about in keys]
        limits = np.array([torch.finfo(dtype).max for dtype in dtypes])
        series["headroom"] = np.where(absmax(rows) > 0, np.log2(limits / absmax(rows)), MISSING)
        series["underflow"] = _or_missing(shapes.underflow(dtypes))
        series["positive"] = _positive(rows, shapes)
        series["rms"] = np.where([about.is_infinite for _, about in keys], np.inf, series["rms"])
    row = np.full(columns.width, float(MISSING))
    for i, (first, about) in enumerate(keys):
        shares = {
            name: next(counts) / (about.numel if name == "saturated" else about.num_units) for name in about.counted
        }
        for place, name in enumerate(about.series, first):
            row[place] = series[name][i] if name in series else shares.get(name, MISSING)
    yield Row(columns, row)


def _keep(slot: int, names: tuple[str, ...], numbers: Float64) -> Iterable[Row]:
    yield Row(_histograms(slot, names), numbers)


@functools.lru_cache(maxsize=256)
def _histograms(slot: int, names: tuple[str, ...]) -> Columns:
    tags = [f"act/histogram@{name}" for name in names]
    return Columns(f"activation-histograms-{slot}", tags, Detail.DISTRIBUTION, NUM_COARSE)


def _positive(rows: Float64, shapes: quantiles.Shapes) -> Float64:
    """Share of values above 0: exact where all lie on one side of it."""
    total = rows[:, Column.COUNT] + rows[:, Column.NONFINITE]
    if_none_negative = (rows[:, Column.COUNT] - rows[:, Column.ZEROS]) / total
    sampled = shapes.positive() * rows[:, Column.COUNT] / total
    one_sided = np.where(rows[:, Column.MIN] >= 0, if_none_negative, sampled)
    return np.where(rows[:, Column.MAX] <= 0, 0.0, one_sided)


def _or_missing(values: Float64) -> Float64:
    return np.where(np.isnan(values), float(MISSING), values)
