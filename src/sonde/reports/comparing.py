"""Holds runs on disk against each other."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.core import printable
from sonde.core.errors import TagNotFound
from sonde.core.frames import MISSING, Float32
from sonde.core.json_fields import flattened
from sonde.core.records import Float64, Int64
from sonde.core.tags import parse_tag
from sonde.diagnosis.architecture import module_changes, parameter_changes
from sonde.diagnosis.comparison import aligned, contrast
from sonde.diagnosis.divergence import Divergence, comparable, extend, ordered
from sonde.reports.comparison import ABSENT, Against, Comparison, Curve, Setting, Variant
from sonde.reports.figures import health
from sonde.store.reader import Run, load

if TYPE_CHECKING:
    import pyarrow as pa

AXES = ("step", "samples", "tokens", "time")
"""What curves can be aligned by."""

_ROWS = 1024  # of the first window of steps that is read; each further one is twice as long
_CELLS = 1 << 20  # values of each run that are held at a time
# Of the environment: not the same in any two runs.
_OWN = {"started", "process"}


def compare(
    first: Run | str | os.PathLike[str],
    second: Run | str | os.PathLike[str],
    *others: Run | str | os.PathLike[str],
    tag: str | None = None,
    by: str = "step",
    tolerance: float = 1e-3,
) -> Comparison:
    """What differs between runs: settings, models, curves, the first tensor that diverged, health.

    The first run is the reference, each other one is held against it. Runs may be live, of different lengths and
    models, or imported with no more than a loss; what only one of them has is left out. Series are read in pieces, so
    that memory stays bounded.

    Args:
        first: The reference, or its folder.
        second: The run to hold against it.
        others: More of them.
        tag: The series whose curves are compared; the loss where left out, or what is most like one.
        by: What they are aligned by: `step`, `samples`, `tokens`, or `time` in seconds since the run's first row.
        tolerance: Relative difference beyond which two values count as diverged, not merely not the same; at least 0.

    Raises:
        RunNotFound, RunUnreadable: there is no run there.
        TagNotFound: none of the runs has the series, or one of them did not record what to align by.

    Example:
        >>> import tempfile, sonde
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name, shift in (("a", 0.0), ("b", 0.5)):
        ...         with sonde.record(f"{folder}/{name}", config={"shift": shift}) as writer:
        ...             for step in range(100):
        ...                 writer.log({"loss": 1 + step % 7 / 100 - shift * (step >= 40)}, step=step)
        ...     found = compare(f"{folder}/a", f"{folder}/b")
        >>> found.settings[0].key, found.settings[0].values, found.against[0].contrast.separation.since
        ('config.shift', (0.0, 0.5), 40.0)
    """
    if by not in AXES:
        raise ValueError(f"`compare(by=...)` must be one of {', '.join(AXES)}, got {by!r}.")
    if not tolerance >= 0:
        raise ValueError(f"`compare(tolerance=...)` must be at least 0, got {tolerance}.")
    runs = [run if isinstance(run, Run) else load(run) for run in (first, second, *others)]
    series = _series_to_compare(runs, tag)
    variants = tuple(
        Variant(label=label, path=str(run.path), health=health(run, series), curve=_curve(run, series, by))
        for run, label in zip(runs, _labels(runs), strict=True)
    )
    return Comparison(
        tag=series,
        by=by,
        tolerance=tolerance,
        variants=variants,
        settings=_settings(runs),
        against=tuple(_against(runs, variants, i, tolerance) for i in range(1, len(runs))),
    )


def _against(runs: Sequence[Run], variants: Sequence[Variant], number: int, tolerance: float) -> Against:
    reference, other = variants[0].curve, variants[number].curve
    x, a, b = aligned(reference.x, reference.value, other.x, other.value)
    first, second = runs[0], runs[number]
    common = set(first.tags()) & set(second.tags())
    in_order = ordered(comparable(common), _depths(first))
    models = first.model, second.model  # one that a run does not tell of is not compared
    return Against(
        variant=number,
        parameters=parameter_changes(models[0], models[1]) if models[0] and models[1] else (),
        modules=module_changes(models[0], models[1]) if models[0] and models[1] else (),
        contrast=contrast(x, a, b),
        whole=_divergence(first, second, [tag for tag in in_order if "@" not in tag], tolerance),
        layers=_divergence(first, second, [tag for tag in in_order if "@" in tag], tolerance),
    )


def _series_to_compare(runs: Sequence[Run], tag: str | None) -> str:
    if tag is not None:
        if not any(tag in run.tags() for run in runs):
            runs[0].series(tag)  # raises, and says what there is
        return tag
    of_model = [[name for name in run.tags() if "@" not in name] for run in runs]
    shared = [name for name in of_model[0] if all(name in names for names in of_model)]
    if "loss" in shared or any("loss" in names for names in of_model):
        return "loss"
    return next((name for name in shared if name.lower().endswith("loss")), next(iter(shared), "loss"))


def _labels(runs: Sequence[Run]) -> list[str]:
    """The runs' names; with their folders or numbers where those are not enough to tell them apart."""
    for words in ([run.name for run in runs], [str(run.path) for run in runs]):
        labels = list(map(printable.one_line, words))
        if len(set(labels)) == len(labels):
            return labels
    return [f"{label} ({i})" for i, label in enumerate(labels, 1)]


def _curve(run: Run, tag: str, by: str) -> Curve:
    if tag not in run.tags():
        return Curve(x=np.empty(0), value=np.empty(0))
    step, value, time = run.series(tag)
    values = value.astype(np.float64)
    if by == "step":
        return Curve(x=step.astype(np.float64), value=values)
    if by == "time":
        return Curve(x=time - time[:1].sum(), value=values)  # an empty series has no first row
    counted_at, counted = _counted(run, by)
    return Curve(x=np.interp(step, counted_at, counted), value=values)


def _counted(run: Run, what: str) -> tuple[Int64, Float64]:
    """How many samples or tokens had been seen at some steps."""
    known = set(run.tags())
    rate, direct = f"throughput/{what}_per_s", f"batch/{what}"
    if {rate, "time/step"} <= known:
        per_s, seconds = run.series(rate), run.series("time/step")
        step, i, j = np.intersect1d(per_s.step, seconds.step, return_indices=True)
        each = per_s.value[i].astype(np.float64) * seconds.value[j]
    elif direct in known:
        step, value, _ = run.series(direct)
        each = value.astype(np.float64)
    else:
        raise TagNotFound(
            f"{run.path} does not say how many {what} it saw: it has neither {rate!r} nor {direct!r}; "
            "align by step or time."
        )
    finite = np.isfinite(each)
    step, each = step[finite], each[finite]
    if not len(step):
        raise TagNotFound(f"{run.path} has no finite value of {rate!r} or {direct!r}; align by step or time.")
    # A number holds for the steps since the one before it.
    return step, np.cumsum(each * np.diff(step, prepend=0))


def _settings(runs: Sequence[Run]) -> tuple[Setting, ...]:
    flat = [dict(flattened({"config": run.info.get("config"), "environment": _environment(run)})) for run in runs]
    keys = dict.fromkeys(key for settings in flat for key in settings)
    found = (Setting(key=key, values=tuple(settings.get(key, ABSENT) for settings in flat)) for key in keys)
    return tuple(setting for setting in found if any(value != setting.values[0] for value in setting.values))


def _environment(run: Run) -> Mapping[str, Any]:
    told = run.info.get("environment")
    told = {key: value for key, value in told.items() if key not in _OWN} if isinstance(told, Mapping) else {}
    command = told.get("command")
    return {**told, "command": " ".join(map(str, command))} if isinstance(command, list) else told


def _depths(run: Run) -> dict[str, int]:
    """How deep parameters and modules are: their order in the model, or in the tables where the run does not say."""
    table = run.model
    told = () if table is None else (*(row.name for row in table.parameters), *(row.name for row in table.modules))
    recorded = (parse_tag(tag).where for tag in run.last())
    places: dict[str, int] = {}
    for where in (*told, *recorded):
        if where is not None:
            places.setdefault(where, len(places))
    return places


def _divergence(first: Run, second: Run, tags: Sequence[str], tolerance: float) -> Divergence:
    """Read both runs window by window until they part, beyond the tolerance too, or end."""
    found = Divergence()
    last = min(first.steps, second.steps)
    start, rows = 0, _ROWS
    while tags and start <= last and (found.exact is None or found.beyond is None):
        end = min(start + rows - 1, last)
        num_tags = max(1, _CELLS // rows)
        for i in range(0, len(tags), num_tags):
            some = tags[i : i + num_tags]
            found = extend(found, *_side_by_side(first, second, some, start, end), tolerance=tolerance)
        start, rows = end + 1, 2 * rows
    return found


def _side_by_side(
    first: Run, second: Run, tags: Sequence[str], start: int, end: int
) -> tuple[Int64, Sequence[str], Float32, Float32]:
    tables = [run.table(tags, start=start, end=end) for run in (first, second)]
    steps = [table.column(0).to_numpy() for table in tables]
    step, *places = np.intersect1d(steps[0], steps[1], assume_unique=True, return_indices=True)
    values = [_rows(table, len(tags))[:, place] for table, place in zip(tables, places, strict=True)]
    return step, tags, values[0], values[1]


def _rows(table: "pa.Table", num_tags: int) -> Float32:
    values = np.empty((num_tags, table.num_rows), np.float32)
    for i in range(num_tags):
        column = table.column(i + 2)  # behind the step and the time
        values[i] = column.to_numpy()
        if column.null_count:
            values[i, column.is_null().to_numpy()] = MISSING
    return values
