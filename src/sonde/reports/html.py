"""A document as one HTML file that needs nothing else, and drawings as one SVG file."""

import base64
import hashlib

from sonde.core import palette
from sonde.core.templates import templates
from sonde.reports import drawing, strips
from sonde.reports.charts import Chart
from sonde.reports.document import Document, Line
from sonde.reports.shapes import Drawing

_WIDE = 1120
_SHORT = 20  # letters: a cell of fewer is not broken into lines
_TEMPLATES = templates("sonde.reports")


def html(document: Document) -> str:
    """The whole page."""
    script = _TEMPLATES.get_template("hover.js").render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # Nothing may be fetched, and nothing run but our own script, whatever a name in the run may hold.
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    return _TEMPLATES.get_template("page.html").render(
        document=document, policy=policy, palette=palette, draw=_draw, is_short=_is_short, kind=_kind
    )


def svg(*charts: Chart, width: int = 1000, height: int = 300) -> str:
    """Charts one above the other as one SVG file, in the light colours, which any converter takes."""
    drawings = [drawing.drawn(chart, width=width, height=height) for chart in charts]
    return _TEMPLATES.get_template("pictures.svg").render(drawings=drawings, palette=palette)


def _draw(picture: Chart | strips.Strip, num: int) -> Drawing:
    """A picture that shares its row with others, `num` in all."""
    if isinstance(picture, strips.Strip):
        return strips.drawn(picture, width=_WIDE)
    return drawing.drawn(picture, width=_WIDE, height=290) if num == 1 else drawing.drawn(picture)


def _is_short(cell: Line) -> bool:
    return sum(len(piece) if isinstance(piece, str) else _SHORT for piece in cell) < _SHORT


def _kind(part: object) -> str:
    return type(part).__name__
