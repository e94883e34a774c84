"""The signs that views are drawn with: block characters where the terminal has them, else ASCII."""

from dataclasses import astuple, dataclass

from sonde.core.sparkline import BLOCKS, NON_FINITE


@dataclass(frozen=True, kw_only=True, slots=True)
class Glyphs:
    """A set of signs, each one column wide.

    Args:
        levels: From low to high.
        lost: A value that is not finite.
        none: Nothing was measured.
        done: The part of a bar that is done.
        to_do: The rest of it.
        rule: Of a line across the terminal.
        cut: At the end of a text that was too long.
    """

    levels: str
    lost: str
    none: str
    done: str
    to_do: str
    rule: str
    cut: str


UNICODE = Glyphs(levels=BLOCKS, lost=NON_FINITE, none="·", done="━", to_do="─", rule="─", cut="…")
ASCII = Glyphs(levels="_.-=+*#@", lost="x", none="?", done="=", to_do="-", rule="-", cut="~")


def glyphs_for(encoding: str | None) -> Glyphs:
    """Those that an encoding can say.

    Example:
        >>> glyphs_for("UTF-8") is UNICODE, glyphs_for("ascii") is ASCII, glyphs_for(None) is ASCII
        (True, True, True)
    """
    try:
        "".join(astuple(UNICODE)).encode(encoding or "")
    except (LookupError, UnicodeError):
        return ASCII
    return UNICODE
