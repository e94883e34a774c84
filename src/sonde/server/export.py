"""A run as one HTML file that needs no server: the page itself, with what it would have asked for inside."""

import asyncio
import base64
import hashlib
import json
import re
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from sonde.core.errors import StoreError
from sonde.server import page
from sonde.server.app import application
from sonde.server.entrance import Application

_POINTS = 1000
# What the overview shows, beside what evaluations brought and findings name.
_SERIES = (
    "loss",
    "grad/norm",
    "grad/norm_applied",
    "update/ratio",
    "lr",
    "throughput/samples_per_s",
    "time/data",
    "time/forward",
    "time/loss",
    "time/backward",
    "time/optimizer",
    "time/other",
    "memory/allocated",
    "memory/peak",
    "host/rss",
)
_LAYERS = ("grad/rms", "update/ratio", "act/rms", "act/dead", "act/zeros", "gain/block", "weight/rms")
_MOST_EVIDENCE = 60
_MOST_EVALUATIONS = 12
_COLUMNS = 200
_LOOK_S, _PATIENCE_S = 0.2, 600.0


class PageMissing(StoreError):
    """The page was not built into this copy of Sonde."""


def snapshot(run: Path) -> str:
    """The file's text. A run that nobody judged while it was recorded is judged first.

    Raises:
        PageMissing: there is no page to put into it.
        StoreError: the run cannot be read.
    """
    if not page.is_built():
        raise PageMissing("the page is not built into this copy of Sonde; run `make page` in its sources.")
    return _document(_Answers(application(run)).collect())


class _Answers:
    """What the server of a single run says to what its page will ask."""

    def __init__(self, app: Application) -> None:
        self._app = app

    def collect(self) -> dict[str, Any]:
        table = self._json("/api/runs")
        if len(table["runs"]) != 1:
            raise StoreError(f"a snapshot is of one run, and there are {len(table['runs'])} here; name one of them.")
        path = f"/api/runs/{quote(table['runs'][0]['id'], safe='')}"
        run = self._judged(path)
        evidence = [one["tag"] for finding in run["findings"] for one in finding["evidence"]]
        evaluated = self._json(f"{path}/tags?pattern=val/*&limit={_MOST_EVALUATIONS}")["tags"]
        tags = dict.fromkeys([*_SERIES, *evaluated, *evidence[:_MOST_EVIDENCE]])
        paths = self._json(f"{path}/layer-paths")["paths"]
        shown = [one for one in paths if one["path"] in _LAYERS]
        return {
            "table": table,
            "run": run,
            "layer_paths": {**self._json(f"{path}/layer-paths"), "paths": shown},
            "rules": {finding["code"]: self._rule(finding["code"]) for finding in run["findings"]},
            "series": {tag: self._binary(f"{path}/series", tag=tag, points=_POINTS) for tag in tags},
            "layers": {
                one["path"]: self._binary(f"{path}/layers", path=one["path"], columns=_COLUMNS) for one in shown
            },
        }

    def _judged(self, path: str) -> dict[str, Any]:
        until = time.monotonic() + _PATIENCE_S
        while (run := self._json(path))["diagnosis"] == "working" and time.monotonic() < until:
            time.sleep(_LOOK_S)
        return run

    def _rule(self, code: str) -> dict[str, Any] | None:
        try:
            return self._json(f"/api/rules/{code}")
        except StoreError:  # of a package that is not installed here
            return None

    def _json(self, address: str) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(asyncio.run(_answer(self._app, address)))
        return told

    def _binary(self, address: str, /, **query: object) -> str:
        return base64.b64encode(asyncio.run(_answer(self._app, f"{address}?{urlencode(query)}"))).decode("ascii")


async def _answer(app: Application, address: str) -> bytes:
    """What the application says to a GET, without a socket."""
    path, _, query = address.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 0),
        "server": ("127.0.0.1", 0),
    }
    status, parts = 0, list[bytes]()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            parts.append(message.get("body", b""))

    await app(scope, receive, send)
    content = b"".join(parts)
    if status != 200:
        raise StoreError(str(json.loads(content).get("error", {}).get("what", f"status {status}")))
    return content


def _document(answers: dict[str, Any]) -> str:
    """The page with its script, its styles and the answers inside; nothing in it may ask for anything."""
    index = page.index().content.decode("utf-8")
    script = _of_assets(index, r'<script type="module"[^>]*src="\./assets/([^"]+)"')
    script = script.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    styles = _of_assets(index, r'<link rel="stylesheet"[^>]*href="\./assets/([^"]+)"')
    data = json.dumps(answers, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    own = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    policy = f"default-src 'none'; script-src 'sha256-{own}'; style-src 'unsafe-inline'; img-src data: blob:"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>Sonde</title>\n'
        f'<style>{styles}</style>\n</head>\n<body>\n<div id="page"></div>\n'
        f'<script type="application/json" id="snapshot">{data}</script>\n'
        f'<script type="module">{script}</script>\n</body>\n</html>\n'
    )


def _of_assets(index: str, pattern: str) -> str:
    found = re.search(pattern, index)
    asset = page.asset(found[1]) if found else None
    if asset is None:
        raise PageMissing(
            "the page that is built into this copy of Sonde is not whole; run `make page` in its sources."
        )
    return asset.content.decode("utf-8")
