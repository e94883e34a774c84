import io
import os
import pty
from collections.abc import Iterator

import pytest

from sonde.console.terminals import Mode, Wanted, choose

TERM = {"TERM": "xterm"}


@pytest.fixture
def terminal() -> Iterator[io.TextIOBase]:
    own, theirs = pty.openpty()
    with open(theirs, "w", closefd=True) as stream:  # noqa: PTH123
        yield stream
    os.close(own)


@pytest.mark.parametrize(
    ("wanted", "environ", "ranks", "is_interactive", "mode"),
    [
        ("auto", TERM, (0, 1), False, "live"),
        ("auto", {**TERM, "NO_COLOR": "1"}, (0, 1), False, "live"),
        ("auto", {**TERM, "CI": "false"}, (0, 1), False, "live"),
        ("auto", {**TERM, "CI": "true"}, (0, 1), False, "lines"),
        ("auto", {"TERM": "dumb"}, (0, 1), False, "lines"),
        ("auto", {}, (0, 1), False, "lines"),
        ("auto", TERM, (0, 2), False, "lines"),
        ("auto", {**TERM, "TORCHELASTIC_RUN_ID": "none"}, (0, 1), False, "lines"),
        ("auto", TERM, (0, 1), True, "lines"),
        ("auto", TERM, (1, 2), False, "quiet"),
        ("live", TERM, (1, 2), False, "quiet"),
        ("live", {**TERM, "CI": "1"}, (0, 2), True, "live"),
        ("live", {"TERM": "dumb"}, (0, 1), False, "lines"),
        ("lines", TERM, (0, 1), False, "lines"),
        ("quiet", TERM, (0, 1), False, "quiet"),
        ("verbose", TERM, (0, 1), False, "verbose"),
        ("verbose", {}, (0, 1), False, "verbose"),
        ("verbose", TERM, (1, 2), False, "quiet"),
    ],
)
def test_how_a_training_is_shown_on_a_terminal(
    terminal: io.TextIOBase,
    wanted: Wanted,
    environ: dict[str, str],
    ranks: tuple[int, int],
    is_interactive: bool,
    mode: Mode,
) -> None:
    rank, world_size = ranks
    chosen = choose(
        wanted, stream=terminal, environ=environ, rank=rank, world_size=world_size, is_interactive=is_interactive
    )
    assert chosen == mode


class Claims(io.StringIO):
    """Somebody's own stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [None, io.StringIO(), Claims()], ids=["none", "no-terminal", "claims-to-be-one"])
@pytest.mark.parametrize("wanted", ["auto", "live"])
def test_what_is_no_terminal_gets_lines(stream: object, wanted: Wanted) -> None:
    assert choose(wanted, stream=stream, environ=TERM, is_interactive=False) == "lines"
