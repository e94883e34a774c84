"""The `sonde` program: runs a command, and turns what goes wrong into one line and an exit status."""

import os
import sys
from collections.abc import Callable, Sequence

from sonde.cli.console import CommandError, remark
from sonde.core.errors import SondeError
from sonde.streams.residue import flush_or_discard


def main(args: Sequence[str] | None = None) -> int:
    """Run the program and return its exit status.

    What a user can cause ends in one line on stderr, never in a traceback.

    Args:
        args: Words behind `sonde`; those of this process where None.
    """
    before = sys.stdout, sys.stderr
    handling = [getattr(stream, "errors", None) for stream in before]
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller: `sonde runs >&-`
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115  # for as long as the process lives
        elif hasattr(stream := getattr(sys, name), "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without Unicode gets "?" for a block of the curve
    outcome = _outcome(args)
    if isinstance(outcome, int):
        for stream in (sys.stdout, sys.stderr):  # or the interpreter complains when it flushes them, with status 120
            flush_or_discard(stream)
        return outcome
    # A program of the user's: what it prints, how it ends and what it raises is its own affair.
    sys.stdout, sys.stderr = before
    for stream, errors in zip(before, handling, strict=True):
        if errors is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=errors)
    return outcome()


def _outcome(args: Sequence[str] | None) -> int | Callable[[], int]:
    """The exit status of a command, or what it wants to be done once we are out of the way."""
    try:
        outcome = _run(sys.argv[1:] if args is None else list(args))
        sys.stdout.flush()
        return outcome
    except BrokenPipeError:  # `sonde runs | head -1`
        return 141  # as if SIGPIPE had ended us, which is what shells expect
    except KeyboardInterrupt:
        remark("interrupted")
        return 130
    except CommandError as error:
        remark(str(error))
        return error.status
    except OSError as error:
        remark(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error))
    except SondeError as error:
        remark(str(error))
    return 2


def _run(args: list[str]) -> int | Callable[[], int]:
    if args[:1] == ["run"]:
        from sonde.cli.launching import launch_plain

        if (go := launch_plain(args[1:])) is not None:
            return go
    from sonde.cli import program

    return program.run(args)
