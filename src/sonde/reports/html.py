"""A document as one HTML file that needs nothing else: no script, no font, no picture from anywhere."""

from collections.abc import Iterator
from importlib.resources import files

from sonde.reports import charts, strips
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
    Paragraph,
    Piece,
    Strong,
    Table,
)
from sonde.reports.escaping import escape

_WIDE = 1120
_SHORT = 20  # letters: a cell of fewer is not broken into lines


def html(document: Document) -> str:
    """The whole page."""
    style = files("sonde.reports").joinpath("report.css").read_text(encoding="utf-8")
    body = "\n".join(_blocks(document.blocks))
    # Nothing may be fetched or run, whatever a name in the run may hold.
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{escape(document.title)}</title>
<style>
{style}</style>
</head>
<body>
<main>
<header><h1>{escape(document.title)}</h1><p>{escape(document.subtitle)}</p></header>
{body}
</main>
</body>
</html>
"""


def _blocks(blocks: tuple[Block, ...]) -> Iterator[str]:
    for block in blocks:
        yield _block(block)


def _block(block: Block) -> str:
    match block:
        case Heading(text):
            return f"<h2>{escape(text)}</h2>"
        case Paragraph(line, is_remark):
            return f'<p class="remark">{_line(line)}</p>' if is_remark else f"<p>{_line(line)}</p>"
        case Items(lines, is_ordered):
            name = "ol" if is_ordered else "ul"
            return f"<{name}>{''.join(f'<li>{_line(line)}</li>' for line in lines)}</{name}>"
        case Table():
            return _table(block)
        case Facts(facts):
            tiles = (
                f"<div><dt>{escape(fact.name)}</dt><dd>{escape(fact.value)}</dd>"
                f'<dd class="remark">{escape(fact.remark)}</dd></div>'
                for fact in facts
            )
            return f'<dl class="facts">{"".join(tiles)}</dl>'
        case Figure():
            return _figure(block, width=_WIDE)
        case Figures(figures):
            width = _WIDE if len(figures) == 1 else _WIDE // 2
            drawn = "".join(_figure(figure, width=width) for figure in figures)
            return f'<div class="figures n{min(len(figures), 2)}">{drawn}</div>'
        case Fold(summary, blocks):
            return f"<details><summary>{_line(summary)}</summary>{''.join(_blocks(blocks))}</details>"
        case Card(kind, title, blocks, is_verdict):
            name = "h2" if is_verdict else "h3"
            role = "verdict" if is_verdict else "finding"
            inside = "".join(_blocks(blocks))
            return f'<section class="card {role} {escape(kind)}"><{name}>{_line(title)}</{name}>{inside}</section>'


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in table.head)
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in table.rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _cell(line: Line) -> str:
    num_letters = sum(len(piece) if isinstance(piece, str) else _SHORT for piece in line)
    return f'<td class="short">{_line(line)}</td>' if num_letters < _SHORT else f"<td>{_line(line)}</td>"


def _figure(figure: Figure, *, width: int) -> str:
    picture = figure.picture
    if isinstance(picture, strips.Strip):
        drawn = strips.svg(picture, width=width)
    else:
        drawn = charts.svg(picture, width=width, height=290 if width == _WIDE else 250)
    return f"<figure>{drawn}<figcaption>{_line(figure.caption)}</figcaption></figure>"


def _line(line: Line) -> str:
    return "".join(map(_piece, line))


def _piece(piece: Piece) -> str:
    match piece:
        case Code(text):
            return f"<code>{escape(text)}</code>"
        case Strong(text):
            return f"<strong>{escape(text)}</strong>"
        case Badge(word):
            return f'<span class="badge {escape(word.replace(" ", "-"))}">{escape(word)}</span>'
    return escape(piece)
