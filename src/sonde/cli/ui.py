"""`sonde ui`: the page on which runs are looked at."""

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sonde.cli import console

if TYPE_CHECKING:
    from sonde.server.serving import Settings

_RUNS = "runs"


def ui(
    folder: Annotated[
        str,
        typer.Argument(metavar="[DIR|URL]", help="Folder that holds runs, or a run; also elsewhere: s3://…, gs://…."),
    ] = _RUNS,
    host: Annotated[str, typer.Option(metavar="HOST", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="Port; 0 takes one that is free.")] = 8321,
    no_open: Annotated[bool, typer.Option("--no-open", help="Open no browser.")] = False,
    token: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            envvar="SONDE_UI_TOKEN",
            help="What has to be shown; made where HOST is reached from elsewhere.",
            show_default=False,
        ),
    ] = "",
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A further name of this machine; may be given several times."),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="Write DIR, a run, into one file to send around, and serve nothing."),
    ] = None,
) -> None:
    """Open a page on which runs are looked at, live.

    It is served from this machine for this machine. Listening elsewhere (`--host 0.0.0.0`) needs a token, which is part
    of the address that is printed. Ctrl-C ends it; trainings do not notice.

    Example:
      sonde ui
      sonde ui /data/runs --port 8400 --no-open
      sonde ui runs/demo --export demo.html
      sonde ui s3://bucket/runs
      ssh -L 8321:localhost:8321 cluster sonde ui /scratch/runs --no-open
    """
    from sonde.core.optional import require

    for package in ("fastapi", "uvicorn"):
        require(package, "ui")
    from sonde.store.mirrors import is_url

    if folder != _RUNS and not is_url(folder) and not Path(folder).is_dir():
        raise console.CommandError(f"{folder} does not exist or is not a folder; name the folder that holds your runs")
    if token and not _is_usable(token):
        raise console.CommandError("the token must have 8 characters or more: letters, digits, `-`, `_` and the like")

    from sonde.server.mirroring import mirrored
    from sonde.server.serving import Settings

    copy = mirrored(folder, say=console.remark) if is_url(folder) else contextlib.nullcontext(Path(folder))
    with copy as local:
        if export is not None:
            _export(local, export)
            return
        _serve(
            Settings(
                folder=local,
                host=host,
                port=port,
                token=token,
                names=allow_host or (),
                shown=folder if is_url(folder) else "",
            ),
            opens=not no_open,
        )


def _is_usable(token: str) -> bool:
    """Whether a cookie, a header and an address can hold it as it is."""
    return token.isascii() and token.isprintable() and len(token) >= 8 and not set(token) & set(' ;,"\\%&#+')


def _export(run: Path, file: Path) -> None:
    from sonde.server.export import snapshot

    file.write_text(snapshot(run), encoding="utf-8")
    console.say(console.one_line(file))


def _serve(settings: "Settings", *, opens: bool) -> None:
    from sonde.server.security import is_loopback
    from sonde.server.serving import Server, open_browser

    server = Server(settings)
    folder = console.one_line(settings.shown or settings.folder)

    def ready() -> None:
        console.say(f"runs of {folder}: {server.address}")
        if not is_loopback(settings.host):
            console.remark("whoever has this address can read these runs, and nothing of it is encrypted on the way")
        if not settings.folder.is_dir():
            console.remark(f"{folder} does not exist yet: runs appear as they begin")
        console.remark("Ctrl-C ends it")
        sys.stdout.flush()
        if opens:
            open_browser(server.address)

    server.run(ready)
