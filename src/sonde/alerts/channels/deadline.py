"""An end to what is done over connections, in all: a time-out of each reading never ends one that drips."""

import contextlib
import socket
import threading
from types import TracebackType
from typing import final


@final
class Deadline:
    """Cuts connections when its time has passed; whoever waits for one then gets the end of it, or an error.

    Args:
        timeout_s: How long all of it may take, from `with` on.
    """

    def __init__(self, timeout_s: float) -> None:
        self.has_passed = False
        self._timer = threading.Timer(timeout_s, self._cut)
        self._timer.daemon = True
        self._lock = threading.Lock()
        self._connections: list[socket.socket] = []

    def watch(self, connection: socket.socket) -> None:
        """A connection was made."""
        with self._lock:
            # A descriptor of our own: TLS takes the given one over, and others close it when they like.
            self._connections.append(connection.dup())
        if self.has_passed:
            self._cut()

    def _cut(self) -> None:
        with self._lock:
            self.has_passed = True
            for connection in self._connections:
                with contextlib.suppress(OSError):  # it is over already
                    connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> "Deadline":
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._lock:
            for connection in self._connections:
                connection.close()
            self._connections.clear()
