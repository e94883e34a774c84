"""From sheets to frames, in the background and in order.

Counts steps, undoes scaling and clipping, smooths the loss.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sonde.core.frames import MISSING, Columns, Detail, Float32, Frame
from sonde.core.records import Float64, Recorder
from sonde.kernels.columns import NUM_COLUMNS, Column, norm
from sonde.kernels.histograms import NUM_BINS, PERCENTS, percentiles
from sonde.monitor.sheets import ClipNote, Key, Sheet
from sonde.probes.statistics import STATISTICS, tags, values
from sonde.signals.ema import Ema, EmaState
from sonde.signals.moments import Moments, MomentsState

_ALL = tuple(STATISTICS)
_MOST_COLUMNS = 256  # which parameters have a gradient may change at every step (experts)
_UPDATE = ("norm", "rms", "mean", "std", "absmax")


class Assembly:
    """Writes a watched training into a recorder.

    Args:
        recorder: Where frames and events go.
        optimizers: Their names, empty where there is only one.
    """

    def __init__(self, recorder: Recorder, optimizers: Sequence[str]) -> None:
        self._recorder = recorder
        self._optimizers = optimizers
        self._labels = _labels(optimizers)
        self.step = 0
        self._micro_losses: list[float] = []
        self._num_micro = self._num_skipped = 0
        self._ema, self._moments = Ema(), Moments()
        self._ema_state, self._moments_state = self._ema.init(1), self._moments.init(1)
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

    def consume(self, sheet: Sheet, numbers: Float64) -> None:
        """Take one iteration."""
        if sheet.evaluation is not None:
            names = tuple(sheet.evaluation)
            found_values = np.fromiter(sheet.evaluation.values(), np.float64, len(names))
            self._append(("evaluation", names), "evaluation", lambda: names, Detail.ESSENTIAL, sheet.time, found_values)
            return
        found: Mapping[Key, Float64] = sheet.sort(numbers)
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
        if not sheet.applied - withheld:
            self._num_micro += not (sheet.skipped or withheld)
            return
        found = {key: value for key, value in found.items() if key.optimizer not in withheld or key.kind == "lr"}
        self.step += 1
        micro_losses, self._micro_losses = self._micro_losses, []
        self._essential(sheet, found, micro_losses)
        for key, value in found.items():
            if key.kind in ("grad", "weight", "update"):
                self._layers(sheet, key, value, found)
            elif key.kind == "histogram":
                self._shape(sheet, key, value, found)

    def _essential(self, sheet: Sheet, found: Mapping[Key, Float64], losses: Sequence[float]) -> None:
        row: dict[str, float] = {}
        if losses:
            with np.errstate(all="ignore"):  # losses may be anything: what comes of them is recorded, not warned about
                row["loss"] = loss = float(np.mean(losses))
                self._ema_state, smooth = self._ema.step(self._ema_state, np.array([loss]))
                self._moments_state, moments = self._moments.step(self._moments_state, np.array([loss]))
            row["loss/ema"] = float(smooth[0])
            row["loss/variance"] = float(moments.variance[0])
            row["loss/skewness"] = float(moments.skewness[0])
            row["loss/kurtosis"] = float(moments.kurtosis[0])
            row["loss/num_micro"] = float(len(losses))
        for key, value in found.items():
            if key.kind == "part":
                row[f"loss/part@{key.names[0]}"] = float(value[0])
            elif key.kind == "lr":
                row[f"lr{key.names[0]}"] = float(value[0])
        row.update(sheet.host)
        for optimizer in self._optimizers:
            row.update(self._norms(optimizer, sheet, found))
        names = tuple(row)
        frame_values = np.fromiter(row.values(), np.float64, len(row))
        self._append(("step", names), "step", lambda: names, Detail.ESSENTIAL, sheet.time, frame_values)

    def _norms(self, optimizer: str, sheet: Sheet, found: Mapping[Key, Float64]) -> dict[str, float]:
        at = f"@{optimizer}" if optimizer else ""
        row: dict[str, float] = {}
        scale = found.get(Key("scale", optimizer))
        if scale is not None:
            row[f"amp/scale{at}"] = float(scale[0])
        clips = sheet.clips.get(optimizer, []) if Key("clip", optimizer, slot=0) in found else []
        if clips:
            row[f"clip/limit{at}"] = clips[-1].limit
            factors = [self._clip_factor(optimizer, i, clip, found) for i, clip in enumerate(clips)]
            if not all(clip.by_value for clip in clips):
                row[f"clip/factor{at}"] = min(f for f, clip in zip(factors, clips, strict=True) if not clip.by_value)
        names, norms = self._applied_norms(optimizer, found)
        if names and optimizer not in sheet.incomplete:
            row[f"grad/norm_applied{at}"] = _together(norms)
            for i, clip in reversed(list(enumerate(clips))):  # the last one is the first to be undone
                clipped = _members(clip, names)
                factor = self._clip_factor(optimizer, i, clip, found)
                if not clip.by_value and factor > 0:
                    norms = np.where(clipped, norms / factor, norms)
                elif np.any(clipped):  # only their norm together is known
                    before = float(found[Key("clip", optimizer, slot=i)][0]) / self._clip_scale(optimizer, found)
                    norms = np.where(clipped, before / np.sqrt(np.sum(clipped)), norms)
            row[f"grad/norm{at}"] = _together(norms)
        return row

    def _applied_norms(self, optimizer: str, found: Mapping[Key, Float64]) -> tuple[tuple[str, ...], Float64]:
        """The norm of each gradient as the optimiser got it."""
        for key, value in found.items():
            if key.optimizer == optimizer and key.slot is None and key.kind in ("norm", "grad"):
                norms = value if key.kind == "norm" else norm(value.reshape(-1, NUM_COLUMNS))
                return key.names, norms / self._scale(optimizer, found)
        return (), np.empty(0)

    def _scale(self, optimizer: str, found: Mapping[Key, Float64]) -> float:
        """What gradients are multiplied by when the optimiser gets them: 1 but for fused ones under a scaler."""
        scale = found.get(Key("grad_scale", optimizer))
        return float(scale[0]) if scale is not None else 1.0

    def _clip_scale(self, optimizer: str, found: Mapping[Key, Float64]) -> float:
        """What gradients were multiplied by when they were clipped: more than 1 where nobody called `unscale_`."""
        scale = found.get(Key("clip_scale", optimizer))
        return float(scale[0]) if scale is not None else self._scale(optimizer, found)

    def _clip_factor(self, optimizer: str, place: int, clip: ClipNote, found: Mapping[Key, Float64]) -> float:
        """What torch multiplied gradients by; NaN where that made them NaN."""
        norm = float(found[Key("clip", optimizer, slot=place)][0])
        return min(1.0, clip.limit / (norm + 1e-6)) if np.isfinite(norm) else float("nan")

    def _multiplied(self, key: Key, sheet: Sheet, found: Mapping[Key, Float64]) -> Float64:
        """What each gradient of a key was multiplied by, by clipping and by the scaler, before it was measured."""
        factors = np.full(len(key.names), self._scale(key.optimizer, found))
        clips = sheet.clips.get(key.optimizer, []) if Key("clip", key.optimizer, slot=0) in found else []
        open_to_undo = np.ones(len(key.names), np.bool_)
        for i, clip in reversed(list(enumerate(clips))):
            clipped = _members(clip, key.names) & open_to_undo
            if clip.by_value:
                open_to_undo &= ~clipped
            else:
                factors = np.where(
                    clipped, factors * (self._clip_factor(key.optimizer, i, clip, found) or 1.0), factors
                )
        return factors

    def _layers(self, sheet: Sheet, key: Key, value: Float64, found: Mapping[Key, Float64]) -> None:
        rows = value.reshape(-1, NUM_COLUMNS)
        table = {"grad": "gradients", "weight": "weights", "update": "updates"}[key.kind]
        statistics = _UPDATE if key.kind == "update" else _ALL
        if key.kind == "grad":
            rows = rescaled(rows, 1 / self._multiplied(key, sheet, found))
        out = values(rows, statistics)
        if key.kind == "update":
            before = norm(found[Key("before", key.optimizer, key.names, key.slot)].reshape(-1, NUM_COLUMNS))
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio = np.where(before == 0, MISSING, norm(rows) / before).astype(np.float32)
            out = np.concatenate([out, ratio])

        def names() -> list[str]:
            ratios = [f"update/ratio@{name}" for name in key.names] if key.kind == "update" else []
            return tags(key.kind, key.names, statistics) + ratios

        label = self._table(table, key)
        self._append((label, key.names), label, names, Detail.LAYER, sheet.time, out)

    def _shape(self, sheet: Sheet, key: Key, value: Float64, found: Mapping[Key, Float64]) -> None:
        counts = value.reshape(-1, NUM_BINS).astype(np.int32)
        quantiles = percentiles(counts) / self._multiplied(key, sheet, found)[:, None]
        label = self._table("percentiles", key)
        self._append(
            (label, key.names),
            label,
            lambda: [f"grad/p{q}@{name}" for name in key.names for q in PERCENTS],
            Detail.LAYER,
            sheet.time,
            quantiles.reshape(-1),
        )

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
    ) -> None:
        columns = self._columns.get(key)
        if columns is None:
            if len(self._columns) >= _MOST_COLUMNS:
                self._columns.clear()
            # The names of a thousand layers are made once, not at every step.
            columns = self._columns[key] = Columns(table, names(), detail)
        with np.errstate(over="ignore"):
            self._recorder.append(Frame(columns, self.step, when, numbers.astype(np.float32)))


def rescaled(rows: Float64, factors: Float64) -> Float64:
    """The statistics of the same tensors, each times a positive factor of its own."""
    rows = rows.copy()
    rows[:, [Column.MEAN, Column.MIN, Column.MAX]] *= factors[:, None]
    rows[:, Column.M2] *= factors**2
    return rows


def _together(norms: Float64) -> float:
    """The norm of all tensors; NaN where a value of theirs is not finite, as `columns.norm` has it."""
    total = float(np.sqrt(np.sum(norms**2)))
    return total if np.isfinite(total) else float("nan")


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
