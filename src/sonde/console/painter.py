"""Rows of text with the codes by which terminals colour them."""

import io
from collections.abc import Mapping

from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.text import Text


class Painter:
    r"""Turns a row into characters and codes; with `NO_COLOR` in the environment bold and dim are all there is.

    Args:
        environ: Of the process.

    Example:
        >>> Painter({})(Text.assemble("loss ", ("NaN", "bold red")))
        'loss \x1b[1;31mNaN\x1b[0m'
        >>> Painter({"NO_COLOR": "1"})(Text.assemble("loss ", ("NaN", "bold red")))
        'loss \x1b[1mNaN\x1b[0m'
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._plain = bool(environ.get("NO_COLOR"))
        self._console = Console(file=io.StringIO(), force_terminal=True, highlight=False)  # knows what styles mean

    def __call__(self, row: Text) -> str:
        segments = row.render(self._console, end="")
        return "".join(
            segment.style.render(segment.text, color_system=ColorSystem.STANDARD) if segment.style else segment.text
            for segment in (Segment.remove_color(segments) if self._plain else segments)
        )
