"""A document as Markdown: the same words and tables, curves as rows of block characters."""

import re
from collections.abc import Iterator, Sequence
from html import escape

import numpy as np

from sonde.core import printable
from sonde.core.palette import NUM_HEATS
from sonde.core.quantities import number
from sonde.core.records import Float64
from sonde.core.sparkline import NON_FINITE, level, sparkline, spread
from sonde.reports.charts import Chart, Curve
from sonde.reports.document import (
    Badge,
    Block,
    Card,
    Code,
    Document,
    Facts,
    Figure,
    Figures,
    Fold,
    Heading,
    Items,
    Line,
    Named,
    Paragraph,
    Piece,
    Strong,
    Table,
)
from sonde.reports.scales import Scale
from sonde.reports.strips import Strip

_COLUMNS = 60
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&])")
# Addresses that GitHub and others make links of, without any mark around them.
_ADDRESS = re.compile(
    r"(:)(?=//)|(?<=\bwww)(\.)|(?<=[\w.+-])(@)(?=[\w-]+\.)|(?<=\bmailto)(:)|(?<=\bxmpp)(:)", re.IGNORECASE
)
_BEGINNING = re.compile(r"^(\s*)(?:([-+=])|(\d+)([.)]))(?=\s|$|[-+=])")
_BAR = re.compile(r"(?<!\\)\|")
_ESCAPED_BAR = r"\\|"
_TICKS = re.compile("`+")
_SIGNS = {
    "critical": "🔴 critical",
    "warning": "🟠 warning",
    "info": "🔵 information",
    "ok": "✓ ok",
    "not ok": "✗ **not ok**",
    "not measured": "– not measured",
}


def markdown(document: Document) -> str:
    """The whole text."""
    parts = [f"# {_escaped(document.title)}", _escaped(document.subtitle), *_blocks(document.blocks)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _blocks(blocks: Sequence[Block]) -> Iterator[str]:
    for block in blocks:
        yield _block(block)


def _block(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {_escaped(text)}"
        case Paragraph(line, is_remark):
            return f"*{_line(line)}*" if is_remark and not _has_marks(line) else _begun(_line(line))
        case Items(lines, is_ordered):
            return "\n".join(
                f"{f'{i}.' if is_ordered else '-'} {_begun(_line(line))}" for i, line in enumerate(lines, 1)
            )
        case Table(head, rows):
            return _table(head, [[_line(cell) for cell in row] for row in rows])
        case Facts(facts):
            return _table(
                ("", "", ""), [[_escaped(f.name), f"**{_escaped(f.value)}**", _escaped(f.remark)] for f in facts]
            )
        case Figures(figures):
            return "\n\n".join(map(_figure, figures))
        case Fold(summary, blocks):
            inside = "\n\n".join(_blocks(blocks))
            return f"<details><summary>{_summary(summary)}</summary>\n\n{inside}\n\n</details>"
        case Card(_, title, blocks, is_verdict):
            named = f"{'##' if is_verdict else '###'} {_line(title)}"
            return "\n\n".join([named, *_blocks(blocks)])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines: list[Sequence[str]] = [[_escaped(name) for name in head], ["---"] * len(head), *rows]
    # A bar ends a cell, even inside of code.
    return "\n".join(f"| {' | '.join(_BAR.sub(_ESCAPED_BAR, cell) for cell in line)} |" for line in lines)


def _figure(figure: Figure) -> str:
    picture = figure.picture
    rows = _strip(picture) if isinstance(picture, Strip) else _chart(picture)
    return f"{_begun(_line(figure.caption))}\n\n```text\n" + "\n".join(rows) + "\n```"


def _chart(chart: Chart) -> Iterator[str]:
    x, y = chart.x_scale(), chart.y_scale()
    note = ", log scale" if y.is_log else ""
    yield f"{_one_line(chart.y_label)}{note}; {_one_line(chart.x_label)} {x.low:,.0f} to {x.high:,.0f}"
    for curve in (curve for curve in chart.curves if curve.label):
        finite = curve.value[np.isfinite(curve.value)]
        ends = f"{number(float(finite[0]))} → {number(float(finite[-1]))}" if len(finite) else "no finite value"
        yield f"{_row(curve, x, y)}  {_one_line(curve.label)}: {ends}"
    for moment in chart.moments:
        if 0 <= (place := x.place(moment.step)) <= 1:
            yield f"{' ' * min(_COLUMNS - 1, int(place * _COLUMNS))}^ {_one_line(moment.label)}"
    for label in (*(one.label for one in chart.levels), *(one.label for one in chart.bands)):
        if label:
            yield _one_line(label)
    if any(len(curve.lost) for curve in chart.curves):
        yield f"{NON_FINITE} is NaN or infinite"


def _row(curve: Curve, x: Scale, y: Scale) -> str:
    """A curve as one row of blocks: the mean of the values in each column, `×` where one of them was not finite."""
    there = np.isfinite(curve.value)
    steps = np.concatenate([curve.step[there], curve.lost])
    heights = np.concatenate([y.places(curve.value[there]), np.full(len(curve.lost), np.nan)])
    order = np.argsort(steps, kind="stable")
    columns = spread(steps[order].tolist(), heights[order].tolist(), width=_COLUMNS, span=(x.low, x.high))
    return sparkline(columns, low=0.0, high=1.0)[0].rstrip()


def _strip(strip: Strip) -> Iterator[str]:
    shade, borders = strip.shades()
    width = max(map(len, strip.names), default=0)
    if len(borders):
        yield f"{_one_line(strip.label)}, log scale from {number(float(borders[0]))} to {number(float(borders[-1]))}"
    for name, row, values in zip(strip.names, shade, strip.values, strict=True):
        yield f"{_one_line(name):<{width}}  {_shaded(row, values)}"


def _shaded(shade: Float64, values: Float64) -> str:
    signs = []
    for column in np.array_split(np.arange(len(shade)), min(_COLUMNS, len(shade))):
        known = shade[column][np.isfinite(shade[column])]
        if np.isinf(values[column]).any():
            signs.append(NON_FINITE)
        else:
            signs.append(level(float(known.mean()) / (NUM_HEATS - 1)) if len(known) else " ")
    return "".join(signs)


def _line(line: Line) -> str:
    return "".join(map(_piece, line))


def _summary(line: Line) -> str:
    """A line inside of an HTML element, where Markdown's marks mean nothing."""
    parts = []
    for piece in line:
        text = _SIGNS.get(piece.word, piece.word) if isinstance(piece, Badge) else getattr(piece, "text", piece)
        shown = escape(printable.inline(text))
        parts.append(f"<b>{shown}</b>" if isinstance(piece, Strong) else shown)
    return "".join(parts)


def _has_marks(line: Line) -> bool:
    return not all(isinstance(piece, str) for piece in line)


def _piece(piece: Piece) -> str:
    match piece:
        case Code(text):
            shown = printable.one_line(text)
            fence = "`" * (1 + max(map(len, _TICKS.findall(shown)), default=0))  # a shorter one does not end it
            pad = " " if "`" in shown else ""
            return f"{fence}{pad}{shown}{pad}{fence}" if shown else ""
        case Strong(text) | Named(text):
            bare = text.strip()  # stars next to a space are stars
            before, _, after = text.partition(bare)
            return f"{before}**{_escaped(bare)}**{after}" if bare else text
        case Badge(word):
            return _SIGNS.get(word, _escaped(word))
    return _escaped(piece)


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is."""
    marks = _SPECIAL.sub(r"\\\1", printable.inline(text))
    return _ADDRESS.sub(lambda found: f"\\{found.group()}", marks)


def _begun(line: str) -> str:
    """A line that Markdown does not take for the beginning of a list or the underlining of a heading."""
    return _BEGINNING.sub(lambda found: f"{found[3]}\\{found[4]}" if found[3] else f"\\{found[2]}", line)


def _one_line(text: str) -> str:
    """Text inside of a block of code, which knows no escapes: it may not end the code either."""
    return printable.inline(text).replace("```", "'''")
