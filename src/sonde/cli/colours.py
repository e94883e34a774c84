"""Words of a run in the colour that their news deserves."""

import math
from typing import TYPE_CHECKING

from sonde.core.palette import TERMINAL
from sonde.core.quantities import number

if TYPE_CHECKING:
    from rich.text import Text

    from sonde.core.records import Ending


def ending(word: "Ending") -> "Text":
    """How a run stands."""
    from rich.text import Text

    return Text(word.value, style=TERMINAL[word])


def value(measured: float | None) -> "Text":
    """A number, red where it is not finite, "-" where there is none."""
    from rich.text import Text

    if measured is None:
        return Text("-", style="dim")
    return Text(number(measured), style="" if math.isfinite(measured) else TERMINAL["nonfinite"])
