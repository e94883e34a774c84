"""From sheets to frames, in the background and in order.

Counts steps, undoes scaling and clipping, smooths the loss.
"""

import re
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from sonde.core import late_rows
from sonde.core.frames import MISSING, Columns, Detail, Float32, Frame
from sonde.core.records import Float64, Recorder
from sonde.kernels import sketches
from sonde.kernels.columns import NUM_COLUMNS, Column, norm
from sonde.kernels.histograms import NUM_BINS, NUM_COARSE, PERCENTS, coarse, percentiles
from sonde.monitor.layers import SERIES, Layers, Step, layers
from sonde.monitor.lookup import Lookup
from sonde.monitor.naps import Nap
from sonde.monitor.sheets import ClipNote, Key, Report, Sheet
from sonde.probes.probe import Row, Stamp
from sonde.probes.statistics import tags
from sonde.signals.ema import Ema, EmaState
from sonde.signals.moments import Moments, MomentsState
from sonde.signals.trajectory import Trajectory

_NAMED_STEPS = 10  # between two rows that name parameters that are not finite
_SMALLEST = float(np.finfo(np.float32).tiny)
_RESTED_ROWS = 8  # small ones, after which the training gets the interpreter
_MOST_STAMPS = 16  # one at a time is waited for
_MOST_COLUMNS = 256  # which parameters have a gradient may change at every step (experts)


class Assembly:
    """Writes a watched training into a recorder.

    Args:
        recorder: Where frames and events go.
        optimizers: Their names, empty where there is only one.
        histogram_steps: Steps between two histograms of a gradient that are kept whole.
        micro: Makes the loss of an accumulated step out of its micro-losses.
    """

    def __init__(
        self,
        recorder: Recorder,
        optimizers: Sequence[str],
        *,
        histogram_steps: int = 100,
        micro: Callable[[Sequence[float]], Any] = np.mean,
    ) -> None:
        self._recorder = recorder
        self._micro = micro
        self._optimizers = optimizers
        self._labels = _labels(optimizers)
        self._histogram_steps = histogram_steps
        self._histogram_kept: dict[Key, int] = {}
        self.step = 0
        self._micro_losses: list[float] = []
        self._num_micro = self._num_skipped = 0
        self._ema, self._moments, self._trajectory = Ema(), Moments(), Trajectory()
        self._ema_state, self._moments_state = self._ema.init(1), self._moments.init(1)
        self._trajectory_states = {name: self._trajectory.init(sketches.SIZE) for name in optimizers}
        self._weights: dict[str, _Weights] = {}
        """Of each optimiser, where they were read in this iteration …"""
        self._weights_before: dict[str, _Weights] = {}
        """… and in the one before."""
        self._stamps: deque[Stamp] = deque(maxlen=_MOST_STAMPS)
        """The last ones that were given a step."""
        self._lookup = Lookup()
        self._name_again: dict[str, int] = {}
        self._columns: dict[Any, Columns] = {}

    def state_dict(self) -> dict[str, Any]:
        """All that the next session needs to go on without a jump."""
        return {
            "step": self.step,
            "micro": self._num_micro,
            "skipped": self._num_skipped,
            "ema": [array.tolist() for array in self._ema_state],
            "moments": [array.tolist() for array in self._moments_state],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another session stopped."""
        self.step, self._num_micro, self._num_skipped = state["step"], state["micro"], state["skipped"]
        self._ema_state = EmaState(*(np.asarray(array) for array in state["ema"]))
        self._moments_state = MomentsState(*(np.asarray(array) for array in state["moments"]))
        self._micro_losses = []
        self._weights = {}
        for stamp in self._stamps:
            stamp.step = None
        self._stamps.clear()

    def consume(self, batch: Sequence[tuple[Sheet, Float64]]) -> None:
        """Take some iterations, in order. What many steps have in common is worked out for all of them at once.

        Raises:
            Exception: what first went wrong with one of them, once all were taken.
        """
        problem: Exception | None = None
        iterations = [_Iteration.of(sheet, numbers) for sheet, numbers in batch]
        every = layers([iteration.step() for iteration in iterations])
        for iteration, some in zip(iterations, every, strict=True):
            try:
                self._consume(iteration.sheet, iteration.found, iteration.read, some)
            except Exception as error:  # the others are not to blame
                problem = problem or error
        if problem is not None:
            raise problem

    def _consume(
        self,
        sheet: Sheet,
        found: Mapping[Key, Float64],
        read: Sequence[tuple[Report, Float64]],
        of_layers: Mapping[Key, Layers],
    ) -> None:
        if sheet.event is not None:
            self.event(*sheet.event)
            return
        if sheet.naps:
            self._rested(sheet.naps)
            return
        if sheet.row is not None:
            table, plain = sheet.row
            late = {key.names[0]: float(value[0]) for key, value in found.items() if key.kind == "value"}
            if plain or late:
                self._named_row(table, {**plain, **late}, sheet.time)
            return
        if sheet.loss is not None:
            self._micro_losses.append(sheet.loss)
        losses = found.get(Key("loss"))
        if losses is not None:
            self._micro_losses.extend(losses.tolist())
        # A fused optimiser is called on an overflow as well, and does nothing.
        withheld = {key.optimizer for key, value in found.items() if key.kind == "found_inf" and value[0] > 0}
        if sheet.skipped or withheld:
            if not sheet.applied - withheld:
                self._num_skipped += 1
                self._micro_losses = []  # they belong to a step that never was
            by = sorted(filter(None, sheet.skipped | withheld))
            data = {"total": self._num_skipped, **({"optimizers": by} if by else {})}
            self._recorder.event("skipped-step", step=self.step, data=data)
        if sheet.applied:
            weights = {
                key.optimizer: _Weights(key.names, of_layers[key].norms) for key in found if key.kind == "weight"
            }
            self._weights_before, self._weights = self._weights, weights
        self.step += bool(sheet.applied - withheld)
        for stamp in sheet.stamps:  # where the step was withheld, the weights are those of the last one
            stamp.step = self.step
        self._stamps.extend(sheet.stamps)
        if not sheet.applied - withheld:
            self._num_micro += not (sheet.skipped or withheld)
            return
        if withheld:
            found = {key: value for key, value in found.items() if key.optimizer not in withheld or key.kind == "lr"}
        micro_losses, self._micro_losses = self._micro_losses, []
        self._essential(sheet, found, of_layers, micro_losses)
        for loss in micro_losses if len(micro_losses) > 1 else ():
            self._named_row("micro", {"loss/micro": loss}, sheet.time)
        for key, value in found.items():
            if key.kind in ("grad", "weight", "update"):
                self._layers(sheet, key, found, of_layers)
            elif key.kind in ("grad_cosine", "update_cosine"):
                self._cosines(sheet, key, value)
            elif key.kind in ("histogram", "weight_histogram"):
                self._shape(sheet, key, value, found)
        for report, own in read:
            for row in report(own):
                self._read_row(row, sheet.time)

    def _read_row(self, row: Row, when: float) -> None:
        if row.stamp is None:
            self._write(row.columns, when, row.values)
        elif row.stamp.step is not None and row.stamp.step > 0:
            columns = self._columns.get(row.columns)
            if columns is None:
                tags_of = [*row.columns.tags, late_rows.LAG]
                columns = self._columns[row.columns] = Columns(row.columns.table, tags_of, row.columns.detail)
            numbers = np.append(row.values, self.step - row.stamp.step)
            self._write(columns, when, numbers, step=row.stamp.step)

    def event(self, kind: str, data: Mapping[str, Any]) -> None:
        """Something happened at the last of the steps that were taken. On the thread that calls `consume`."""
        self._recorder.event(kind, step=self.step, data=data)

    def _named_row(self, table: str, row: Mapping[str, float], when: float, *, yields: bool = True) -> None:
        names = tuple(row)
        values = np.fromiter(row.values(), np.float64, len(names))
        self._append((table, names), table, lambda: names, Detail.ESSENTIAL, when, values, yields=yields)

    def _essential(
        self,
        sheet: Sheet,
        found: Mapping[Key, Float64],
        of_layers: Mapping[Key, Layers],
        losses: Sequence[float],
    ) -> None:
        row = self._of_losses(losses)
        for key, value in found.items():
            if key.kind == "part":
                row[f"loss/part@{key.names[0]}"] = float(value[0])
            elif key.kind == "lr":
                row.update(dict.fromkeys(key.names, float(value[0])))
        row.update(sheet.host)
        for optimizer in self._optimizers:
            row.update(self._norms(optimizer, sheet, found, of_layers))
        self._named_row("step", row, sheet.time)

    def _of_losses(self, losses: Sequence[float]) -> dict[str, float]:
        """The loss of a step and its moments, out of its micro-losses."""
        if not losses:
            return {}
        with np.errstate(all="ignore"):  # losses may be anything: what comes of them is recorded, not warned about
            loss = losses[0] if len(losses) == 1 else float(self._micro(losses))
            self._ema_state, smooth = self._ema.step(self._ema_state, np.array([loss]))
            self._moments_state, moments = self._moments.step(self._moments_state, np.array([loss]))
        return {
            "loss": loss,
            "loss/ema": float(smooth[0]),
            "loss/variance": float(moments.variance[0]),
            "loss/skewness": float(moments.skewness[0]),
            "loss/kurtosis": float(moments.kurtosis[0]),
            "loss/num_micro": float(len(losses)),
        }

    def _rested(self, naps: Sequence[Nap]) -> None:
        """Iterations in which nothing was looked at."""
        for place, nap in enumerate(naps, 1):
            if nap.loss is not None:
                self._micro_losses.append(nap.loss)
            if nap.taken is None:
                self._num_micro += 1
                continue
            self.step += 1
            self._weights = {}
            losses, self._micro_losses = self._micro_losses, []
            self._named_row("step", {**self._of_losses(losses), **nap.host}, nap.time, yields=place % _RESTED_ROWS == 0)
            for loss in losses if len(losses) > 1 else ():
                self._named_row("micro", {"loss/micro": loss}, nap.time)

    def _norms(
        self, optimizer: str, sheet: Sheet, found: Mapping[Key, Float64], of_layers: Mapping[Key, Layers]
    ) -> dict[str, float]:
        """The numbers of a whole optimiser."""
        at = f"@{optimizer}" if optimizer else ""
        row: dict[str, float] = {}
        scale = found.get(Key("scale", optimizer))
        if scale is not None:
            row[f"amp/scale{at}"] = float(scale[0])
        names, before, applied = self._gradient_norms(optimizer, sheet, found, of_layers)
        clips = sheet.clips.get(optimizer, [])
        if clips:
            row[f"clip/limit{at}"] = clips[-1].limit
            by_norm = [i for i, clip in enumerate(clips) if not clip.by_value]
            if by_norm:
                row[f"clip/factor{at}"] = min(self._clip_factor(optimizer, i, clips[i], found) for i in by_norm)
        if names and optimizer not in sheet.incomplete:
            row[f"grad/norm{at}"] = _together(before)
            row[f"grad/norm_applied{at}"] = _together(applied)
            if not np.isfinite(before).all() and not any(key.kind == "grad" for key in found):
                self._name_nonfinite(optimizer, names, before, sheet.time)
        for key, value in found.items():
            if key.optimizer != optimizer:
                continue
            if key.kind == "grad" and optimizer not in sheet.incomplete:
                together = _together(of_layers[key].finite_norms)
                row[f"grad/norm_finite{at}"] = together / _read_scale(optimizer, sheet, found)
                row[f"grad/nonfinite{at}"] = of_layers[key].num_nonfinite
            elif key.kind == "weight":
                row[f"weight/norm{at}"] = _together(of_layers[key].norms)
            elif key.kind in ("grad_cosine", "update_cosine"):
                row[f"{key.kind.replace('_', '/')}{at}"] = float(_cosines(value.reshape(-1, 3).sum(0)))
            elif key.kind == "trajectory":
                before_it = self._trajectory_states[optimizer]
                state, out = self._trajectory.step(before_it, value)
                self._trajectory_states[optimizer] = state
                if state is not before_it and np.isfinite(out.dimension):  # else there is no number of this step
                    row[f"grad/trajectory_dimension{at}"] = float(out.dimension)
                    row[f"grad/trajectory_share{at}"] = float(out.share)
        if optimizer in sheet.whole_updates:
            row.update(self._update_ratio(optimizer, found, of_layers, at))
        return row

    def _name_nonfinite(self, optimizer: str, names: tuple[str, ...], norms: Float64, when: float) -> None:
        """Where parameters have no turn at this step, the norms of all tell which of them are not finite."""
        if self.step < self._name_again.get(optimizer, 0):
            return
        self._name_again[optimizer] = self.step + _NAMED_STEPS
        label = self._table("gradients", Key("grad", optimizer))
        self._append(
            (label, names, "norms"),
            label,
            lambda: [f"grad/norm@{name}" for name in names],
            Detail.LAYER,
            when,
            norms,
        )

    def _update_ratio(
        self, optimizer: str, found: Mapping[Key, Float64], of_layers: Mapping[Key, Layers], at: str
    ) -> dict[str, float]:
        """Of all parameters together, at a step at which all of them were measured."""
        keys = [key for key in found if key.kind == "update" and key.optimizer == optimizer]
        if not keys:  # there was no room for them
            return {}
        update = _together(np.concatenate([of_layers[key].norms for key in keys]))
        weight = _together(np.concatenate([self._before(key, found) for key in keys]))
        ratio = _ratios(np.array(update), np.array(weight))
        return {f"update/norm{at}": update, f"update/ratio{at}": float(ratio)}

    def _before(self, key: Key, found: Mapping[Key, Float64]) -> Float64:
        """The norms of an update's parameters before the step; 0 where they are not known."""
        norms = found.get(key._replace(kind="before"))
        if norms is not None:
            return norms
        names, norms = self._weights_before.get(key.optimizer, _Weights((), np.empty(0)))
        return np.append(norms, 0.0)[self._lookup(key.names, names)]

    def _gradient_norms(
        self, optimizer: str, sheet: Sheet, found: Mapping[Key, Float64], of_layers: Mapping[Key, Layers]
    ) -> tuple[tuple[str, ...], Float64, Float64]:
        """The parameters that had gradients, the norm of each before clipping, and as the optimiser got it."""
        for key, value in found.items():
            if key.optimizer == optimizer and key.kind in ("norm", "grad"):
                norms = value if key.kind == "norm" else of_layers[key].norms
                before = norms / _read_scale(optimizer, sheet, found)
                break
        else:
            return (), np.empty(0), np.empty(0)
        applied = before
        for i, clip in enumerate(sheet.clips.get(optimizer, [])):
            if not clip.by_value:
                factor = self._clip_factor(optimizer, i, clip, found)
                applied = np.where(_members(clip, key.names), applied * factor, applied)
        measured = found.get(Key("norm_clipped", optimizer, key.names))
        if measured is not None:  # something other than clips by norm came in between
            applied = measured / _scale(optimizer, found)
        return key.names, before, applied

    def _clip_factor(self, optimizer: str, place: int, clip: ClipNote, found: Mapping[Key, Float64]) -> float:
        """What torch multiplied gradients by; NaN where that made them NaN, or where its norm is not known."""
        total = found.get(Key("clip", optimizer, slot=place))
        if total is None or not np.isfinite(total[0]):
            return float("nan")
        if clip.dtype.itemsize < torch.float32.itemsize:  # torch divides in the format of the norm
            return min(1.0, float(clip.limit / (torch.tensor(total[0], dtype=clip.dtype, device="cpu") + 1e-6)))
        return min(1.0, clip.limit / (float(total[0]) + 1e-6))

    def _layers(self, sheet: Sheet, key: Key, found: Mapping[Key, Float64], of_layers: Mapping[Key, Layers]) -> None:
        table = {"grad": "gradients", "weight": "weights", "update": "updates"}[key.kind]
        out = of_layers[key].values
        if key.kind == "update":
            out = np.concatenate([out, *self._relative(sheet, key, found, of_layers)])

        def names() -> list[str]:
            relative = [f"update/{what}@{name}" for what in ("ratio", "effective_lr") for name in key.names]
            return tags(key.kind, key.names, SERIES[key.kind]) + (relative if key.kind == "update" else [])

        label = self._table(table, key)
        self._append((label, key.names), label, names, Detail.LAYER, sheet.time, out)

    def _relative(
        self, sheet: Sheet, key: Key, found: Mapping[Key, Float64], of_layers: Mapping[Key, Layers]
    ) -> tuple[Float32, Float32]:
        """Updates against the weights before them, and against the gradients that the optimiser got."""
        names, _, applied = self._gradient_norms(key.optimizer, sheet, found, of_layers)
        gradients = np.append(applied, 0.0)[self._lookup(key.names, names)]
        gradients = np.where(gradients < _SMALLEST, 0.0, gradients)  # a clip has made nothing of them
        updates = of_layers[key].norms
        return _ratios(updates, self._before(key, found)), _ratios(updates, gradients)

    def _cosines(self, sheet: Sheet, key: Key, value: Float64) -> None:
        products = value.reshape(-1, 3)
        out = _cosines(products)
        family = key.kind.removesuffix("_cosine")
        if family == "update":  # sketches of weights are in float32: the rounding of small changes is not a direction
            weights = self._weights[key.optimizer].norms  # of the same names: both are read at once
            out = np.where(np.sqrt(products[:, 1]) < 1e-6 * weights, MISSING, out)
        label = self._table(f"{family}-cosines", key)
        self._append(
            (label, key.names),
            label,
            lambda: [f"{family}/cosine@{name}" for name in key.names],
            Detail.LAYER,
            sheet.time,
            out,
        )

    def _shape(self, sheet: Sheet, key: Key, value: Float64, found: Mapping[Key, Float64]) -> None:
        counts = value.reshape(-1, NUM_BINS).astype(np.int32)
        family = "weight" if key.kind == "weight_histogram" else "grad"
        if family == "grad":
            quantiles = percentiles(counts, self._extremes(key, found)) * (1 / _read_scale(key.optimizer, sheet, found))
            label = self._table("percentiles", key)
            self._append(
                (label, key.names),
                label,
                lambda: [f"grad/p{q}@{name}" for name in key.names for q in PERCENTS],
                Detail.LAYER,
                sheet.time,
                quantiles.reshape(-1),
            )
            kept = self._histogram_kept.get(key._replace(names=()), -self._histogram_steps)
            if self.step - kept < self._histogram_steps:
                return
            self._histogram_kept[key._replace(names=())] = self.step
        label = self._table(f"{family}-histograms", key)
        self._append(
            (label, key.names),
            label,
            lambda: [f"{family}/histogram@{name}" for name in key.names],
            Detail.DISTRIBUTION,
            sheet.time,
            coarse(counts, 1 / _read_scale(key.optimizer, sheet, found) if family == "grad" else 1.0).reshape(-1),
            bins=NUM_COARSE,
        )

    def _extremes(self, key: Key, found: Mapping[Key, Float64]) -> Float64 | None:
        """Rows of the tensors of a histogram: no percentile lies beyond their extremes."""
        rows = found.get(key._replace(kind="extremes"))
        if rows is not None:
            return rows.reshape(-1, NUM_COLUMNS)
        all_of = next((other for other in found if other.kind == "grad" and other.optimizer == key.optimizer), None)
        return None if all_of is None else found[all_of][self._lookup(key.names, all_of.names)]

    def _table(self, name: str, key: Key) -> str:
        parts = [name, self._labels[key.optimizer], "" if key.slot is None else str(key.slot)]
        return "-".join(filter(None, parts))

    def _append(
        self,
        key: Any,
        table: str,
        names: Callable[[], Sequence[str]],
        detail: Detail,
        when: float,
        numbers: Float64 | Float32,
        bins: int = 1,
        *,
        yields: bool = True,
    ) -> None:
        columns = self._columns.get(key)
        if columns is None:
            if len(self._columns) >= _MOST_COLUMNS:
                self._columns.clear()
            # The names of a thousand layers are made once, not at every step.
            columns = self._columns[key] = Columns(table, names(), detail, bins)
        self._write(columns, when, numbers, yields=yields)

    def _write(
        self,
        columns: Columns,
        when: float,
        numbers: Float64 | Float32,
        *,
        step: int | None = None,
        yields: bool = True,
    ) -> None:
        with np.errstate(over="ignore"):
            at = self.step if step is None else step
            self._recorder.append(Frame(columns, at, when, numbers.astype(np.float32)))
        if yields:
            time.sleep(0)  # the training gets the interpreter now, not when it has waited for it for 5 ms


class _Iteration(NamedTuple):
    """A sheet and the numbers that belong to it."""

    sheet: Sheet
    found: Mapping[Key, Float64]
    read: Sequence[tuple[Report, Float64]]

    @classmethod
    def of(cls, sheet: Sheet, numbers: Float64) -> "_Iteration":
        found, read = sheet.sort(numbers)
        whole = dict(_whole(key, value) if key.kind in _OF_PARAMETERS else (key, value) for key, value in found.items())
        return cls(sheet, whole, read)

    def step(self) -> Step:
        """What there is to be worked out of rows."""
        rows = {key: value for key, value in self.found.items() if key.kind in SERIES}
        optimizers = {key.optimizer for key in rows}
        factors = {name: 1 / _read_scale(name, self.sheet, self.found) for name in optimizers}
        return Step(rows, factors, self.sheet.infinite)


class _Weights(NamedTuple):
    """Norms of an optimiser's weights after a step."""

    names: tuple[str, ...]
    norms: Float64


def _scale(optimizer: str, found: Mapping[Key, Float64]) -> float:
    """What gradients are multiplied by when the optimiser gets them: 1 but for fused ones under a scaler."""
    scale = found.get(Key("grad_scale", optimizer))
    return float(scale[0]) if scale is not None else 1.0


def _read_scale(optimizer: str, sheet: Sheet, found: Mapping[Key, Float64]) -> float:
    """What gradients were multiplied by when they were read: that of a clip, if there was one.

    That is more than 1 where nobody called `unscale_` before.
    """
    scale = found.get(Key("clip_scale", optimizer)) if sheet.clips.get(optimizer) else None
    return float(scale[0]) if scale is not None else _scale(optimizer, found)


_OF_PARAMETERS = frozenset({"grad", "norm", "norm_clipped", "before", "weight", "update"})


def _whole(key: Key, value: Float64) -> tuple[Key, Float64]:
    """Without the tensors that had no value on any rank; norms that travelled as rows, as norms."""
    if value.size != NUM_COLUMNS * len(key.names):
        return key, value
    rows = value.reshape(-1, NUM_COLUMNS)
    present = rows[:, Column.COUNT] + rows[:, Column.NONFINITE] > 0
    if not np.all(present):
        names = tuple(name for name, there in zip(key.names, present, strict=True) if there)
        key, rows = key._replace(names=names), rows[present]
    return key, rows if key.kind in ("grad", "weight", "update") else norm(rows)


def _ratios(above: Float64, below: Float64) -> Float32:
    """Their ratios; not measured where there is nothing below."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(below == 0, MISSING, above / below).astype(np.float32)


def _cosines(products: Float64) -> Float64:
    """From inner products (now·before, now·now, before·before); not measured where one of the two is zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.sqrt(products[..., 1]) * np.sqrt(products[..., 2])
        return np.where(size > 0, np.clip(products[..., 0] / size, -1.0, 1.0), MISSING)


def _together(norms: Float64) -> float:
    """The norm of all tensors; NaN where one is, else infinite where one is. Squares stay in range."""
    largest = float(np.max(norms, initial=0.0))
    if largest == 0 or not np.isfinite(largest):
        return largest
    return largest * float(np.sqrt(np.sum((norms / largest) ** 2)))


def _labels(optimizers: Sequence[str]) -> dict[str, str]:
    """A part of a table's name for each optimiser: its own as far as that is allowed, its number where it is not."""
    plain = {name: re.sub(r"[^a-z0-9_-]", "-", name.lower())[:32] for name in optimizers}
    times = Counter(plain.values())
    return {
        name: label if times[label] == 1 and label == name.lower() else f"{i}-{label}"[:40]
        for i, (name, label) in enumerate(plain.items())
    }


def _members(clip: ClipNote, names: Sequence[str]) -> npt.NDArray[np.bool_]:
    if clip.names is None:
        return np.ones(len(names), np.bool_)
    return np.fromiter((name in clip.names for name in names), np.bool_, len(names))


def now() -> float:
    """UTC, seconds since 1970."""
    return time.time()
