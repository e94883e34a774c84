"""What a picture is drawn with: shapes of SVG, each with its colours written on it.

Mail programs and converters know neither style sheets nor themes, so that every shape has the light theme's colours as
attributes. On a page the classes beside them win: `fill-ink` is the ink of the reader's theme.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sonde.core.palette import LIGHT

LETTER, BOLD = 6.6, 7.6  # mean width of a letter of the labels, in units of the picture


class Shape(NamedTuple):
    """An element of SVG: its name, its attributes, its text."""

    name: str
    attributes: Mapping[str, object]
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """Shapes on their paper.

    Args:
        label: What is to be seen, for who does not see it.
        width: In units of the picture.
        height: Likewise.
        shapes: The first at the bottom.
        plot: For the script of the page, where curves lie and what their places mean: left, right, top and bottom; the
            first and the last step; the lowest and the highest value, and 1 where these go by the logarithm, else 0.
    """

    label: str
    width: int
    height: int
    shapes: tuple[Shape, ...]
    plot: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Paint:
    """Colours by their names in the palette, and how a line is drawn.

    Args:
        stroke: Of the line; none where left out.
        fill: Of the area; none where left out.
        more: Further attributes of SVG.
    """

    stroke: str = ""
    fill: str = ""
    more: Mapping[str, object] = field(default_factory=dict)

    def on(self, name: str, attributes: Mapping[str, object], *, kind: str = "", text: str = "") -> Shape:
        """A shape of this look; `kind` is a class that says what it is."""
        named = [kind, f"fill-{self.fill}" if self.fill else "", f"stroke-{self.stroke}" if self.stroke else ""]
        colours = {"fill": LIGHT[self.fill] if self.fill else "none"}
        if self.stroke:
            colours["stroke"] = LIGHT[self.stroke]
        return Shape(name, {"class": " ".join(filter(None, named)), **attributes, **colours, **self.more}, text)

    def path(self, d: str, *, kind: str = "", label: str = "") -> Shape:
        """A path; a label is what the page's script calls it."""
        return self.on("path", {"d": d, **({"data-label": label} if label else {})}, kind=kind)


SOFT, STRONG = Paint(fill="soft"), Paint(fill="ink", more={"font-weight": 600, "font-size": 13})
ALARM = Paint(fill="critical", more={"font-weight": 600})


def writing(x: float, y: float, text: str, paint: Paint = SOFT, *, anchor: str = "start") -> Shape:
    """A text that begins, ends or has its middle at a place, as `anchor` says."""
    return paint.on("text", {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor}, text=text)


def shortened(text: str, most: int) -> str:
    """Text of at most so many letters, the middle left out.

    Example:
        >>> shortened("Gradient size of blocks.0.weight", 16)
        'Gradien….0.weight'
    """
    if len(text) <= most:
        return text
    half = max(1, most // 2)
    return f"{text[: half - 1]}…{text[len(text) - half - 1 :]}"
