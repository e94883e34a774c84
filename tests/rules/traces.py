"""Hand-made runs for rules: a dict of values a step goes in, what the rule sees comes out."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from sonde.core.findings import Severity
from sonde.core.frames import Columns, Frame
from sonde.core.model_table import ModelTable, ParameterRow
from sonde.core.parameter_kinds import Kind
from sonde.rules.history.run_summary import RunSummaries
from sonde.rules.rule import Look, Rule, Sighting
from sonde.rules.step_view import Fact, StepViews

Row = Mapping[str, float]
Seen = tuple[int, Sighting]


def table(**shapes: tuple[Kind, tuple[int, ...]]) -> ModelTable:
    """A model table: of each parameter its kind and shape; `__` stands for `.`."""
    return ModelTable(
        parameters=tuple(
            ParameterRow(name=name.replace("__", "."), kind=kind, shape=shape, dtype="float32")
            for name, (kind, shape) in shapes.items()
        )
    )


def judge(
    rule: Rule,
    rows: Iterable[Row],
    *,
    facts: Mapping[int, Sequence[Fact]] | None = None,
    model: ModelTable | None = None,
) -> list[Seen]:
    """What a rule sees in a run of rows, the first at step 1, each with its step; `facts` by step."""
    views, runs = StepViews(model), RunSummaries()
    summary_state, state = runs.init(), rule.init()
    columns: dict[tuple[str, ...], Columns] = {}
    seen: list[Seen] = []
    for step, row in enumerate(rows, 1):
        tags = tuple(row)
        known = columns.setdefault(tags, Columns("step", tags))
        frame = Frame(known, step, 0.0, np.array(list(row.values()), np.float32))
        view = views.take(step, [frame], (facts or {}).get(step, ()))
        summary_state, run = runs.step(summary_state, view)
        state, sightings = rule.step(state, Look(view, views, run))
        seen.extend((step, sighting) for sighting in sightings)
    return seen


def alarms(seen: Iterable[Seen]) -> list[Seen]:
    """Those that are more than information."""
    return [(step, sighting) for step, sighting in seen if sighting.severity.is_alarm]


def worst(seen: Iterable[Seen]) -> Severity | None:
    """The gravest severity, None where nothing was seen."""
    return max((sighting.severity for _, sighting in seen), default=None)


def rows(num: int, **series: Any) -> list[dict[str, float]]:
    """Rows of `num` steps: each series a number, or a value a step; `__` stands for `/` and `_at_` for `@`.

    A value of None leaves the tag out at that step.
    """
    named = {name.replace("__", "/").replace("_at_", "@"): values for name, values in series.items()}
    full = {tag: itertools.repeat(v, num) if isinstance(v, int | float) else v for tag, v in named.items()}
    table = [dict(zip(full, step, strict=True)) for step in zip(*full.values(), strict=True)]
    assert len(table) == num
    return [{tag: float(value) for tag, value in row.items() if value is not None} for row in table]


def falling(num: int, *, start: float = 2.3, end: float = 0.1, noise: float = 0.05, seed: int = 0) -> list[float]:
    """A healthy learning curve: a power law from start to end with multiplicative noise."""
    rng = np.random.default_rng(seed)
    steps = np.arange(num)
    curve = end + (start - end) * (1 + steps / 20) ** -1.0
    return list(curve * np.exp(noise * rng.normal(size=num)))


def flat(num: int, level: float = 1.0, *, noise: float = 0.05, seed: int = 0) -> list[float]:
    """A level with multiplicative noise."""
    return list(level * np.exp(noise * np.random.default_rng(seed).normal(size=num)))
