"""`sonde ui`: the page on which runs are looked at."""

from pathlib import Path
from typing import Annotated

import typer

from sonde.cli import console

_RUNS = Path("runs")


def ui(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="Folder that holds runs, or a run.")] = _RUNS,
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
      ssh -L 8321:localhost:8321 cluster sonde ui /scratch/runs --no-open
    """
    from sonde.core.optional import require

    for package in ("fastapi", "uvicorn"):
        require(package, "ui")
    if folder != _RUNS and not folder.is_dir():
        raise console.CommandError(f"{folder} does not exist or is not a folder; name the folder that holds your runs")

    if export is not None:
        from sonde.server.export import snapshot

        export.write_text(snapshot(folder), encoding="utf-8")
        console.say(console.one_line(export))
        return

    from sonde.server.security import is_loopback
    from sonde.server.serving import Server, Settings, open_browser

    if token and not (
        token.isascii() and token.isprintable() and len(token) >= 8 and not set(token) & set(' ;,"\\%&#+')
    ):
        raise console.CommandError("the token must have 8 characters or more: letters, digits, `-`, `_` and the like")
    server = Server(Settings(folder=folder, host=host, port=port, token=token, names=allow_host or ()))

    def ready() -> None:
        console.say(f"runs of {console.one_line(folder)}: {server.address}")
        if not is_loopback(host):
            console.remark("whoever has this address can read these runs, and nothing of it is encrypted on the way")
        if not folder.is_dir():
            console.remark(f"{console.one_line(folder)} does not exist yet: runs appear as they begin")
        console.remark("Ctrl-C ends it")
        if not no_open:
            open_browser(server.address)

    server.run(ready)
