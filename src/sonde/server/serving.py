"""Runs the server until it is ended: a socket, uvicorn, and a browser that opens."""

import errno
import os
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import uvicorn

from sonde.core.errors import StoreError
from sonde.server.app import application
from sonde.server.security import Access, is_loopback, names_of

PORT = 8321
_QUEUE = 128


class PortTaken(StoreError):
    """Somebody listens there already."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Where and for whom the server is.

    Args:
        folder: Of the runs.
        host: The address to bind to; elsewhere than on this machine a token is needed.
        port: 0 is any that is free.
        token: Made where it is needed and empty.
        names: Further names by which it may be asked for.
        shown: What the folder is called, where it is a copy: nothing can be written to it then.
    """

    folder: Path
    host: str = "127.0.0.1"
    port: int = PORT
    token: str = ""
    names: Sequence[str] = ()
    shown: str = ""


@final
class Server:
    """A server that holds its port, and answers once it runs.

    Args:
        settings: Where and for whom.

    Attributes:
        address: What a browser opens: with the token, where one is needed.

    Raises:
        PortTaken: somebody listens there already.
        OSError: the address is none of this machine's, or may not be used.
    """

    def __init__(self, settings: Settings) -> None:
        token = settings.token or ("" if is_loopback(settings.host) else secrets.token_urlsafe(24))
        self._socket = _bound(settings.host, settings.port)
        port = self._socket.getsockname()[1]
        access = Access(token=token, names=names_of(settings.host, settings.names), port=port)
        self.address = f"http://{_shown(settings.host)}:{port}/" + (f"?token={token}" if token else "")
        app = application(
            settings.folder, access=access, is_over=lambda: self._server.should_exit, shown=settings.shown
        )
        config = uvicorn.Config(
            app,
            log_level="critical",  # addresses hold the token
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=2,
            timeout_keep_alive=30,
            h11_max_incomplete_event_size=128 << 10,
            limit_concurrency=512,
        )
        self._server = uvicorn.Server(config)

    def run(self, when_ready: Callable[[], None] = lambda: None) -> None:
        """Answer until Ctrl-C or SIGTERM.

        Args:
            when_ready: Called once requests are answered, on a thread of its own.
        """
        threading.Thread(target=self._tell, args=(when_ready,), daemon=True).start()
        try:
            self._server.run(sockets=[self._socket])
        except KeyboardInterrupt:
            pass  # the usual end
        finally:
            self._socket.close()

    def stop(self) -> None:
        """End it, from another thread."""
        self._server.should_exit = True

    def _tell(self, when_ready: Callable[[], None]) -> None:
        waiting = threading.Event()
        while not self._server.started:
            if self._server.should_exit or waiting.wait(0.02):
                return
        when_ready()


def open_browser(address: str) -> bool:
    """Open a page in the person's browser; whether there is a screen for one."""
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False  # else a browser for terminals may take the one that we write to
    try:
        return webbrowser.open(address)
    except webbrowser.Error:
        return False


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
    )[0]
    # Of a socket whose protocol is not said, asyncio does not switch Nagle's algorithm off: 40 ms an answer.
    found = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":  # elsewhere two could bind to one port
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(_QUEUE)
    except OSError as error:
        found.close()
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(
                f"port {port} is taken: perhaps another `sonde ui` runs there; open http://{_shown(host)}:{port}/, "
                "or choose another port with --port (0 takes one that is free)"
            ) from error
        raise
    return found


def _shown(host: str) -> str:
    """An address as a browser takes it."""
    if host in ("0.0.0.0", "::"):  # no browser opens these
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host
