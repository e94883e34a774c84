"""What every request passes on its way in, and every answer on its way out: checks, headers, compression, ETag.

Written against ASGI itself, so that nothing that the application does can be reached around it.
"""

import asyncio
import gzip
import hashlib
import zlib
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, final
from urllib.parse import quote, unquote

from sonde.core import strict_json
from sonde.server.refusals import Refusal
from sonde.server.security import HEADERS, Access

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

MOST_BODY = 64 << 10
"""Bytes of a request."""

_LEAST_ZIPPED = 1 << 10
_MUCH = 128 << 10  # bytes whose compression would keep others waiting for milliseconds
_PROBE, _HARDLY = 64 << 10, 0.8
_LEVEL = {"application/octet-stream": 1}  # digits of measured numbers get no smaller by more work
_ZIPPED = ("application/json", "application/octet-stream", "text/", "image/svg+xml")


@final
class Entrance:
    """An application behind all checks.

    Args:
        application: What answers.
        access: Who may ask.
    """

    def __init__(self, application: Application, access: Access) -> None:
        self._application, self._access = application, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._application(scope, receive, send)
            return
        if scope["type"] != "http":  # a web socket: there are none
            await send({"type": "websocket.close", "code": 1000})
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        answer = _Answer(send, headers, is_get=scope["method"] in ("GET", "HEAD"))
        try:
            self._access.check_host(headers.get("host", ""))
            query = scope.get("query_string", b"").decode("latin-1")
            if self._access.check_token(query, headers):
                answer.extra.append(("set-cookie", self._cookie()))
                if scope["method"] == "GET" and scope["path"] == "/":
                    await answer.redirect("/")  # so that the token leaves the address
                    return
            if scope["method"] not in ("GET", "HEAD"):
                self._access.check_origin(scope.get("scheme", "http"), headers)
                receive = await _body(headers, receive)
            scope["path"] = _segments(scope)
        except Refusal as refusal:
            await answer.refuse(refusal)
            return
        await self._application(scope, receive, answer.take)

    def _cookie(self) -> str:
        return f"{self._access.cookie}={self._access.token}; Path=/; HttpOnly; SameSite=Strict; Max-Age=31536000"


def _segments(scope: Scope) -> str:
    """The path, in which a slash inside of a segment is still `%2F`: a run's id is one segment.

    Example:
        >>> _segments({"raw_path": b"/api/runs/a%2Fb%20c/series"})
        '/api/runs/a%2Fb c/series'
    """
    raw = scope.get("raw_path") or quote(scope["path"]).encode()
    try:
        segments = [unquote(segment, errors="strict") for segment in raw.decode("ascii").split("/")]
    except ValueError:
        raise Refusal(400, "the address is not UTF-8.", allowed="percent-encoded UTF-8.", do="encode it.") from None
    return "/".join(segment.replace("%", "%25").replace("/", "%2F") for segment in segments)


async def _body(headers: dict[str, str], receive: Receive) -> Receive:
    """The whole body, checked; what the application reads instead."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refusal(
            415, f"the type {kind[:100]!r} is not taken.", allowed="application/json", do="send JSON, and say so."
        )
    body = b""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > MOST_BODY:
            raise Refusal(413, "the request is too long.", allowed=f"{MOST_BODY:,} bytes.", do="send less.")
    whole = body
    is_read = False

    async def again() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": whole, "more_body": False}

    return again


@final
class _Answer:
    """Collects what the application sends, and sends it on: tagged, compressed, with our headers. Streams pass by."""

    def __init__(self, send: Send, asked: dict[str, str], *, is_get: bool) -> None:
        self._send, self._asked, self._is_get = send, asked, is_get
        self.extra: list[tuple[str, str]] = []
        self._start: Message | None = None
        self._body: list[bytes] = []
        self._is_stream = False

    async def take(self, message: Message) -> None:
        """A message of the application's."""
        if message["type"] == "http.response.start":
            self._start = message
            kind = _get(message["headers"], b"content-type")
            self._is_stream = kind.startswith(b"text/event-stream")
            if self._is_stream:
                await self._send({**message, "headers": self._headers(message["headers"], [])})
        elif self._is_stream:
            await self._send(message)
        elif message["type"] == "http.response.body":
            self._body.append(message.get("body", b""))
            if not message.get("more_body", False):
                await self._finish()

    async def _finish(self) -> None:
        assert self._start is not None
        headers, status, body = list(self._start["headers"]), self._start["status"], b"".join(self._body)
        kind = _get(headers, b"content-type").decode("latin-1")
        added = [("vary", "accept-encoding"), ("cache-control", "private, no-cache")]
        if _get(headers, b"cache-control"):
            added.pop()
        if self._is_get and status == 200:
            tag = f'W/"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
            added.append(("etag", tag))
            if tag in self._asked.get("if-none-match", ""):
                status, body = 304, b""
        if (
            len(body) >= _LEAST_ZIPPED
            and kind.startswith(_ZIPPED)
            and not _get(headers, b"content-encoding")
            and "gzip" in self._asked.get("accept-encoding", "")
        ):
            level = _LEVEL.get(kind.partition(";")[0], 6)
            zipped = _zipped(body, level) if len(body) < _MUCH else await asyncio.to_thread(_zipped, body, level)
            if len(zipped) < len(body):
                body = zipped
                added.append(("content-encoding", "gzip"))
        kept = [(name, value) for name, value in headers if name.lower() != b"content-length"]
        if status == 304:
            kept = []
        else:
            added.append(("content-length", str(len(body))))
        await self._send({"type": "http.response.start", "status": status, "headers": self._headers(kept, added)})
        await self._send({"type": "http.response.body", "body": body})

    async def refuse(self, refusal: Refusal) -> None:
        """Answer that the request is not answered."""
        body = strict_json.dumps(refusal.to_json()).encode()
        added = [
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("cache-control", "no-store"),
        ]
        if refusal.status == 401:
            added.append(("www-authenticate", "Bearer"))
        self.extra.clear()
        await self._send({"type": "http.response.start", "status": refusal.status, "headers": self._headers([], added)})
        await self._send({"type": "http.response.body", "body": body})

    async def redirect(self, where: str) -> None:
        """Send the browser elsewhere."""
        added = [("location", where), ("content-length", "0"), ("cache-control", "no-store")]
        await self._send({"type": "http.response.start", "status": 303, "headers": self._headers([], added)})
        await self._send({"type": "http.response.body", "body": b""})

    def _headers(
        self, headers: Iterable[tuple[bytes, bytes]], added: Iterable[tuple[str, str]]
    ) -> list[tuple[bytes, bytes]]:
        own = [(name.encode(), value.encode("latin-1")) for name, value in (*added, *HEADERS.items(), *self.extra)]
        return [*headers, *own]


def _get(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes:
    return next((value for key, value in headers if key.lower() == name), b"")


def _zipped(body: bytes, level: int) -> bytes:
    """The body compressed; itself where its middle gets hardly smaller, as noisy numbers do not."""
    middle = len(body) // 2
    if len(body) > 2 * _PROBE and len(zlib.compress(body[middle : middle + _PROBE], level)) > _HARDLY * _PROBE:
        return body
    return gzip.compress(body, level, mtime=0)
