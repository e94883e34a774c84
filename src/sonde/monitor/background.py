"""The background of a watched training: messages come in, rows and events go out."""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, final

from sonde.monitor.messages import EventMessage, Message, MessageRecorder
from sonde.monitor.transport import NOTHING, Delivery
from sonde.store.environment import told
from sonde.streams.logs import logger

if TYPE_CHECKING:
    from sonde.core.records import Float64

_log = logger("sonde.monitor")

# A thread that wakes takes the interpreter from the training each time: rarely, then, and for many messages at once.
_MOST_WAITING = 16
_WAKE_S = 0.25
_POLL_S = 0.0005


@final
class Mailbox:
    """Messages on their way to the background, in order. Any thread may put one in, and never waits."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Message, Delivery]] = deque()
        self.wake = threading.Event()
        self._unseen = 0
        """Messages that came since the background was last woken."""

    def put(self, message: Message, delivery: Delivery = NOTHING, patience: int = _MOST_WAITING) -> None:
        """Leave a message.

        Args:
            message: What is to be recorded.
            delivery: Its numbers.
            patience: How many may wait before the background is woken; at most 16 do.
        """
        self.waiting.append((message, delivery))
        self._unseen += 1
        if self._unseen >= min(patience, _MOST_WAITING):
            self._unseen = 0
            self.wake.set()


@final
class Background:
    """Records messages on a thread of its own, in order.

    The thread wakes four times a second, when some messages wait, and when somebody waits for it.

    Args:
        mailbox: Where they come from.
        recorder: Records them. Whatever it raises is kept as the first problem and said once.
        problem: Told about every problem.
        strict: Whether `close` raises the first.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        recorder: MessageRecorder,
        problem: Callable[[Exception], None],
        *,
        strict: bool,
    ) -> None:
        self._mailbox, self._recorder, self._tell_problem, self._strict = mailbox, recorder, problem, strict
        self._busy = self._closing = False
        self._problem: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="sonde-monitor", daemon=True)
        self._thread.start()

    def event(self, kind: str, data: Mapping[str, Any]) -> None:
        """Have an event recorded after all that was put in; at once where the background itself has found it."""
        if threading.current_thread() is self._thread:
            self._recorder.event(kind, data)
        else:
            self._mailbox.put(EventMessage(kind, dict(data)))

    def drain(self, timeout_s: float) -> bool:
        """Wait until all that was put in is recorded; whether it is."""
        deadline = time.monotonic() + timeout_s
        while (self._mailbox.waiting or self._busy) and self._thread.is_alive():
            if time.monotonic() > deadline:
                return False
            self._mailbox.wake.set()
            time.sleep(_POLL_S)
        return not (self._mailbox.waiting or self._busy)

    def close(self, timeout_s: float) -> None:
        """Record what is there and end the thread, waiting no longer than this."""
        self.drain(timeout_s)
        self._closing = True
        self._mailbox.wake.set()
        self._thread.join(timeout_s)
        if self._strict and self._problem is not None:
            raise self._problem

    def fail(self, error: Exception) -> None:
        """Note a problem; the first one is said."""
        if self._problem is None:
            self._problem = error
            _log.warning("watching has a problem and goes on with what is left: %s", told(error))

    def _work(self) -> None:
        while True:
            self._busy = True
            num = self._record_arrived()
            # Few messages cost nearly as much as many: those that came meanwhile wait for company.
            while num == _MOST_WAITING or (num and self._closing):
                num = self._record_arrived()
            self._busy = False
            if self._closing:
                return
            self._mailbox.wake.wait(_WAKE_S)
            self._mailbox.wake.clear()

    def _record_arrived(self) -> int:
        """Record the next messages whose numbers are there; how many they were."""
        arrived: list[tuple[Message, Float64]] = []
        waiting = self._mailbox.waiting
        while len(arrived) < _MOST_WAITING and waiting and waiting[0][1].arrived():
            message, delivery = waiting.popleft()
            arrived.append((message, delivery.take()))
        for message, numbers in arrived:
            try:
                message.record(self._recorder, numbers)
            except Exception as error:  # the others are not to blame
                self._tell_problem(error)
                self.fail(error)
        return len(arrived)
