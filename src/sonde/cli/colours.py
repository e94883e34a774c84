"""Words of a run in the colour that their news deserves."""

import math
from typing import TYPE_CHECKING

from sonde.cli.quantities import number

if TYPE_CHECKING:
    from rich.text import Text

    from sonde.core.records import Ending

# By value, not by member: `sonde.core.records` imports numpy, and help must not wait for it.
_ENDINGS = {
    "live": "bold cyan",
    "finished": "green",
    "exited": "yellow",
    "interrupted": "yellow",
    "terminated": "yellow",
    "crashed": "bold red",
    "died": "bold red",
}


def ending(word: "Ending") -> "Text":
    """How a run stands."""
    from rich.text import Text

    return Text(word.value, style=_ENDINGS[word.value])


def value(measured: float | None) -> "Text":
    """A number, red where it is not finite, "-" where there is none."""
    from rich.text import Text

    if measured is None:
        return Text("-", style="dim")
    return Text(number(measured), style="" if math.isfinite(measured) else "bold red")
