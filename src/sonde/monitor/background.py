"""The background of a watched training: messages come in, rows and events go out."""

import threading
import time
from collections.abc import Callable
from typing import final

from sonde.monitor.mailbox import MOST_WAITING, Mailbox
from sonde.monitor.messages import Message, MessageRecorder
from sonde.monitor.transport import Delivery

_WAKE_S = 0.25
_POLL_S = 0.0005


@final
class Background:
    """Records messages on a thread of its own, in order.

    The thread wakes four times a second, when some messages wait, and when somebody waits for it.

    Args:
        mailbox: Where they come from.
        recorder: Records them.
        failed: Told about whatever that raises.
    """

    def __init__(self, mailbox: Mailbox, recorder: MessageRecorder, failed: Callable[[Exception], None]) -> None:
        self._mailbox, self._recorder, self._failed = mailbox, recorder, failed
        self._busy = self._closing = False
        mailbox.reader = self._thread = threading.Thread(target=self._work, name="sonde-monitor", daemon=True)
        self._thread.start()

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

    def _work(self) -> None:
        while True:
            self._busy = True
            num = self._record_arrived()
            # Few messages cost nearly as much as many: those that came meanwhile wait for company.
            while num == MOST_WAITING or (num and self._closing):
                num = self._record_arrived()
            self._busy = False
            if self._closing:
                return
            self._mailbox.wake.wait(_WAKE_S)
            self._mailbox.wake.clear()

    def _record_arrived(self) -> int:
        """Record the next messages whose numbers are there; how many they were."""
        waiting, num = self._mailbox.waiting, 0
        while num < MOST_WAITING and waiting and waiting[0][1].arrived():
            self._record(*waiting.popleft())
            num += 1
        try:
            self._recorder.rest()
        except Exception as error:
            self._failed(error)
        return num

    def _record(self, message: Message, delivery: Delivery) -> None:
        numbers = delivery.take()
        try:
            message.record(self._recorder, numbers)
        except Exception as error:  # the others are not to blame
            self._failed(error)
        while self._mailbox.found:
            self._mailbox.found.popleft().record(self._recorder, numbers)
