"""The background of a watched training: sheets come in, frames go out."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from sonde.core.records import Float64
from sonde.monitor.transport import Delivery
from sonde.store.environment import told
from sonde.streams.logs import logger

_log = logger("sonde.monitor")

T = TypeVar("T")

# A thread that wakes takes the interpreter from the training each time: rarely, then, and for many sheets at once.
_MOST_WAITING = 16
_WAKE_S = 0.25
_POLL_S = 0.0005


class Pipeline(Generic[T]):
    """Hands all sheets, with the numbers that belong to them, to a function on a thread of its own, in order.

    The thread wakes four times a second, when some sheets wait, and when somebody waits for it.

    Args:
        consume: What to do with some sheets. Whatever it raises is kept as the first problem and said once.
        strict: Whether `close` raises that problem.
        gather: Called each time that the thread wakes: may `put` more.
    """

    def __init__(
        self,
        consume: Callable[[Sequence[tuple[T, Float64]]], None],
        *,
        strict: bool,
        gather: Callable[[], None] = lambda: None,
    ) -> None:
        self._consume, self._gather = consume, gather
        self._strict = strict
        self._queue: deque[tuple[T, Delivery]] = deque()
        self._unseen = 0
        """Sheets that came since the thread was last woken."""
        self._busy = False
        self._wake = threading.Event()
        self._closing = False
        self._problem: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="sonde-monitor", daemon=True)
        self._thread.start()

    def put(self, sheet: T, delivery: Delivery, patience: int = _MOST_WAITING) -> None:
        """Queue a sheet; returns at once.

        Args:
            sheet: For `consume`.
            delivery: Its numbers.
            patience: How many may wait before the thread is woken; at most 16 do.
        """
        self._queue.append((sheet, delivery))
        self._unseen += 1
        if self._unseen >= min(patience, _MOST_WAITING):
            self._unseen = 0
            self._wake.set()

    @property
    def is_current_thread(self) -> bool:
        """Whether the caller is what consumes."""
        return threading.current_thread() is self._thread

    def drain(self, timeout_s: float) -> bool:
        """Wait until all that was queued is consumed; whether it is."""
        deadline = time.monotonic() + timeout_s
        while (self._queue or self._busy) and self._thread.is_alive():
            if time.monotonic() > deadline:
                return False
            self._wake.set()
            time.sleep(_POLL_S)
        return not (self._queue or self._busy)

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
            self._busy = True
            try:
                self._gather()
            except Exception as error:
                self.fail(error)
            batch = self._arrived()
            while batch:
                try:
                    self._consume(batch)
                except Exception as error:
                    self.fail(error)
                # Few sheets cost nearly as much as many: those that came meanwhile wait for company.
                batch = self._arrived() if len(batch) == _MOST_WAITING or self._closing else []
            self._busy = False
            if self._closing:
                return
            self._wake.wait(_WAKE_S)
            self._wake.clear()

    def _arrived(self) -> list[tuple[T, Float64]]:
        """The next sheets whose numbers are there."""
        batch: list[tuple[T, Float64]] = []
        while len(batch) < _MOST_WAITING and self._queue and self._queue[0][1].arrived():
            sheet, delivery = self._queue.popleft()
            batch.append((sheet, delivery.take()))
        return batch

    def fail(self, error: Exception) -> None:
        """Note a problem; the first one is said."""
        if self._problem is None:
            self._problem = error
            _log.warning("watching has a problem and goes on with what is left: %s", told(error))
