"""What commands print: outcomes on stdout, the rest on stderr; colour and cut lines only on a terminal."""

import sys
from typing import TYPE_CHECKING, Any

from sonde.core import printable, strict_json
from sonde.core.printable import one_line
from sonde.streams.printing import print_or_drop

__all__ = ["CommandError", "curve_width", "one_line", "remark", "result", "result_json", "say", "terminal"]

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_FILE_COLUMNS = 10_000  # a file has no edge: nothing is cut or wrapped there
_CURVE_COLUMNS = 100  # a curve that is wider is not easier to read


class CommandError(Exception):
    """Ends a command with one line on stderr and an exit status."""

    def __init__(self, message: str, *, status: int = 2) -> None:
        super().__init__(message)
        self.status = status


def result(*parts: "RenderableType") -> None:
    """Print the outcome of a command."""
    console = terminal(sys.stdout)
    # Captured, since Rich ends the program by itself, with status 1, when it prints into a closed pipe.
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    sys.stdout.write("\n".join(line.rstrip() for line in captured.get().split("\n")))


def say(text: object) -> None:
    """Print lines of the outcome of a command, in which nothing of a run steers the terminal."""
    print(printable.lines(text))


def result_json(value: Any) -> None:
    """Print the outcome of a command for a program to read: one strict JSON value."""
    sys.stdout.write(strict_json.dumps(value, indent=2).replace("\x7f", "\\u007f") + "\n")  # all else is ASCII


def remark(message: str) -> None:
    """Tell the person at the keyboard one line that is not part of the outcome."""
    print_or_drop(f"sonde: {one_line(message)}", sys.stderr)


def terminal(file: Any) -> "Console":
    """A Rich console on stdout or stderr."""
    from rich.console import Console

    console = Console(file=file, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _FILE_COLUMNS
    return console


def curve_width() -> int:
    """How wide a curve on stdout should be."""
    return min(terminal(sys.stdout).width, _CURVE_COLUMNS)
