"""The health checklist: what most trainings that go well have in common, asked line by line."""

import enum
import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from sonde.core.frames import Columns, Frame
from sonde.core.model_table import ModelTable
from sonde.core.records import Float64, Series
from sonde.rules.layer_depth import latest_matrices
from sonde.rules.step_view import StepViews
from sonde.signals import lines
from sonde.signals.medians import NORMAL_FROM_MAD, median, spread

_MIN_VALUES = 20  # fewer say nothing of a level, let alone of a trend
_BLOCKS = 64
_NO_GPU = "no GPU was watched"
_MOST_TAILS = 20.0  # as rule GRD007 has it; a Laplace distribution has 5.6
_PATHS = frozenset(("grad/rms", "update/ratio", *(f"grad/p{q}" for q in (1, 25, 50, 75, 99))))


class Outcome(enum.StrEnum):
    """The answer to a line of the checklist."""

    OK = "ok"
    NOT_OK = "not ok"
    NOT_MEASURED = "not measured"


class Check(NamedTuple):
    """A line of the checklist. Where it has a number, it is in order exactly if that is in the range.

    Attributes:
        name: What was asked, as a statement that is true of a healthy training.
        standing: Whether it is.
        value: The number that was judged; NaN where there is none, and the remark says what was.
        low: The least that is in order; −inf where nothing is too little.
        high: The most that is in order; inf where nothing is too much.
        unit: Of value, low and high: "share" and "change" are shares of 1, "" has none.
        remark: What else there is to say: how it was measured, or why it was not.
    """

    name: str
    standing: Outcome
    value: float = math.nan
    low: float = -math.inf
    high: float = math.inf
    unit: str = ""
    remark: str = ""


def checklist(series: Mapping[str, Series], *, open_alarms: int, model: ModelTable | None = None) -> tuple[Check, ...]:
    """Each line of the health checklist, answered from series as they stand.

    Being outside a range is a hint and no alarm: the ranges are those of most trainings that go well, whatever the
    model, and say less than a training's own history. A line whose series is missing or too short is not measured.

    Args:
        series: The newest part of each series by tag, as long as the past that is to be judged: about 2,000 steps.
            Layers in the order of depth; of `lr` the peak as well, wherever it was. NaN and infinities are left out,
            but for the loss, where they are not in order.
        open_alarms: How many findings of severity warning or above are open.
        model: What the model is made of; None where the run does not say.

    References:
        [D26]; absolute norms mean little, and a GPU that is always busy is not a fault.

    Example:
        >>> steps, times = np.arange(200), np.zeros(200)
        >>> losses = (2 / (1 + steps / 50)).astype(np.float32)
        >>> for check in checklist({"loss": Series(steps, losses, times)}, open_alarms=0)[:3]:
        ...     print(f"{check.standing}: {check.name}")
        ok: The loss falls, or stays at its best
        ok: The loss falls smoothly
        not measured: The gradient norm is of ordinary size
    """
    series = {tag: points for tag, points in series.items() if len(points.step)}
    views = _latest(series, model)
    losses = series["loss"].value.astype(np.float64) if "loss" in series else np.empty(0)
    return (
        _falls(losses),
        _smooth(losses),
        _in_range(
            "The gradient norm is of ordinary size",
            _middle(series, "grad/norm"),
            0.1,
            10.0,
            remark="it depends on the model's size and on how the loss is averaged",
        ),
        _early_layers(views),
        _update_ratio(series, views),
        _shapes(views),
        _steady(series, ("throughput/tokens_per_s", "throughput/samples_per_s"), "Throughput is steady", 0.05),
        _steady(series, ("time/step",), "The time a step takes is steady", 0.10),
        _busy(series),
        *_memory(series),
        _in_range("No alarm is open", float(open_alarms), -math.inf, 0.0, unit="alarms"),
    )


def _finite(series: Mapping[str, Series], tag: str) -> Float64:
    values = series[tag].value.astype(np.float64) if tag in series else np.empty(0)
    return values[np.isfinite(values)]


def _middle(series: Mapping[str, Series], tag: str) -> float:
    values = _finite(series, tag)
    return float(median(values)) if len(values) else math.nan


def _in_range(
    name: str, value: float, low: float, high: float, *, unit: str = "", remark: str = "", missing: str = "not recorded"
) -> Check:
    if not math.isfinite(value):
        return Check(name, Outcome.NOT_MEASURED, low=low, high=high, unit=unit, remark=missing)
    return Check(name, Outcome.OK if low <= value <= high else Outcome.NOT_OK, value, low, high, unit, remark)


def _latest(series: Mapping[str, Series], model: ModelTable | None) -> StepViews:
    """The newest value of each layer's statistics, as the rules see them."""
    tags = [tag for tag in series if "@" in tag and tag.partition("@")[0] in _PATHS]
    views = StepViews(model)
    if tags:
        newest = np.array([series[tag].value[-1] for tag in tags], np.float32)
        views.take(0, [Frame(Columns("latest", tags), 0, 0.0, newest)], ())
    return views


def _falls(losses: Float64) -> Check:
    """Whether the loss falls or is level, and has given back no more of its fall than its noise explains."""
    name, finite = "The loss falls, or stays at its best", losses[np.isfinite(losses)]
    if len(finite) < _MIN_VALUES:
        return Check(name, Outcome.NOT_MEASURED, unit="share", remark=_too_few(finite))
    blocks = np.array([float(median(part)) for part in np.array_split(finite, min(_BLOCKS, len(finite) // 2))])
    later = blocks[len(blocks) // 2 :]
    line = lines.fit(np.arange(len(later), dtype=np.float64)[None], later[None])
    t = float(line.slope[0] / line.slope_error[0]) if line.slope_error[0] > 0 else 0.0
    trend = "falling" if t < -3 else "rising" if t > 3 else "level"
    scatter = NORMAL_FROM_MAD * float(spread(np.diff(blocks)).mad)
    now, best = float(median(blocks[-max(1, len(blocks) // 8) :])), float(blocks.min())
    fall = float(blocks[0]) - best
    standing = Outcome.NOT_OK if trend == "rising" else Outcome.OK
    if fall <= 6 * scatter:
        return Check(name, standing, unit="share", remark=f"the loss is {trend}, within its noise")
    # The least of many noisy blocks is low by chance: about three deviations.
    back, most = max(now - best, 0.0) / fall, max(0.05, 3 * scatter / fall)
    if trend != "level":  # then that is the answer, whatever it gave back
        return Check(name, standing, unit="share", remark=f"the loss is {trend} over the later half")
    remark = "the share of its fall that the loss has lost again; the loss is level over the later half"
    return _in_range(name, back, -math.inf, most, unit="share", remark=remark)


def _smooth(losses: Float64) -> Check:
    """Whether the loss hardly ever jumps up from one step to the next, and is always finite."""
    name, finite = "The loss falls smoothly", losses[np.isfinite(losses)]
    num_lost = len(losses) - len(finite)
    if len(finite) < _MIN_VALUES and not num_lost:
        return Check(name, Outcome.NOT_MEASURED, unit="jumps", remark=_too_few(finite))
    apart = np.diff(finite)
    deviation = NORMAL_FROM_MAD * float(spread(apart).mad) if len(apart) else 0.0
    num_jumps, most = int(np.sum(apart > 6 * deviation)) if deviation > 0 else 0, len(finite) // 1000 + 1
    if num_lost:
        remark = f"{num_lost} of {len(losses)} losses are NaN or infinite"
        return _in_range(name, float(num_lost), -math.inf, 0.0, unit="losses", remark=remark)
    remark = "jumps of more than 6 robust deviations from one step to the next"
    return _in_range(name, float(num_jumps), -math.inf, float(most), unit="jumps", remark=remark)


def _too_few(losses: Float64) -> str:
    return f"{_MIN_VALUES} losses are needed, and there are {len(losses)}"


def _early_layers(views: StepViews) -> Check:
    name = "Early layers get gradients like the last ones"
    layers = latest_matrices(views, "grad/rms")
    values = np.empty(0) if layers is None else layers.values[np.isfinite(layers.values)]
    third = -(-len(values) // 3)
    if len(values) < 2 or not (last := float(median(values[-third:]))) > 0:
        reason = "two weight matrices are needed" if len(values) < 2 else "the last layers' gradients are exactly zero"
        return Check(name, Outcome.NOT_MEASURED, low=0.2, high=5.0, unit="times", remark=reason)
    ratio = float(median(values[:third])) / last
    remark = "the typical gradient of the first third of the weight matrices over that of the last third"
    return _in_range(name, ratio, 0.2, 5.0, unit="times", remark=remark)


def _update_ratio(series: Mapping[str, Series], views: StepViews) -> Check:
    name = "Steps change the weights by a usual share"
    layers = latest_matrices(views, "update/ratio")
    tags = [] if layers is None else [f"update/ratio@{where}" for where in layers.names]
    measured = [tag for tag in tags if np.isfinite(series[tag].value[-1])] or ["update/ratio"]
    values = np.array([float(series[tag].value[-1]) for tag in measured if tag in series])
    step = max((int(points.step[-1]) for points in series.values()), default=0)
    low, high = (1e-3, 1e-2) if step <= 1_000 else (1e-4, 1e-3) if step <= 10_000 else (1e-5, 1e-4)
    if "lr" in series and len(values):
        # Layers are measured in turns: the rate that counts is the one at the time.
        at = np.array([series[tag].step[-1] for tag in measured], np.float64)
        rates = series["lr"].value.astype(np.float64)
        if rates.max() > 0:
            scale = max(float(median(np.interp(at, series["lr"].step, rates / rates.max()))), 0.01)
            low, high = low * scale, high * scale
    ratio = float(median(values)) if len(values) else math.nan
    return _in_range(name, ratio, low, high, unit="share", remark="range for this many steps and this learning rate")


def _shapes(views: StepViews) -> Check:
    name = "Gradients are bell-shaped around zero"
    layers = latest_matrices(views, "grad/p50")
    if layers is None or not layers.names:
        return Check(name, Outcome.NOT_MEASURED, low=0.9, unit="share", remark="not recorded")
    p1, p25, p50, p75, p99 = (_of(views, f"grad/p{q}", layers.names) for q in (1, 25, 50, 75, 99))
    quartiles = p75 - p25
    known = np.isfinite(quartiles) & np.isfinite(p99 - p1) & np.isfinite(p50)
    bell = known & (quartiles > 0) & (p99 - p1 <= _MOST_TAILS * quartiles) & (np.abs(p50) <= quartiles)
    if not known.any():
        return Check(name, Outcome.NOT_MEASURED, low=0.9, unit="share", remark="not recorded")
    remark = f"share of {known.sum()} weight matrices whose gradients are not heavy-tailed, off centre or collapsed"
    return _in_range(name, float(bell.sum() / known.sum()), 0.9, 1.0, unit="share", remark=remark)


def _of(views: StepViews, path: str, names: tuple[str, ...]) -> Float64:
    latest = views.latest(path)
    if latest is None:
        return np.full(len(names), np.nan)
    found = dict(zip(latest.names, latest.values.tolist(), strict=True))
    return np.array([found.get(name, math.nan) for name in names])


def _steady(series: Mapping[str, Series], tags: tuple[str, ...], name: str, most: float) -> Check:
    """The newest fifth against all before; the first tag that is there counts.

    Medians of 20 blocks, whose own scatter is the noise: 3 standard errors of a difference of medians are no change,
    so a series that scatters has a wider range.
    """
    for tag in tags:
        values = _finite(series, tag)
        if len(values) >= _MIN_VALUES:
            blocks = np.array([float(median(part)) for part in np.array_split(values, 20)])
            before, after = float(median(blocks[:16])), float(median(blocks[16:]))
            noise = NORMAL_FROM_MAD * float(spread(blocks).mad) * 1.25 * math.sqrt(1 / 4 + 1 / 16)
            change = after / before - 1 if before > 0 else math.nan
            remark, scatter = "the newest fifth compared with the rest", 3 * noise / before if before > 0 else 0.0
            if scatter > most:
                most, remark = scatter, f"{remark}; the range is that of its own noise"
            return _in_range(name, change, -most, most, unit="change", remark=remark)
    return Check(name, Outcome.NOT_MEASURED, low=-most, high=most, unit="change", remark="not recorded, or too short")


def _busy(series: Mapping[str, Series]) -> Check:
    busy = _middle(series, "device/utilisation")
    return _in_range("The GPU is busy", busy, 0.80, 1.0, unit="share", missing=_NO_GPU)


def _memory(series: Mapping[str, Series]) -> tuple[Check, Check]:
    total, peak = _middle(series, "memory/total"), _finite(series, "memory/peak")
    share = float(peak.max() / total) if len(peak) and total > 0 else math.nan
    room = "there is room for a larger batch" if share < 0.70 else ""
    full = _in_range("The GPU's memory is well used", share, 0.70, 0.90, unit="share", remark=room, missing=_NO_GPU)
    name, most = "Memory does not grow", 0.05
    for tag in ("memory/allocated", "host/rss"):
        values = _finite(series, tag)
        if len(values) >= 8:
            quarter = len(values) // 4
            # The first quarter is left out: caches fill and graphs are built there.
            before, after = float(median(values[quarter : 2 * quarter])), float(median(values[-quarter:]))
            whose = "the GPU" if tag == "memory/allocated" else "the process"
            growth = after / before - 1 if before > 0 else math.nan
            return full, _in_range(
                name, growth, -math.inf, most, unit="change", remark=f"of {whose}, from the second quarter to the last"
            )
    return full, Check(name, Outcome.NOT_MEASURED, high=most, unit="change", remark="eight measurements are needed")
