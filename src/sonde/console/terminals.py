"""What a stream can show, and which way of showing fits where we are."""

import contextlib
import os
import sys
import termios
from collections.abc import Mapping
from typing import Any, Literal

Wanted = Literal["auto", "live", "lines", "verbose", "quiet"]
Mode = Literal["live", "lines", "verbose", "quiet"]

_DUMB = ("", "dumb", "unknown")
_NO = ("", "0", "false", "no")


def choose(
    wanted: Wanted,
    *,
    stream: Any,
    environ: Mapping[str, str],
    rank: int = 0,
    world_size: int = 1,
    is_interactive: bool | None = None,
) -> Mode:
    """How to show a training.

    `"auto"` is live on a terminal that can be drawn on, unless other processes write there too (`torchrun`), nobody
    watches (CI), or somebody types (an interpreter's prompt, a notebook); then it is lines. `"live"` is live wherever
    the terminal can be drawn on, else lines. `"verbose"` is lines, and tables of all layers between them. All ranks but
    the first are quiet.

    Args:
        wanted: By the user.
        stream: Where we write.
        environ: Of the process.
        rank: Of this process.
        world_size: How many processes train together.
        is_interactive: Whether somebody types; found out where left out.
    """
    if rank or wanted == "quiet":
        return "quiet"
    if wanted == "verbose":
        return "verbose"
    if wanted == "lines" or not can_draw(stream, environ):
        return "lines"
    if wanted == "live":
        return "live"
    shared = world_size > 1 or "TORCHELASTIC_RUN_ID" in environ
    unseen = environ.get("CI", "").lower() not in _NO
    typing = _is_interactive() if is_interactive is None else is_interactive
    return "lines" if shared or unseen or typing else "live"


def can_draw(stream: Any, environ: Mapping[str, str]) -> bool:
    """Whether the stream is a terminal on which the cursor can be moved."""
    if environ.get("TERM", "") in _DUMB:
        return False
    try:
        return bool(stream.isatty()) and os.isatty(stream.fileno())
    except (AttributeError, OSError, ValueError):  # none, closed, or somebody's own
        return False


def may_write(descriptor: int) -> bool:
    """Whether writing is safe: a job in the background of a shell with `stty tostop` would be stopped by it."""
    if is_foreground(descriptor):
        return True
    try:
        return not termios.tcgetattr(descriptor)[3] & termios.TOSTOP
    except (OSError, termios.error):
        return True


def is_foreground(descriptor: int) -> bool:
    """Whether the terminal is ours now, and not the shell's that has sent us to the background."""
    with contextlib.suppress(OSError):
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    return True  # not the terminal of our session: no shell can take it from us


def _is_interactive() -> bool:
    return hasattr(sys, "ps1") or bool(sys.flags.interactive) or "ipykernel" in sys.modules
