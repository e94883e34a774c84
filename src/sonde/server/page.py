"""The files of the page, as they were built into the package."""

import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

_KINDS = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,200}")

_MISSING = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>Sonde</title></head>
<body>
<h1>The page is not built</h1>
<p>This copy of Sonde came from its sources, in which the page is built by a step of its own: see
<code>web/README.md</code>. Packages that are installed with <code>pip install 'sonde[ui]'</code> have it.</p>
<p>The data are here: <a href="/api/runs">/api/runs</a>, and <a href="/openapi.json">/openapi.json</a> says what else
there is.</p>
</body>
</html>
"""


class File(NamedTuple):
    """A file of the page."""

    content: bytes
    kind: str
    is_hashed: bool
    """Whether its name changes with its content, so that it never has to be asked for again."""


def is_built() -> bool:
    """Whether the page is in this copy of Sonde."""
    return _folder().joinpath("index.html").is_file()


def index() -> File:
    """The page itself; where none is built, one that says so."""
    built = _folder().joinpath("index.html")
    content = built.read_bytes() if built.is_file() else _MISSING.encode()
    return File(content, _KINDS[".html"], is_hashed=False)


def asset(name: str) -> File | None:
    """A file of the page's folder `assets`; None where there is none of that name."""
    if not _NAME.fullmatch(name):
        return None
    suffix = f".{name.rpartition('.')[2]}"
    found = _folder().joinpath("assets", name)
    if suffix not in _KINDS or not found.is_file():
        return None
    return File(found.read_bytes(), _KINDS[suffix], is_hashed=True)


def _folder() -> Traversable:
    return files("sonde.server").joinpath("page")
