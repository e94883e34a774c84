"""The background of a watched training: sheets come in, frames go out."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from sonde.core.records import Float64
from sonde.monitor.transport import Delivery

_log = logging.getLogger("sonde.monitor")

T = TypeVar("T")

_POLL_S = 0.0005
_IDLE_S = 0.05


class Pipeline(Generic[T]):
    """Hands every sheet, with the numbers that belong to it, to a function on a thread of its own, in order.

    Args:
        consume: What to do with a sheet. Whatever it raises is kept as the first problem and said once.
        strict: Whether `close` raises that problem.
    """

    def __init__(self, consume: Callable[[T, Float64], None], *, strict: bool) -> None:
        self._consume = consume
        self._strict = strict
        self._queue: deque[tuple[T, Delivery]] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._problem: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="sonde-monitor", daemon=True)
        self._thread.start()

    def put(self, sheet: T, delivery: Delivery) -> None:
        """Queue a sheet; returns at once."""
        self._queue.append((sheet, delivery))
        self._wake.set()

    def __len__(self) -> int:
        return len(self._queue)

    def drain(self, timeout_s: float) -> bool:
        """Wait until all that was queued is consumed; whether it is."""
        deadline = time.monotonic() + timeout_s
        while self._queue and self._thread.is_alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return not self._queue

    def close(self, timeout_s: float) -> None:
        """Consume what is there and end the thread, waiting no longer than this."""
        self.drain(timeout_s)
        self._closing = True
        self._wake.set()
        self._thread.join(timeout_s)
        if self._strict and self._problem is not None:
            raise self._problem

    def _work(self) -> None:
        while True:
            if not self._queue:
                if self._closing:
                    return
                self._wake.wait(_IDLE_S)
                self._wake.clear()
                continue
            sheet, delivery = self._queue[0]
            if not delivery.arrived():
                if self._closing:
                    return
                time.sleep(_POLL_S)
                continue
            try:
                self._consume(sheet, delivery.take())
            except Exception as error:
                self.fail(error)
            self._queue.popleft()

    def fail(self, error: Exception) -> None:
        """Note a problem; the first one is said."""
        if self._problem is None:
            self._problem = error
            _log.warning("watching has a problem and goes on with what is left: %r", error, exc_info=error)
