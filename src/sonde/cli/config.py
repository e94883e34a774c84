"""`sonde config`: the settings that hold here, where each came from, and which files may act."""

import json as as_json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sonde.cli import console

if TYPE_CHECKING:
    from sonde.config.sources import Ignored

_TRUST = "trust"
_UNKNOWN = ("total_steps", "total_epochs")
"""Settings without a value that no device has one for."""


def config(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN|trust]", help="Folder of a run: what held when it was recorded.", show_default=False
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]", help="Behind `trust`: the file.  [default: the project's]", show_default=False
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    changed: Annotated[bool, typer.Option("--changed", help="Leave out what is at its default.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With `trust`: do not ask.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="With `trust`: print the files that are trusted.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="With `trust`: trust the file no more.")] = False,
) -> None:
    """Print the settings that a training here would have, with where each value came from.

    The order, the first that says something wins: arguments, the environment (SONDE_…), sonde.toml, pyproject.toml
    ([tool.sonde]), your own sonde.toml (~/.config/sonde), a profile of rules, a preset, the default. Secrets are not
    shown.

    Settings of a project's file that send, write or act are obeyed only after `sonde config trust`, which shows them
    and asks; when the file's settings change, it asks again. A run in a folder of that name is ./trust.

    Example:
      sonde config
      sonde config --changed
      sonde config runs/demo --json | jq '.settings.budget'
      sonde config trust
    """
    if run == _TRUST:
        from sonde.cli.trusting import list_trusted, trust, trust_no_more

        if listed:
            list_trusted()
        elif remove:
            trust_no_more(file)
        else:
            trust(file, ask=not yes)
        return
    if file is not None or yes or listed or remove:
        raise console.CommandError("FILE, --yes, --list and --remove belong to: sonde config trust")
    files: tuple[str, ...] = ()
    ignored: tuple[Ignored, ...] = ()
    if run is None:
        from sonde.config import effective

        found = effective()
        settings, files, ignored = found.to_json(), found.files, found.ignored
    else:
        import sonde

        stored = sonde.load(run).info.get("settings")
        if not isinstance(stored, Mapping):
            raise console.CommandError(f"{run} holds no settings: it was not recorded by sonde.watch")
        settings = dict(stored)
    if changed:
        settings = {key: said for key, said in settings.items() if said["from"] != "default"}
    if json:
        not_obeyed = [item._asdict() for item in ignored]
        console.result_json({"schema": 1, "files": list(files), "settings": settings, "not_obeyed": not_obeyed})
        return
    for line in lines(settings, files, ignored):
        print(line)


def lines(settings: Mapping[str, Any], files: Iterable[str], ignored: "Iterable[Ignored]" = ()) -> Iterator[str]:
    """A line a setting, as TOML has it, with its origin as a remark; what has no value is a remark as a whole."""
    for file in (*files, *ignored):
        yield f"# {console.one_line(file)}"
    said = {
        f"# {key} {_unset(key)}" if item["value"] is None else f"{key} = {toml(item['value'])}": item["from"]
        for key, item in settings.items()
    }
    width = min(max(map(len, said), default=0), 60)
    for text, origin in said.items():
        yield f"{console.one_line(text):<{width}}  # {console.one_line(origin)}"


def _unset(key: str) -> str:
    return "is not known" if key in _UNKNOWN else "depends on the device"


def toml(value: Any) -> str:
    """A value as TOML writes it.

    Example:
        >>> toml(["tensorboard", {"sink": "wandb", "project": "demo"}]), toml(True), toml(float("inf"))
        ('["tensorboard", { sink = "wandb", project = "demo" }]', 'true', 'inf')
    """
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {toml(item)}" for key, item in value.items()) + " }" if value else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, float):
        return repr(value)
    return as_json.dumps(value, ensure_ascii=False)
