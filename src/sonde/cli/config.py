"""`sonde config`: the settings that hold here, and where each came from."""

import json as as_json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from sonde.cli import console


def config(
    run: Annotated[
        Path | None,
        typer.Argument(metavar="[RUN]", help="Folder of a run: what held when it was recorded.", show_default=False),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    changed: Annotated[bool, typer.Option("--changed", help="Leave out what is at its default.")] = False,
) -> None:
    """Print the settings that a training here would have, with where each value came from.

    The order, the first that says something wins: arguments, the environment (SONDE_…), sonde.toml, pyproject.toml
    ([tool.sonde]), a profile of rules, a preset, the default. Secrets are not shown.

    Example:
      sonde config
      sonde config --changed
      sonde config runs/demo --json | jq '.settings.budget'
    """
    files: tuple[str, ...] = ()
    if run is None:
        from sonde.config import effective

        found = effective()
        settings, files = found.to_json(), found.files
    else:
        import sonde

        stored = sonde.load(run).info.get("settings")
        if not isinstance(stored, Mapping):
            raise console.CommandError(f"{run} holds no settings: it was not recorded by sonde.watch")
        settings = dict(stored)
    if changed:
        settings = {key: said for key, said in settings.items() if said["from"] != "default"}
    if json:
        console.result_json({"schema": 1, "files": list(files), "settings": settings})
        return
    for line in lines(settings, files):
        print(line)


def lines(settings: Mapping[str, Any], files: tuple[str, ...]) -> Iterator[str]:
    """A line a setting, as TOML has it, with its origin as a remark; what has no value is a remark as a whole."""
    for file in files:
        yield f"# {console.one_line(file)}"
    said = {
        f"# {key} depends on the device" if item["value"] is None else f"{key} = {toml(item['value'])}": item["from"]
        for key, item in settings.items()
    }
    width = min(max(map(len, said), default=0), 60)
    for text, origin in said.items():
        yield f"{console.one_line(text):<{width}}  # {console.one_line(origin)}"


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
