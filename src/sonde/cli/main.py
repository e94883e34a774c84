"""The `sonde` program: runs a command, and turns what goes wrong into one line and an exit status."""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer
from typer.main import get_command

import sonde
from sonde.cli.commands import EXIT_STATUS, HELP_OPTIONS, Commands
from sonde.cli.console import CommandError, remark
from sonde.core.errors import SondeError

app = typer.Typer(
    cls=Commands,
    add_completion=False,
    rich_markup_mode=None,
    context_settings=HELP_OPTIONS,
    epilog=EXIT_STATUS,
)


@app.callback(invoke_without_command=True)
def program(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Sonde watches neural-network training, says what is wrong and why, and helps to set it right."""
    if version:
        print(f"sonde {sonde.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


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
        # Or the interpreter complains when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # as if SIGPIPE had ended us, which is what shells expect
    except KeyboardInterrupt:
        remark("interrupted")
        return 130
    except CommandError as error:
        remark(str(error))
        return error.status
    except typer.TyperException as error:  # wrong usage
        message = error.format_message().replace("Value error, ", "").rstrip(".")  # that is pydantic's, not the user's
        remark(f"{message}; see: {_command_path(error)} --help")
    except OSError as error:
        remark(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error))
    except SondeError as error:
        remark(str(error))
    return 2


def _run(args: list[str]) -> int | Callable[[], int]:
    command = get_command(app)
    try:
        with command.make_context("sonde", args) as context:
            status = command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    return status if isinstance(status, int) or callable(status) else 0


def _command_path(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    return context.command_path if context else "sonde"
