"""Messages on their way from the training, and from any other thread, to the background."""

import threading
from collections import deque
from collections.abc import Mapping
from typing import Any, final

from sonde.monitor.messages import EventMessage, Message
from sonde.monitor.transport import NOTHING, Delivery

MOST_WAITING = 16
"""A thread that wakes takes the interpreter from the training: rarely, then, and for many messages at once."""


@final
class Mailbox:
    """Messages in order. Whoever puts one in never waits."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Message, Delivery]] = deque()
        self.wake = threading.Event()
        self.reader: threading.Thread | None = None
        """Who takes them."""
        self.found: deque[EventMessage] = deque()
        """What that has found in the message that it is working on: it belongs behind that, not behind all others."""
        self._unseen = 0
        """Messages that came since the reader was last woken."""

    def put(self, message: Message, delivery: Delivery = NOTHING, patience: int = MOST_WAITING) -> None:
        """Leave a message.

        Args:
            message: What is to be recorded.
            delivery: Its numbers.
            patience: How many may wait before the reader is woken; at most `MOST_WAITING` do.
        """
        self.waiting.append((message, delivery))
        self._unseen += 1
        if self._unseen >= min(patience, MOST_WAITING):
            self._unseen = 0
            self.wake.set()

    def event(self, kind: str, data: Mapping[str, Any]) -> None:
        """Leave an event."""
        message = EventMessage(kind, dict(data))
        if threading.current_thread() is self.reader:
            self.found.append(message)
        else:
            self.put(message)
