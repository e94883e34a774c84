"""Which commands there are. A command is one file here and one line in the table below."""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import typer
from typer.core import TyperGroup
from typer.main import get_command

from sonde.core.plugins import Door

COMMANDS = Door(
    group="sonde.commands",
    kind="command",
    builtins={
        "alerts": "sonde.cli.alerts:alerts",
        "calibrate": "sonde.cli.calibrate:calibrate",
        "compare": "sonde.cli.compare:compare",
        "config": "sonde.cli.config:config",
        "demo": "sonde.cli.demo:demo",
        "diagnose": "sonde.cli.diagnose:diagnose",
        "explain": "sonde.cli.explain:explain",
        "export": "sonde.cli.export:export",
        "import": "sonde.cli.import_:import_",
        "report": "sonde.cli.report:report",
        "rules": "sonde.cli.rules:rules",
        "run": "sonde.cli.run:run",
        "runs": "sonde.cli.runs:runs",
        "show": "sonde.cli.show:show",
        "tail": "sonde.cli.tail:tail",
        "ui": "sonde.cli.ui:ui",
    },
    accepts=callable,
)

EXIT_STATUS = """\b
Exit status:
  0    done
  1    a run has findings of severity warning or above; an alert did not arrive
  2    wrong usage or configuration, or a run that cannot be read or written
  3    a run of which too little was recorded to judge it
  130  interrupted
"""


Command = TypeVar("Command", bound=Callable[..., Any])

_PASSING_ON: set[Any] = set()


def passes_on(command: Command) -> Command:
    """Mark a command whose words from the first argument on belong to another program, options among them."""
    _PASSING_ON.add(command)
    return command


class Commands(TyperGroup):
    """The commands that came through the door; only the one that is called is imported, for `--help` all."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS.names())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return _command(cmd_name, COMMANDS.load(cmd_name))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        loaded = COMMANDS.load_all()
        with formatter.section("Commands"):
            formatter.write_dl([(name, _summary(plugin)) for name, plugin in loaded.members.items()])
        if loaded.problems:
            with formatter.section("Not available"):
                for problem in loaded.problems:
                    formatter.write_text(str(problem))


def _summary(function: Callable[..., Any]) -> str:
    """What a command does, in its first sentence; the lines are folded where they are printed."""
    first = (inspect.getdoc(function) or "").partition("\n\n")[0]
    return " ".join(first.split())


def _command(name: str, function: Callable[..., Any]) -> Any:
    # "\b" keeps the lines of the example as they are written.
    text = (inspect.getdoc(function) or "").replace("\n\nExample:\n", "\n\n\b\nExample:\n")
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    settings: dict[str, Any] = {"allow_interspersed_args": False} if function in _PASSING_ON else {}
    app.command(name, help=text, epilog=EXIT_STATUS, context_settings={**HELP_OPTIONS, **settings})(function)
    return get_command(app)


HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}
