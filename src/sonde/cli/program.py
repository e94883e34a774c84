"""All commands and what reads their words."""

import os
from collections.abc import Callable, Sequence
from typing import Annotated

import typer
from typer.main import get_command

import sonde
from sonde.cli.commands import EXIT_STATUS, HELP_OPTIONS, Commands
from sonde.cli.console import CommandError

_COMPLETING = "_SONDE_COMPLETE"

app = typer.Typer(
    cls=Commands,
    add_completion=True,
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


def run(args: Sequence[str]) -> int | Callable[[], int]:
    """Run a command: its exit status, or what it wants to be done once we are out of the way.

    Raises:
        CommandError: the words are no command, or not as it wants them.
    """
    command = get_command(app)
    try:
        if _COMPLETING in os.environ:  # a shell asks, by the script that `--show-completion` prints
            command.main(list(args), prog_name="sonde")
        with command.make_context("sonde", list(args)) as context:
            status = command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    except SystemExit as end:  # what completes words ends so
        return end.code if isinstance(end.code, int) else 0
    except typer.TyperException as error:  # wrong usage
        message = error.format_message().replace("Value error, ", "").rstrip(".")  # that is pydantic's, not the user's
        raise CommandError(f"{message}; see: {_command_path(error)} --help") from error
    return status if isinstance(status, int) or callable(status) else 0


def _command_path(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    return context.command_path if context else "sonde"
