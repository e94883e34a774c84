"""A run on one screen, as `sonde show` prints it."""

import math
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from sonde.cli import colours
from sonde.cli.console import one_line
from sonde.core.palette import TERMINAL
from sonde.core.quantities import count, duration, moment, number
from sonde.core.sparkline import NON_FINITE, held, sparkline, spread

if TYPE_CHECKING:
    from sonde.core.records import Event, Point, State
    from sonde.store.reader import Run

_CHART_ROWS = 6
_AXIS_COLUMNS = 10
_MIN_COLUMNS = 20
_MAX_SERIES = 12
_MAX_EVENTS = 6
_MAX_PARTS = 8
_MAX_MEMBERS = 12  # of a list
# Of the environment: shown elsewhere, or of no use to a reader; `--json` has them.
_LEFT_OUT = {"packages", "command", "started", "process"}
# What people look for; the others follow by name.
_FIRST = ("loss", "val/loss", "lr", "grad/norm", "update/ratio", "time/step", "throughput/samples_per_s")


def page(run: "Run", *, width: int) -> Group:
    """State, curve of the loss, last values, model, configuration, environment and events.

    Args:
        run: What to show.
        width: Columns that the curve fills; longer lines are left to the console.
    """
    state, last = run.state, main_series(run)
    parts = [Text(one_line(run.path), style="bold"), _status(run, state), Text()]
    if curve := next((tag for tag in last if tag.endswith("loss")), next(iter(last), None)):
        parts += [_chart(run, curve, last[curve].step, width), Text()]
    sheet = Table.grid(padding=(0, 2, 0, 0))
    sheet.add_column(style="dim", overflow="fold")
    sheet.add_column(overflow="fold")
    for label, content in (*_last_values(last, state, len(run.tags())), *_model(run), *_circumstances(run)):
        sheet.add_row(Text(label), content)
    return Group(*parts, sheet)


def main_series(run: "Run") -> "dict[str, Point]":
    """The newest points of the series that are not about one parameter or module, the best known first."""
    last = {tag: point for tag, point in run.last().items() if "@" not in tag}
    known = [tag for tag in _FIRST if tag in last]
    return {tag: last[tag] for tag in (*known, *sorted(last.keys() - set(known)))}


def _status(run: "Run", state: "State") -> Text:
    line = Text.assemble(colours.ending(state.ending), f" · {state.steps:,} step{'s' * (state.steps != 1)}")
    created = run.info.get("created")
    if isinstance(created, int | float):
        until = state.updated
        if run.events("imported"):  # its state is the import's; the log may have no times
            until = max((point.time for point in run.last().values()), default=created)
        took = f" in {duration(until - created)}" if until > created else ""
        line.append(f"{took} · {moment(created)}")
    if state.reason:
        line.append(f"\n{one_line(state.reason)}", style="yellow")
    if state.dropped:
        rows = ", ".join(f"{count} of {one_line(table)}" for table, count in state.dropped.items())
        line.append(f"\nrows dropped because the disk was slow: {rows}", style="yellow")
    return line


def _chart(run: "Run", tag: str, last_step: int, width: int) -> Text:
    num_columns = max(_MIN_COLUMNS, width - _AXIS_COLUMNS)
    window = run.window(tag, points=num_columns)
    if not len(window.step):  # its newest value is known, and the rows are damaged or were not copied
        return Text(f"{one_line(tag)}: its rows cannot be read", style="dim")
    means = [
        math.nan if nonfinite else mean
        for mean, nonfinite in zip(window.mean.tolist(), window.nonfinite.tolist(), strict=True)
    ]
    columns = held(spread(window.step.tolist(), means, width=num_columns))
    finite = [value for value in columns if value is not None and math.isfinite(value)] or [math.nan]
    marks = {0: number(max(finite), largest=1e6), _CHART_ROWS - 1: number(min(finite), largest=1e6)}
    chart = Text(one_line(tag), style="dim")
    for i, row in enumerate(sparkline(columns, height=_CHART_ROWS)):
        chart.append(f"\n{marks.get(i, ''):>{_AXIS_COLUMNS - 2}} ", style="dim")
        chart.append("┤" if i in marks else "│", style="dim")
        line = Text(row, style=TERMINAL["curve"])
        line.highlight_words([NON_FINITE], style=TERMINAL["nonfinite"])
        chart.append(line)
    first, end = str(window.step[0]), str(last_step)
    chart.append(f"\n{'':{_AXIS_COLUMNS}}{first}{end:>{num_columns - len(first)}}", style="dim")
    return chart


def _last_values(last: "Mapping[str, Point]", state: "State", num_tags: int) -> Iterator[tuple[str, Text]]:
    for tag in list(last)[:_MAX_SERIES]:
        value = colours.value(last[tag].value)
        value.pad_right(max(0, 12 - len(value)))
        if last[tag].step != state.steps:
            value.append(f"at step {last[tag].step}", style="dim")
        yield one_line(tag), value
    if num_tags > min(len(last), _MAX_SERIES):
        yield "", Text(f"and {num_tags - min(len(last), _MAX_SERIES)} more series", style="dim")
    yield "", Text()


def _model(run: "Run") -> Iterator[tuple[str, Text]]:
    from sonde.reports.model_summary import parts, sentence

    if run.model is None or not run.model.parameters:
        return
    yield "model", Text(one_line(sentence(run.model)))
    found = parts(run.model)
    for part in found[:_MAX_PARTS]:
        size = count(part.num_values, "value")
        times = f"{part.num_modules} × " if part.num_modules > 1 else ""
        yield "", Text.assemble(one_line(part.name), (f"  {times}{one_line(part.type)}  {size}", "dim"))
    if len(found) > _MAX_PARTS:
        yield "", Text(f"and {len(found) - _MAX_PARTS:,} more parts", style="dim")


def _circumstances(run: "Run") -> Iterator[tuple[str, Text]]:
    if config := list(_words(run.info.get("config"))):
        yield "config", Text("  ").join(config)
    environment = run.info.get("environment")
    if isinstance(environment, Mapping):
        versions = environment.get("packages")
        rest = {name: value for name, value in environment.items() if name not in _LEFT_OUT}
        if words := [*_words(versions), *_words(rest)]:
            yield "environment", Text("  ").join(words)
        if isinstance(command := environment.get("command"), list) and command:
            yield "command", Text(one_line(shlex.join([Path(str(command[0])).name, *map(str, command[1:])])))
    if len(run.branches) > 1:
        current = run.branches[-1]
        yield "branches", Text(f"{len(run.branches)}; the current one begins at step {current.fork_step}")
    events = run.events()
    for i, event in enumerate(events[-_MAX_EVENTS:]):
        yield "" if i else "events", _event(event)
    if len(events) > _MAX_EVENTS:
        yield "", Text(f"and {len(events) - _MAX_EVENTS} before", style="dim")
    for i, problem in enumerate(run.problems):
        yield "" if i else "damaged", Text(one_line(problem), style="yellow")


def _event(event: "Event") -> Text:
    where = "" if event.step is None else f" at step {event.step}"
    words = _finding(event.data) if event.kind == "finding" else None
    words = words or Text("  ").join(_words(event.data))
    return Text.assemble(one_line(event.kind), (where, "dim"), "  " if words else "", words)


def _finding(data: "Mapping[str, Any]") -> Text | None:
    """What was found, in a line; None where the event says something else."""
    from sonde.core.errors import FormatError
    from sonde.core.findings import Finding

    try:
        found = Finding.from_json(dict(data))
    except FormatError:
        return None
    return Text(one_line(f"{found.code} {found.name}  {found.severity}  {found.message}"))


def _words(value: Any, name: str = "") -> Iterator[Text]:
    """Nested settings as `outer.inner=value`; members of a list that are no single values as `outer.0.inner=value`."""
    if isinstance(value, list | tuple):
        shown = value[:_MAX_MEMBERS]
        if any(isinstance(item, Mapping | list | tuple) for item in shown):
            value = dict(enumerate(shown))
        else:
            more = f" and {len(value) - len(shown):,} more" if len(value) > len(shown) else ""
            value = ", ".join(map(one_line, shown)) + more
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _words(item, f"{name}.{key}" if name else str(key))
    elif value is not None:
        text = one_line(value)
        quoted = f'"{text}"' if isinstance(value, str) and " " in text else text
        yield Text.assemble((f"{one_line(name)}=", "dim"), quoted)
