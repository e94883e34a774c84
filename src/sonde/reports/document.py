"""What a report is made of: plain blocks, that know nothing of the run and nothing of HTML or Markdown."""

from dataclasses import dataclass

from sonde.reports.charts import Chart
from sonde.reports.strips import Strip


@dataclass(frozen=True, slots=True)
class Code:
    """Text to be shown letter by letter: a tag, a command, a value of a vocabulary."""

    text: str


@dataclass(frozen=True, slots=True)
class Strong:
    """Text that stands out."""

    text: str


@dataclass(frozen=True, slots=True)
class Badge:
    """A word in the colour of its news: "critical", "warning", "info", "ok", "not ok" or "not measured"."""

    word: str


@dataclass(frozen=True, slots=True)
class Named:
    """The name of a series, beside the colour that it has in the pictures."""

    text: str
    series: int


Piece = str | Code | Strong | Badge | Named
Line = tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Heading:
    """Begins a section, or a part of one.

    Args:
        text: Its name.
        level: 2 for a section, 4 and 5 within a card, whose title is 3.
    """

    text: str
    level: int = 2


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A few sentences."""

    line: Line
    is_remark: bool = False
    """Whether it is an explanation that a hurried reader may skip."""


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    lines: tuple[Line, ...]
    is_ordered: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a head."""

    head: tuple[str, ...]
    rows: tuple[tuple[Line, ...], ...]


@dataclass(frozen=True, slots=True)
class Fact:
    """A number that matters, with its name and a remark."""

    name: str
    value: str
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """The numbers that matter, side by side."""

    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture and what it shows."""

    picture: Chart | Strip
    caption: Line


@dataclass(frozen=True, slots=True)
class Figures:
    """Pictures, two in a row where there is room."""

    figures: tuple[Figure, ...]


@dataclass(frozen=True, slots=True)
class Fold:
    """Blocks that are shown on request."""

    summary: Line
    blocks: "tuple[Block, ...]"


@dataclass(frozen=True, slots=True)
class Card:
    """Blocks that belong together, under a title of their own."""

    kind: str
    """Of its colour: a severity, or "ok"."""
    title: Line
    blocks: "tuple[Block, ...]"
    is_verdict: bool = False


Block = Heading | Paragraph | Items | Table | Facts | Figures | Fold | Card


@dataclass(frozen=True, slots=True)
class Document:
    """A title and what comes under it."""

    title: str
    subtitle: str
    blocks: tuple[Block, ...]
