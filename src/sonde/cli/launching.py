"""How `sonde run` starts a script. Whatever is imported here, every script that is watched waits for."""

import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from sonde.cli import console

ENVIRONMENT = "SONDE_RUN"


class Console(StrEnum):
    """What is printed while the script runs."""

    AUTO = "auto"
    LIVE = "live"
    LINES = "lines"
    VERBOSE = "verbose"
    QUIET = "quiet"


def launch(
    script: str,
    args: Sequence[str],
    *,
    is_module: bool = False,
    run: Path | None = None,
    budget: float | None = None,
    shown: Console | None = None,
) -> Callable[[], int]:
    """What runs the script, once we are out of the way; gives the exit status.

    Args:
        script: A file, or the name of a module.
        args: Its own.
        is_module: Which of the two.
        run: Folder of the run.
        budget: Share of the time that watching may take.
        shown: What Sonde prints.

    Raises:
        CommandError: there is no such script.
        SettingError, FormatError: the configuration is wrong.
    """
    from sonde.config import effective
    from sonde.core.settings import check_text
    from sonde.integrations.runner import Script, is_off
    from sonde.integrations.runner import run as start

    if run is not None:
        check_text("run", str(run))
    if not is_module and not Path(script).exists():
        raise console.CommandError(f"there is no file {script}; give the script to run, or a module with -m")
    if is_module and "." not in script and script not in sys.modules:
        sys.path.insert(0, "")
        try:
            found = importlib.util.find_spec(script)
        finally:
            sys.path.pop(0)
        if found is None:
            raise console.CommandError(f"there is no module {script}; for a file leave -m out")
    wanted = Script(
        target=script,
        args=tuple(args),
        is_module=is_module,
        run=None if run is None else run.absolute(),
        settings=None if is_off() else effective().over({"budget": budget, "console": shown and shown.value}),
    )

    def go() -> int:
        start(wanted)
        return 0

    return go


def launch_plain(words: Sequence[str], environment: Mapping[str, str] = os.environ) -> Callable[[], int] | None:
    """`launch` by the words behind `sonde run`, where they are plain; else None, and the command itself is asked.

    The command says what is wrong with words, and what they mean; but what reads them there takes a tenth of a second
    to import.
    """
    given: dict[str, str] = {}
    rest, is_module = list(words), False
    while rest and rest[0].startswith("-"):
        name, has_value, value = rest.pop(0).partition("=")
        if name == "-m" and not has_value:
            is_module = True
            continue
        key = {"--run": "run", "--run-dir": "run", "--budget": "budget", "--console": "console"}.get(name)
        if not has_value and rest:
            value = rest.pop(0)
        if key is None or not value or value.startswith("-"):
            return None
        given[key] = value
    if not rest or not rest[0]:
        return None
    run = given.get("run") or environment.get(ENVIRONMENT)
    try:
        budget = float(given["budget"]) if "budget" in given else None
        shown = Console(given["console"]) if "console" in given else None
    except ValueError:
        return None
    return launch(rest[0], rest[1:], is_module=is_module, run=Path(run) if run else None, budget=budget, shown=shown)
