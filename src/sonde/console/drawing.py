"""A view drawn for a terminal of some width: a few rows in colour, or one plain line."""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from sonde.console import strips
from sonde.console.glyphs import Glyphs
from sonde.console.view import Layers, Memory, Value, View
from sonde.core import palette, printable
from sonde.core.findings import Finding, Severity
from sonde.core.groups import groups
from sonde.core.quantities import amount, clock, compact, count, number
from sonde.core.sparkline import sparkline, spread

if TYPE_CHECKING:
    from rich.text import Text

ROWS = 8
"""A rule, the step, the loss, other figures, the layers, three findings."""

_LABEL = 9  # columns
_FINDINGS = 3
_MOST_VALUES = 3
_SHORTEST_CURVE, _LONGEST_CURVE = 8, 60
_SHORTEST_BAR, _LONGEST_BAR = 6, 40
_LONGEST_LEGEND, _ROOM_FOR_LEGEND = 38, 66

_GIB = 1 << 30
_STYLES = palette.TERMINAL
_SIGNS = {
    Severity.CRITICAL: strips.SIGNS[strips.CRITICAL],
    Severity.WARNING: strips.SIGNS[strips.WARNING],
    Severity.INFO: "i",
}
_MEANINGS = {
    strips.CRITICAL: "critical",
    strips.LOST: "NaN",
    strips.WARNING: "warning",
    strips.ZERO: "zero",
}

Piece = tuple[str, str]
"""A text and its style."""


def rows(view: View, *, width: int, glyphs: Glyphs) -> "list[Text]":
    """The view in `ROWS` rows of at most `width` columns. What there is no room for is left out, figure by figure."""
    drawn = [
        _rule(view, width, glyphs),
        _row("step", _progress(view, width - _LABEL, glyphs), width, glyphs),
        _row("loss", _losses(view, width - _LABEL, glyphs), width, glyphs),
        _row("", _figures(view), width, glyphs),
        _row("layers", _layers(view, width - _LABEL, glyphs), width, glyphs),
    ]
    found = list(_findings(view))
    drawn += [_row("" if i else "findings", pieces, width, glyphs) for i, pieces in enumerate(found)]
    return drawn + [_row("", [], width, glyphs)] * (ROWS - len(drawn))


def line(view: View) -> str:
    """The view in one line of plain text.

    Example:
        >>> print(line(View(run="demo", step=1240, total_steps=5000, steps_per_s=8.42, losses=(Value("", 0.2834),))))
        step 1,240/5,000 (24%)  8.42 steps/s  ETA 7:26  loss 0.2834  no open finding
    """
    said = [f"step {_step(view)}" + (f" ({_percent(view)})" if view.share is not None else "")]
    if view.is_silent:
        said.append(f"no step for {clock(view.silent_s)}")
    elif view.steps_per_s is not None:
        said.append(f"{compact(view.steps_per_s)} steps/s")
    if view.left_s is not None:
        said.append(f"ETA {clock(view.left_s)}")
    if view.epoch is not None:
        said.append(_epoch(view))
    said += [_named("loss", loss) for loss in view.losses[:_MOST_VALUES]]
    if view.losses and view.loss_ema is not None:
        said[-1] += f" (EMA {number(view.loss_ema)})"
    if view.validation is not None:
        said.append(f"val {number(view.validation)}")
    said += ["".join(text for text, _ in pieces) for pieces in _figures(view)]
    if view.findings:
        worst, *others = _troubles(view.findings)
        said.append(f"open: {worst.title}" + (f" (+{len(others)})" if others else ""))
    elif view.findings is not None:
        said.append("no open finding")
    return printable.one_line("  ".join(said))


def _rule(view: View, width: int, glyphs: Glyphs) -> "Text":
    from rich.text import Text

    ending, style = view.ending, _STYLES[view.ending]
    if view.is_silent:
        ending, style = f"no step for {clock(view.silent_s)} of", _STYLES["warning"]
    right = Text.assemble(" ", (ending, style), f" {clock(view.elapsed_s)} ", (glyphs.rule * 2, "dim"))
    drawn = Text.assemble((glyphs.rule * 2, "dim"), " ", ("Sonde", "bold"), " ")
    name = printable.inline(view.run)
    drawn.append(_cut(name, width - drawn.cell_len - right.cell_len - 2, glyphs, keep_end=True))
    drawn.append(" ")
    drawn.append(glyphs.rule * (width - drawn.cell_len - right.cell_len), style="dim")
    drawn.append(right)
    drawn.truncate(width)
    return drawn


def _row(label: str, pieces: Iterable[Sequence[Piece]], width: int, glyphs: Glyphs) -> "Text":
    """A label and as many of the figures as have room, two columns apart."""
    from rich.text import Text

    drawn = Text.assemble((f"{label:{_LABEL}}", "dim"), no_wrap=True)
    first = True
    for some in pieces:
        figure = Text.assemble(*((printable.inline(text), style) for text, style in some))
        if not figure.cell_len:
            continue
        gap = 0 if first else 2
        if drawn.cell_len + gap + figure.cell_len > width:
            if first:  # better cut than nothing
                drawn.append(_cut(figure.plain, width - drawn.cell_len, glyphs))
                break
            continue
        drawn.append(" " * gap)
        drawn.append(figure)
        first = False
    drawn.truncate(width)
    return drawn


def _progress(view: View, room: int, glyphs: Glyphs) -> Iterator[list[Piece]]:
    step, percent = _step(view), _percent(view)
    said = [f"ETA {clock(view.left_s)}"] if view.left_s is not None else []
    if view.steps_per_s is not None:
        said.append(f"{compact(view.steps_per_s)}/s")
    if view.epoch is not None:
        said.append(_epoch(view))
    yield [(step, "bold")]
    share = view.share
    if share is not None:
        taken = sum(len(word) + 2 for word in (step, percent, *said))
        length = min(_LONGEST_BAR, room - taken)
        if length >= _SHORTEST_BAR:
            done = round(share * length)
            yield [(glyphs.done * done, "cyan"), (glyphs.to_do * (length - done), "dim")]
        yield [(percent, "")]
    for word in said:
        yield [(word, "")]


def _step(view: View) -> str:
    return f"{view.step:,}/{view.total_steps:,}" if view.total_steps else f"{view.step:,}"


def _percent(view: View) -> str:
    return "" if view.share is None else f"{math.floor(100 * view.share)}%"  # 100% is when it is over


def _epoch(view: View) -> str:
    under_way = (view.epoch or 0) + (view.ending == "live" and view.share != 1)
    if view.total_epochs:
        return f"epoch {min(under_way, view.total_epochs)}/{view.total_epochs}"
    return f"epoch {under_way}"


def _losses(view: View, room: int, glyphs: Glyphs) -> Iterator[list[Piece]]:
    if not view.losses:
        yield [("none yet", "dim")]
        return
    shown = [_value(loss, "bold") for loss in view.losses[:_MOST_VALUES]]
    if view.loss_ema is not None:
        shown.append([("EMA ", "dim"), *_value(Value("", view.loss_ema))])
    if view.validation is not None:
        shown.append([("val ", "dim"), *_value(Value("", view.validation))])
    while len(shown) > 1 and room - _taken(shown) < _SHORTEST_CURVE:  # a curve says more
        shown.pop()
    yield from shown
    width = min(_LONGEST_CURVE, room - _taken(shown))
    if width >= _SHORTEST_CURVE:
        columns = spread(range(len(view.curve)), view.curve, width=min(width, len(view.curve)))
        (curve,) = sparkline(columns, levels=glyphs.levels, non_finite=glyphs.lost)
        alike = groupby(curve, key=lambda sign: _STYLES["nonfinite" if sign == glyphs.lost else "curve"])
        yield [("".join(some), style) for style, some in alike]


def _taken(shown: Sequence[Sequence[Piece]]) -> int:
    return sum(len(text) for pieces in shown for text, _ in pieces) + 2 * len(shown)


def _figures(view: View) -> Iterator[list[Piece]]:
    for rate in view.learning_rates[:_MOST_VALUES]:
        yield [(_title("lr", rate) + " ", "dim"), (number(rate.value), "")]
    for norm in view.gradient_norms[:_MOST_VALUES]:
        style = "" if math.isfinite(norm.value) else _STYLES["nonfinite"]
        yield [(_title("grad norm", norm) + " ", "dim"), (number(norm.value), style)]
    if view.memory is not None:
        yield _memory(view.memory)
    if view.tokens_per_s is not None:
        yield [(f"{compact(view.tokens_per_s)} tokens/s", "")]
    if view.samples_per_s is not None:
        yield [(f"{compact(view.samples_per_s)} samples/s", "")]


def _memory(memory: Memory) -> list[Piece]:
    if memory.total is None:
        return [(f"{memory.of} ", "dim"), (f"{amount(memory.used / _GIB)} GiB", "")]
    style = _STYLES["warning"] if memory.used > 0.95 * memory.total else ""
    return [(f"{memory.of} ", "dim"), (f"{amount(memory.used / _GIB)}/{amount(memory.total / _GIB)} GiB", style)]


def _layers(view: View, room: int, glyphs: Glyphs) -> Iterator[list[Piece]]:
    layers = view.layers
    if not layers.names:
        yield [("not measured yet" if view.ending == "live" else "not measured", "dim")]
        return
    # Of many layers the words beside them matter as much as finer cells.
    cells = min(len(layers.names), room if room < _ROOM_FOR_LEGEND else room - _LONGEST_LEGEND)
    strip = strips.strip(layers, width=cells, glyphs=glyphs)
    alike = groupby(strip.cells, key=lambda cell: _STYLES[cell.health])
    yield [("".join(cell.sign for cell in some), style) for style, some in alike]
    spare = room - len(strip.cells) - 2
    yield [(next((said for said in _legends(strip, layers) if len(said) <= spare), ""), "dim")]


def _legends(strip: strips.Strip, layers: Layers) -> Iterator[str]:
    """What the strip means, the longest first."""
    there = {cell.health for cell in strip.cells}
    signs = ", ".join(f"{strips.SIGNS[health]} {meaning}" for health, meaning in _MEANINGS.items() if health in there)
    grouped = f", {strip.layers_per_cell} a cell" if strip.layers_per_cell > 1 else ""
    said = f"{count(len(layers.names), 'layer')}{grouped}"
    if signs:
        yield f"{said}: {signs}"
        yield signs
    elif strip.low is not None and strip.high is not None:
        low, high = (number(value, 1) for value in (strip.low, strip.high))
        yield f"{said}, {layers.what} {low} to {high}"
    yield said


def _findings(view: View) -> Iterator[list[list[Piece]]]:
    if view.findings is None:
        yield [[("not looked for", "dim")]]
    elif not view.findings:
        yield [[("none open", _STYLES["ok" if view.step else "label"])]]
    else:
        troubles = list(_troubles(view.findings))
        fits = len(troubles) <= _FINDINGS
        shown = troubles[: _FINDINGS if fits else _FINDINGS - 1]
        for trouble in shown:
            yield [
                [(f"{_SIGNS[trouble.severity]} {trouble.title}", _STYLES[trouble.severity])],
                [(f"since step {trouble.first_step:,}", "")],
                [(trouble.more, "dim")],
            ]
        if not fits:
            yield [[(f"and {len(troubles) - len(shown)} more", "dim")]]


class _Trouble(NamedTuple):
    """A cause, or a finding whose cause is not known."""

    title: str
    severity: Severity
    first_step: int
    more: str


def _troubles(findings: Sequence[Finding]) -> Iterator[_Trouble]:
    """The worst first."""
    for group in groups(findings):
        if group.cause is not None:
            first, num = group.findings[0], len(group.findings)
            title = f"{group.cause}, {num} alarms" if num > 1 else group.cause.value
            yield _Trouble(title, group.severity, group.first_step, f"{first.code} {first.name}")
            continue
        for finding in group.findings:
            others = f" (+{len(finding.where) - 1})" if len(finding.where) > 1 else ""
            place = f"{finding.where[0]}{others}" if finding.where else ""
            yield _Trouble(f"{finding.code} {finding.name}", finding.severity, finding.first_step, place)


def _value(value: Value, style: str = "") -> list[Piece]:
    name = [(f"{value.name} ", "dim")] if value.name else []
    return [*name, (number(value.value), style if math.isfinite(value.value) else _STYLES["nonfinite"])]


def _title(kind: str, value: Value) -> str:
    return f"{kind} {value.name}" if value.name else kind


def _named(kind: str, value: Value) -> str:
    return f"{_title(kind, value)} {number(value.value)}"


def _cut(text: str, room: int, glyphs: Glyphs, *, keep_end: bool = False) -> str:
    if len(text) <= room:
        return text
    if room < 1:
        return ""
    return glyphs.cut + text[len(text) - room + 1 :] if keep_end else text[: room - 1] + glyphs.cut
