"""From the numbers of an optimiser's step to rows, in the background and in the order of steps."""

import math
import statistics
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, final

import numpy as np
import numpy.typing as npt
import torch

from sonde.core.frames import MISSING, Columns, Detail, Float32
from sonde.core.records import Float64
from sonde.kernels.columns import NUM_COLUMNS, Column, finite_norm, norm
from sonde.kernels.histograms import NUM_BINS, NUM_COARSE, PERCENTS, coarse, percentiles
from sonde.kernels.native.native_stats import apart as rows_and_norms
from sonde.probes.gradient_flow import GradientFlow
from sonde.probes.lookup import Lookup
from sonde.probes.optimizer_history import OptimizerHistory
from sonde.probes.optimizer_numbers import NORMS, ClipNote, Key, Part, StepNote, apart, infinite_of
from sonde.probes.plain_gradients import plain_norm
from sonde.probes.probe import Row, step_row
from sonde.probes.statistics import STATISTICS, tags, values

_NAMED_STEPS = 10  # between two rows that name parameters that are not finite
_USUAL_STEPS = 16  # what is usual is the median of so many norms
_UNUSUAL = 4.0  # times that; noise of small batches stays below, what spikes and explosions do does not
_ROUNDING = 1e-6  # of norms that are measured in two ways
_SMALLEST = float(np.finfo(np.float32).tiny)
_MOST_COLUMNS = 256  # which parameters have a gradient may change at every step (experts)


class _Family(NamedTuple):
    """What becomes of the rows of a part: the prefix of its tags, its table and its statistics."""

    prefix: str
    table: str
    statistics: tuple[str, ...]


_FAMILIES = {
    Part.GRADIENTS: _Family("grad", "gradients", tuple(STATISTICS)),
    Part.WEIGHTS: _Family("weight", "weights", tuple(STATISTICS)),
    Part.UPDATES: _Family("update", "updates", ("norm", "rms", "mean", "std", "absmax")),
}


class _Tensors(NamedTuple):
    """The rows of a key, worked out."""

    norms: Float64
    """As measured."""
    finite_norms: Float64
    num_nonfinite: float


@final
class OptimizerReport:
    """Undoes scaling and clipping, and tells what the numbers of one optimiser say.

    Args:
        name: Of the optimiser, empty where there is only one.
        label: What its tables have behind their name, empty where there is only one.
        histogram_steps: Steps between two histograms of a gradient that are kept whole.
        flow: Told the norms of gradients at the steps at which those of each are recorded.
    """

    def __init__(self, name: str, label: str, *, histogram_steps: int, flow: GradientFlow) -> None:
        self._at = f"@{name}" if name else ""
        self._label, self._histogram_steps, self._flow = label, histogram_steps, flow
        self.history = OptimizerHistory()
        self._weights: tuple[tuple[str, ...], Float64] = (), np.empty(0)
        """Names and norms after the last step at which they were read."""
        self._histogram_kept: dict[int | None, int] = {}
        self._last_norms: deque[float] = deque(maxlen=_USUAL_STEPS)
        self._look_again = 0
        self._lookup = Lookup()
        self._columns: dict[Hashable, Columns] = {}

    def __call__(self, note: StepNote, numbers: Float64) -> Iterator[Row]:
        """The numbers of the step's own row, then the rows of tensors."""
        if note.is_plain and (total := plain_norm(numbers)) is not None and self._is_usual(total):
            yield self._plain_row(total)
            return
        step = _Step(note, dict(_whole(*item) for item in apart(note.keys, note.sizes, numbers).items()))
        names, before, applied = step.gradient_norms()
        weights = step.key(Part.WEIGHTS)
        growth = None if weights is None else self.history.growth(weights.names, step.tensors[weights].norms)
        scalars = self._scalars(step, names, before, applied)
        yield step_row(scalars if growth is None else {**scalars, f"weight/growth{self._at}": growth[1]})
        has_layers = self._is_unusual(note.iteration, together(before)) or note.has_layers
        if has_layers and step.key(Part.GRADIENTS) is not None:
            self._flow.note(names, before)
        for key, value in step.found.items():
            if key.part in _FAMILIES:
                if has_layers or key.part is not Part.GRADIENTS:
                    yield self._layers(step, key, names, applied, growth)
            elif key.part is Part.NORMS and has_layers:
                yield self._row("gradients", None, names, lambda: [f"grad/norm@{name}" for name in names], before)
            elif key.part in (Part.GRADIENT_PRODUCTS, Part.UPDATE_PRODUCTS):
                yield self._cosines(step, key, value)
            elif key.part in (Part.HISTOGRAM, Part.WEIGHT_HISTOGRAM):
                yield from self._shapes(step, key, value)
        if weights is not None:
            self._weights = weights.names, step.tensors[weights].norms

    def plain(self, iteration: int, names: tuple[str, ...], vector: Float64, _numbers: Float64) -> Iterable[Row]:
        """The same of a step of which nothing but gradients was read, as `TensorStats.vector` gives them."""
        rows, norms = rows_and_norms(vector)
        numbers = vector[: rows.size]
        if (total := plain_norm(numbers)) is not None and self._is_usual(total):
            return [self._plain_row(total)]
        key = Key(Part.GRADIENTS, names)
        infinite = infinite_of(key, norms)
        return self(
            StepNote(keys=[key], sizes=[rows.size], iteration=iteration, has_layers=False, infinite=infinite), numbers
        )

    def _is_unusual(self, iteration: int, norm: float) -> bool:
        """Whether the norm of all gradients is far above the last ones, or no number: then it is told whose it is."""
        is_finite, is_usual = math.isfinite(norm), self._is_usual(norm)
        if is_finite:
            self._last_norms.append(norm)
        if is_usual or iteration < self._look_again:
            return False
        self._look_again = iteration + (1 if is_finite else _NAMED_STEPS)
        return True

    def _is_usual(self, norm: float) -> bool:
        usual = self._last_norms
        if not math.isfinite(norm) or len(usual) < _USUAL_STEPS:
            return math.isfinite(norm)
        return norm <= _UNUSUAL * min(usual) or norm <= _UNUSUAL * statistics.median(usual)  # the first is cheap

    def _plain_row(self, total: float) -> Row:
        """What `_scalars` gives where nothing but finite gradients was read: most steps of small models are such."""
        self._last_norms.append(total)
        at = self._at
        row = {f"grad/norm{at}": total, f"grad/norm_applied{at}": total}
        self._add(row, self.history.gradient_norm(total))
        self._add(row, self.history.clip(None))
        row[f"grad/norm_finite{at}"], row[f"grad/nonfinite{at}"] = total, 0.0
        return step_row(row)

    def _scalars(self, step: "_Step", names: tuple[str, ...], before: Float64, applied: Float64) -> Mapping[str, float]:
        """The numbers of the whole optimiser."""
        note, at = step.note, self._at
        row: dict[str, float] = {}
        if (scale := step.number(Part.SCALE)) is not None:
            row[f"amp/scale{at}"] = scale
        if note.clips:
            row[f"clip/limit{at}"] = note.clips[-1].limit
            factors = [step.clip_factor(i) for i, clip in enumerate(note.clips) if not clip.by_value]
            if factors:
                row[f"clip/factor{at}"] = min(factors)
        norms = (together(before), together(applied)) if names and not note.is_incomplete else None
        if norms is not None:
            row[f"grad/norm{at}"], row[f"grad/norm_applied{at}"] = norms
            self._add(row, self.history.gradient_norm(norms[0]))
        self._add(row, self.history.clip(step.shortening(norms)))
        for key, value in step.found.items():
            if key.part is Part.GRADIENTS and not note.is_incomplete:
                row[f"grad/norm_finite{at}"] = together(step.tensors[key].finite_norms) / step.read_scale
                row[f"grad/nonfinite{at}"] = step.tensors[key].num_nonfinite
            elif key.part is Part.WEIGHTS:
                row[f"weight/norm{at}"] = together(step.tensors[key].norms)
            elif key.part is Part.GRADIENT_PRODUCTS:
                row[f"grad/cosine{at}"] = float(_cosines(value.reshape(-1, 3).sum(0)))
            elif key.part is Part.UPDATE_PRODUCTS:
                row[f"update/cosine{at}"] = float(_cosines(value.reshape(-1, 3).sum(0)))
            elif key.part is Part.TRAJECTORY:
                self._add(row, self.history.direction(value))
        if note.has_whole_updates and (keys := [key for key in step.found if key.part is Part.UPDATES]):
            update = together(np.concatenate([step.tensors[key].norms for key in keys]))
            weight = together(np.concatenate([self._norms_before(step, key) for key in keys]))
            row[f"update/norm{at}"] = update
            row[f"update/ratio{at}"] = float(_ratios(np.array(update), np.array(weight)))
        return row

    def _add(self, row: dict[str, float], found: Mapping[str, float]) -> None:
        for tag, value in found.items():
            row[tag + self._at] = value

    def _norms_before(self, step: "_Step", key: Key) -> Float64:
        """The norms of an update's parameters before the step; 0 where they are not known."""
        norms = step.found.get(key._replace(part=Part.BEFORE))
        if norms is not None:
            return norms
        names, norms = self._weights
        return np.append(norms, 0.0)[self._lookup(key.names, names)]

    def _layers(
        self,
        step: "_Step",
        key: Key,
        names: tuple[str, ...],
        applied: Float64,
        growth: tuple[Float32, float] | None,
    ) -> Row:
        """The statistics of every tensor of a key."""
        family, out = _FAMILIES[key.part], step.series(key)
        if key.part is Part.WEIGHTS and growth is not None:
            out = np.concatenate([out, growth[0]])
        is_update = key.part is Part.UPDATES
        if is_update:  # against the weights before them, and against the gradients that the optimiser got
            gradients = np.append(applied, 0.0)[self._lookup(key.names, names)]
            gradients = np.where(gradients < _SMALLEST, 0.0, gradients)  # a clip has made nothing of them
            updates = step.tensors[key].norms
            out = np.concatenate([out, _ratios(updates, self._norms_before(step, key)), _ratios(updates, gradients)])

        def names_of() -> list[str]:
            relative = {Part.UPDATES: ("ratio", "effective_lr"), Part.WEIGHTS: ("growth",)}.get(key.part, ())
            of_each = [f"{family.prefix}/{what}@{name}" for what in relative for name in key.names]
            return tags(family.prefix, key.names, family.statistics) + of_each

        return self._row(family.table, key.slot, key.names, names_of, out)

    def _cosines(self, step: "_Step", key: Key, value: Float64) -> Row:
        products = value.reshape(-1, 3)
        out = _cosines(products)
        family = "grad" if key.part is Part.GRADIENT_PRODUCTS else "update"
        weights = step.key(Part.WEIGHTS)
        if family == "update" and weights is not None:
            # Sketches of weights are in float32: the rounding of small changes is not a direction.
            norms = step.tensors[weights].norms  # of the same names: both are read at once
            out = np.where(np.sqrt(products[:, 1]) < 1e-6 * norms, MISSING, out)
        return self._row(
            f"{family}-cosines", key.slot, key.names, lambda: [f"{family}/cosine@{name}" for name in key.names], out
        )

    def _shapes(self, step: "_Step", key: Key, value: Float64) -> Iterator[Row]:
        counts = value.reshape(-1, NUM_BINS).astype(np.int32)
        family, factor = "weight", 1.0
        if key.part is Part.HISTOGRAM:
            family, factor = "grad", 1 / step.read_scale
            quantiles = percentiles(counts, self._extremes(step, key)) * factor
            names_of = lambda: [f"grad/p{q}@{name}" for name in key.names for q in PERCENTS]  # noqa: E731
            yield self._row("percentiles", key.slot, key.names, names_of, quantiles.reshape(-1))
            kept = self._histogram_kept.get(key.slot, step.note.iteration - self._histogram_steps)
            if step.note.iteration - kept < self._histogram_steps:
                return
            self._histogram_kept[key.slot] = step.note.iteration
        yield self._row(
            f"{family}-histograms",
            key.slot,
            key.names,
            lambda: [f"{family}/histogram@{name}" for name in key.names],
            coarse(counts, factor).reshape(-1),
            bins=NUM_COARSE,
        )

    def _extremes(self, step: "_Step", key: Key) -> Float64 | None:
        """Rows of the tensors of a histogram: no percentile lies beyond their extremes."""
        rows = step.found.get(key._replace(part=Part.EXTREMES))
        if rows is not None:
            return rows.reshape(-1, NUM_COLUMNS)
        all_of = step.key(Part.GRADIENTS)
        return None if all_of is None else step.found[all_of][self._lookup(key.names, all_of.names)]

    def _row(
        self,
        table: str,
        slot: int | None,
        names: tuple[str, ...],
        tags_of: Callable[[], Sequence[str]],
        numbers: Float64 | Float32,
        bins: int = 1,
    ) -> Row:
        key = table, slot, names
        columns = self._columns.get(key)
        if columns is None:
            if len(self._columns) >= _MOST_COLUMNS:
                self._columns.clear()
            label = "-".join(filter(None, [table, self._label, "" if slot is None else str(slot)]))
            detail = Detail.LAYER if bins == 1 else Detail.DISTRIBUTION
            # The names of a thousand layers are made once, not at every step.
            columns = self._columns[key] = Columns(label, tags_of(), detail, bins)
        return Row(columns, numbers)


@final
class _Step:
    """The numbers of one step."""

    def __init__(self, note: StepNote, found: Mapping[Key, Float64]) -> None:
        self.note, self.found = note, found
        self._scale = self.number(Part.GRAD_SCALE) or 1.0
        """What gradients are multiplied by when the optimiser gets them: 1 but for fused ones under a scaler."""
        clip_scale = self.number(Part.CLIP_SCALE) if note.clips else None
        self.read_scale = self._scale if clip_scale is None else clip_scale
        """What they were multiplied by when they were read: that of a clip, if there was one, which is more than 1
        where nobody called `unscale_` before."""
        self.tensors = {key: self._worked_out(key, rows) for key, rows in found.items() if key.part in _FAMILIES}

    def key(self, part: Part) -> Key | None:
        """The first key of a part, where there is one."""
        return next((key for key in self.found if key.part is part), None)

    def number(self, part: Part) -> float | None:
        """The only number of a part."""
        value = self.found.get(Key(part))
        return None if value is None else float(value[0])

    def _worked_out(self, key: Key, rows: Float64) -> _Tensors:
        finite_norms, num_nonfinite = finite_norm(rows), float(rows[:, Column.NONFINITE].sum())
        norms = norm(rows) if num_nonfinite else finite_norms
        if infinite := self.note.infinite.get(key):
            norms[np.array([name in infinite for name in key.names])] = np.inf
        return _Tensors(norms, finite_norms, num_nonfinite)

    def series(self, key: Key) -> Float32:
        """All that is recorded of the tensors of a key, in the order of `tags`."""
        rows, names = self.found[key], _FAMILIES[key.part].statistics
        if key.part is Part.GRADIENTS and self.read_scale != 1:
            rows, factor = rows.copy(), 1 / self.read_scale
            rows[:, [Column.MEAN, Column.MIN, Column.MAX]] *= factor
            rows[:, Column.M2] *= factor**2
        series = values(rows, names)
        if infinite := self.note.infinite.get(key):
            of_these = np.array([name in infinite for name in key.names])
            for statistic in ("norm", "rms"):
                series[names.index(statistic) :: len(names)][of_these] = np.inf
        return series

    def gradient_norms(self) -> tuple[tuple[str, ...], Float64, Float64]:
        """The parameters that had gradients, the norm of each before clipping, and as the optimiser got it."""
        key = self.key(Part.GRADIENTS) or self.key(Part.NORMS)
        if key is None:
            return (), np.empty(0), np.empty(0)
        norms = self.tensors[key].norms if key.part is Part.GRADIENTS else self.found[key]
        before = applied = norms / self.read_scale
        for i, clip in enumerate(self.note.clips):
            if not clip.by_value:
                applied = np.where(_members(clip, key.names), applied * self.clip_factor(i), applied)
        measured = self.found.get(Key(Part.NORMS_APPLIED, key.names))
        if measured is not None:  # something other than clips by norm came in between
            applied = measured / self._scale
        return key.names, before, applied

    def shortening(self, norms: tuple[float, float] | None) -> float | None:
        """By what factor clips have shortened the gradients; None where there was none, NaN where it is not known.

        Args:
            norms: Of all gradients before clips, and as the optimiser got them, where they are known.
        """
        if not self.note.clips:
            return None
        factors = [self.clip_factor(i) for i, clip in enumerate(self.note.clips) if not clip.by_value]
        if len(factors) < len(self.note.clips):  # a clip by value tells no factor
            factor = norms[1] / norms[0] if norms is not None and 0 < norms[0] < np.inf else float("nan")
            factors.append(1.0 if factor > 1 - _ROUNDING else factor)
        return float("nan") if np.isnan(factors).any() else min(factors)

    def clip_factor(self, place: int) -> float:
        """What torch multiplied gradients by; NaN where that made them NaN, or where its norm is not known."""
        clip, total = self.note.clips[place], self.found.get(Key(Part.CLIP, slot=place))
        if total is None or not np.isfinite(total[0]):
            return float("nan")
        if clip.dtype.itemsize < torch.float32.itemsize:  # torch divides in the format of the norm
            return min(1.0, float(clip.limit / (torch.tensor(total[0], dtype=clip.dtype, device="cpu") + 1e-6)))
        return min(1.0, clip.limit / (float(total[0]) + 1e-6))


def _whole(key: Key, value: Float64) -> tuple[Key, Float64]:
    """Without the tensors that had no value on any rank; norms that travelled as rows, as norms."""
    if not (key.part in _FAMILIES or key.part in NORMS) or value.size != NUM_COLUMNS * len(key.names):
        return key, value
    rows = value.reshape(-1, NUM_COLUMNS)
    present = rows[:, Column.COUNT] + rows[:, Column.NONFINITE] > 0
    if not np.all(present):
        names = tuple(name for name, there in zip(key.names, present, strict=True) if there)
        key, rows = key._replace(names=names), rows[present]
    return key, rows if key.part in _FAMILIES else norm(rows)


def _ratios(above: Float64, below: Float64) -> Float32:
    """Their ratios; not measured where there is nothing below."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(below == 0, MISSING, above / below).astype(np.float32)


def _cosines(products: Float64) -> Float64:
    """From inner products (now·before, now·now, before·before); not measured where one of the two is zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.sqrt(products[..., 1]) * np.sqrt(products[..., 2])
        return np.where(size > 0, np.clip(products[..., 0] / size, -1.0, 1.0), MISSING)


def together(norms: Float64) -> float:
    """The norm of all tensors; NaN where one is, else infinite where one is. Squares stay in range."""
    values = norms.tolist()
    total = math.hypot(*values)
    return total if math.isfinite(total) or not any(map(math.isnan, values)) else math.nan


def _members(clip: ClipNote, names: Sequence[str]) -> npt.NDArray[np.bool_]:
    if clip.names is None:
        return np.ones(len(names), np.bool_)
    return np.fromiter((name in clip.names for name in names), np.bool_, len(names))
