"""Alerts from the background: nothing here ever waits on, or raises into, the thread that brings the findings.

One thread asks the policy; one for each channel sends, so that a channel that does not answer holds up no other. A
channel has one message under way at a time: while it is tried again, findings gather in the policy, and the next
message says them together. So memory stays small whatever happens to the network: 250 findings a channel, the
critical ones, which are never given up, and a code and a step of each that was told.
"""

import itertools
import queue
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from sonde.alerts.backoff import Backoff
from sonde.alerts.channels.channel import Channel, Delivered, Refused, attempt
from sonde.alerts.notices import Bulletin, Curve, Notice
from sonde.alerts.policy import Policy
from sonde.core.findings import Finding, Severity
from sonde.streams.logs import logger

_log = logger("sonde.alerts")

_MOST_WAITING = 20_000  # findings: some 20 MB
_LONGEST_WAIT_S = 600.0  # then the clock is asked again: it may have been set, or the machine asleep
_GATHER_S = (0.05, 0.5)  # findings come in batches: one look at all of them, the later the longer messages wait
_SLICE, _BREATH_S = 256, 50e-6  # findings, half a millisecond's; then the training gets the interpreter
_PATIENCE = 3  # failures in a row until a channel is called dead


class _Done(NamedTuple):
    """A channel has no message under way any more."""

    name: str
    arrived: bool


class _Close(NamedTuple):
    """No finding comes any more: say the rest."""


class _End(NamedTuple):
    """There is no time left."""


_Item = Finding | _Done | _Close | _End


class Sender:
    """Tells channels about findings, as the policy says.

    A message is sent until it arrives: at least once, and twice where only the answer was lost (`Bulletin.id` tells).

    Args:
        policy: What is told when.
        channels: By name, the same names as the policy's.
        run: Name or path of the run.
        host: The machine; its own name where left out.
        curve: Gives what mails show a picture of; called on Sonde's thread when a message is made. May give None.
        warn: Told, once each, that a channel is dead, and how much was not sent at the end; on Sonde's threads.
        backoff: Between attempts.
        clock: Seconds since 1970.
        draw: A number of [0, 1), for the back-off.
    """

    def __init__(
        self,
        policy: Policy,
        channels: Mapping[str, Channel],
        *,
        run: str,
        host: str | None = None,
        curve: Callable[[], Curve | None] | None = None,
        warn: Callable[[str], None] = _log.warning,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.time,
        draw: Callable[[], float] | None = None,
    ) -> None:
        if set(policy.channels) != set(channels):
            raise ValueError(
                "`Sender(channels=...)` must have the names of the policy's, "
                f"{', '.join(sorted(policy.channels)) or 'none'}, got {', '.join(sorted(channels)) or 'none'}."
            )
        self._policy, self._channels = policy, dict(channels)
        self._run, self._host, self._curve = run, host or socket.gethostname(), curve
        self._warn, self._clock = warn, clock
        self._backoff = backoff or Backoff()
        self._draw = draw or random.Random().random  # a generator of its own: the training's is not touched
        self._complained: set[str] = set()
        self._token, self._numbers = uuid.uuid4().hex[:12], itertools.count(1)

        # `SimpleQueue` may be used from a signal handler that has interrupted another use of it.
        self._inbox: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._losses, self._num_lost, self._num_lost_told = itertools.count(1), 0, 0
        self._trays: dict[str, queue.SimpleQueue[Bulletin | None]] = {name: queue.SimpleQueue() for name in channels}
        self._closing, self._over = threading.Event(), threading.Event()
        self._gather_s = min(max(_GATHER_S[0], policy.group_s / 10), _GATHER_S[1])
        self._gone = False
        self._parted: set[str] = set()
        self._state = policy.init(clock())
        self._thread = threading.Thread(target=self._decide, name="sonde-alerts", daemon=True)
        self._threads = [
            threading.Thread(target=self._serve, args=(name,), name=f"sonde-alerts-{name}", daemon=True)
            for name in channels
        ]
        for thread in (self._thread, *self._threads):
            thread.start()

    def put(self, finding: Finding) -> None:
        """Take a finding that is new, worse or over; the same one again changes nothing. From any thread; never waits.

        What there is no room to keep is told as a number; critical ones have twice the room.
        """
        if self._gone:
            return
        room = 2 * _MOST_WAITING if finding.severity is Severity.CRITICAL else _MOST_WAITING
        if self._inbox.qsize() < room:
            self._inbox.put(finding)
        else:
            self._num_lost = next(self._losses)

    def close(self, timeout_s: float = 10.0) -> dict[str, int]:
        """Send what is left, for at most this long.

        Returns:
            How many findings were not told, by channel, neither by name nor by number; empty where all were.
        """
        if self._gone:
            return {}
        self._gone = True
        deadline_s = time.monotonic() + timeout_s
        self._inbox.put(_Close())
        self._closing.set()
        self._thread.join(timeout_s)
        self._over.set()
        self._inbox.put(_End())
        for tray in self._trays.values():
            tray.put(None)
        for thread in (self._thread, *self._threads):
            thread.join(max(0.0, deadline_s - time.monotonic()))
        untold = self._policy.num_untold(self._state)
        for name, number in untold.items():
            self._say(f"alerts: {number} of the findings could not be told to {name}; see sonde diagnose {self._run}")
        return untold

    def forget(self) -> None:
        """After a fork: the threads are the parent's."""
        self._gone = True

    def _decide(self) -> None:
        try:
            closing = False
            under_way: set[str] = set()
            while under_way or not closing:
                items = self._next_items(until_due=not closing)
                under_way.difference_update(item.name for item in items if isinstance(item, _Done))
                closing = closing or any(isinstance(item, _Close) for item in items)
                self._account(items)
                if any(isinstance(item, _End) for item in items):
                    return
                notices = self._farewells(without=under_way) if closing else self._due()
                for name, notice in notices.items():
                    under_way.add(name)
                    self._trays[name].put(self._bulletin(notice))
        except Exception as error:  # ours: alerts end, the training does not
            self._gone = True
            self._say(f"alerts have a problem and come no more: {type(error).__name__}: {error}")

    def _next_items(self, *, until_due: bool) -> list[_Item]:
        """All that has come, at least one where nothing is due before."""
        now_s = self._clock()
        due_s = self._policy.due_s(self._state, now_s) if until_due else None
        wait_s = _LONGEST_WAIT_S if due_s is None else min(max(0.0, due_s - now_s), _LONGEST_WAIT_S)
        try:
            first = self._inbox.get(timeout=wait_s)
        except queue.Empty:
            return []
        if isinstance(first, Finding):
            self._closing.wait(self._gather_s)
        # Only this thread takes: as many as are there now can be had.
        return [first, *(self._inbox.get() for _ in range(self._inbox.qsize()))]

    def _account(self, items: Collection[_Item]) -> None:
        now_s, num_lost = self._clock(), self._num_lost
        for item in items:
            if isinstance(item, _Done) and item.arrived:
                self._state = self._policy.delivered(self._state, item.name)
            elif isinstance(item, _Done):
                self._state = self._policy.refused(self._state, item.name, now_s)
        if num_lost != self._num_lost_told:
            self._state = self._policy.take(self._state, (), now_s, num_lost=num_lost - self._num_lost_told)
            self._num_lost_told = num_lost
        findings = [item for item in items if isinstance(item, Finding)]
        for first in range(0, len(findings), _SLICE):
            self._state = self._policy.take(self._state, findings[first : first + _SLICE], now_s)
            time.sleep(_BREATH_S)

    def _due(self) -> dict[str, Notice]:
        self._state, notices = self._policy.decide(self._state, self._clock())
        return notices

    def _farewells(self, *, without: Collection[str]) -> dict[str, Notice]:
        """To each channel once, when it is free."""
        notices = {}
        for name in set(self._channels) - self._parted - set(without):
            self._parted.add(name)
            self._state, notice = self._policy.farewell(self._state, name, self._clock())
            if notice is not None:
                notices[name] = notice
        return notices

    def _bulletin(self, notice: Notice) -> Bulletin:
        curve = None
        if self._curve is not None:
            try:
                curve = self._curve()
            except Exception as error:  # the caller's: a message without a picture is better than none
                _log.debug("alerts: no curve", exc_info=error)
        return Bulletin(
            notice=notice,
            id=f"{self._token}-{next(self._numbers)}",
            run=self._run,
            host=self._host,
            time_s=self._clock(),
            curve=curve,
        )

    def _serve(self, name: str) -> None:
        """A channel's own thread."""
        while (bulletin := self._trays[name].get()) is not None:
            self._inbox.put(_Done(name, self._deliver(name, bulletin)))

    def _deliver(self, name: str, bulletin: Bulletin) -> bool:
        """Whether it arrived; tried until it does, is refused, or there is no time left."""
        hurry, num_failures = False, 0
        while True:
            outcome = attempt(self._channels[name], bulletin)
            if isinstance(outcome, Delivered):
                if outcome.remark:
                    self._complain(name, f"alerts: {name} delivered, but {outcome.remark}")
                return True
            if isinstance(outcome, Refused):
                self._complain(name, f"alerts: {name} refuses messages: {outcome.reason}")
                return False
            num_failures += 1
            if num_failures == _PATIENCE:
                self._complain(name, f"alerts: {name} is dead, still trying: {outcome.reason}")
            wait_s = max(self._backoff.delay_s(num_failures - 1, self._draw()), outcome.after_s)
            if hurry:
                if self._over.wait(wait_s):
                    return False
            elif self._closing.wait(wait_s):  # a last chance: at once, then from the shortest wait on
                hurry, num_failures = True, 0

    def _complain(self, name: str, trouble: str) -> None:
        if name not in self._complained:
            self._complained.add(name)
            self._say(trouble)

    def _say(self, trouble: str) -> None:
        try:
            self._warn(trouble)
        except Exception as error:  # the caller's
            _log.debug("alerts: a warning was not taken", exc_info=error)
