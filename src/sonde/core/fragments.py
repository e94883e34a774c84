"""Pieces of HTML for notebooks: everything that comes from a run is escaped, and styles are the tags' own."""

import math
from collections.abc import Iterable, Sequence
from html import escape

from sonde.core.palette import LIGHT

_WIDTH, _HEIGHT = 360, 64


def sheet(title: str, rows: Iterable[tuple[str, str]], *, below: str = "") -> str:
    """A heading over a table of two columns; empty rows are left out.

    Args:
        title: As text.
        rows: A label and what it says, as text.
        below: HTML that stands behind the table.

    Example:
        >>> sheet("<run>", [("steps", "5")]).count("&lt;run&gt;")
        1
    """
    lines = "".join(
        f'<tr><td style="text-align:left;opacity:.7">{escape(label)}</td>'
        f'<td style="text-align:left">{escape(said)}</td></tr>'
        for label, said in rows
        if said
    )
    return f'<div><strong>{escape(title)}</strong><table style="margin:.3em 0">{lines}</table>{below}</div>'


def told(text: str) -> str:
    """Lines of text as they are."""
    return f'<pre style="white-space:pre-wrap;margin:.3em 0">{escape(text)}</pre>'


def badge(word: str, text: str) -> str:
    """A text in the colour of a verdict or severity."""
    colour = LIGHT.get(word, LIGHT["unknown"])
    return f'<span style="color:{colour};font-weight:600">{escape(text)}</span>'


def folded(heading: str, text: str) -> str:
    """Lines of text behind a heading, HTML already, that opens them."""
    return f'<details style="margin:.2em 0"><summary>{heading}</summary>{told(text)}</details>'


def page(document: str) -> str:
    """A whole page within a page, which shares no style with it and runs nothing."""
    return (
        f'<iframe srcdoc="{escape(document)}" sandbox style="width:100%;height:640px;border:1px solid #8884" '
        'title="Sonde"></iframe>'
    )


def curve(values: Sequence[float], label: str) -> str:
    """A series as a small picture, with gaps where it is not finite; "" where nothing of it is."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return ""
    low, high = min(finite), max(finite)
    room = (high - low) or 1.0
    parts: list[str] = []
    for i, value in enumerate(values):
        if math.isfinite(value):
            x = _WIDTH * i / max(1, len(values) - 1)
            y = 2 + (_HEIGHT - 4) * (high - value) / room
            begins = i == 0 or not math.isfinite(values[i - 1])
            parts.append(f"{'M' if begins else 'L'}{x:.1f} {y:.1f}")
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="{escape(label)}">'
        f'<path d="{"".join(parts)}" fill="none" stroke="{LIGHT["series-0"]}" stroke-width="1.5"/></svg>'
    )
