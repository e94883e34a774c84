"""What stands between a training and a sink: a queue that never fills up, and a thread that may wait."""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from itertools import islice, takewhile
from typing import NamedTuple, TypeGuard

from sonde.core.frames import Detail, Frame
from sonde.core.records import Event
from sonde.core.settings import shown
from sonde.sinks.selections import Sieve
from sonde.sinks.sink import STARTED, Item, Refused, Sink
from sonde.streams.logs import logger

_log = logger("sonde.sinks")

_ROOM_BYTES = 16 << 20
_GATHER_S = 1.0
_RETRY_S = 1.0
_LONGEST_RETRY_S = 60.0
_CLOSING_RETRY_S = 0.1
_BATCH_SHARE = 1 / 16  # of the room; what is on its way cannot be thinned out

_EVENT_BYTES = 4096  # a long finding: measuring each would cost more than it saves
_FRAME_BYTES = 256  # of Python's, beside the values

# Share of the room from which on rows of this detail are dropped. Essential rows have the rest to themselves.
_SHARES = {Detail.DISTRIBUTION: 0.25, Detail.LAYER: 0.5}


class _Waiting(NamedTuple):
    item: Item
    num_bytes: int
    place: int = 0
    """Among the essential rows of its table."""


class Feed:
    """Feeds a sink in the background. Whoever brings rows never waits, and no fault of the sink reaches them.

    Rows wait up to `gather_s` so that many go together, those of a step in one batch. A batch that fails is tried again
    after `retry_s`, then twice that, and so on, as long as it takes. What comes meanwhile waits in a room of a fixed
    size: histograms are dropped from a quarter of it on, rows of layers from half of it on; when essential rows fill
    it, the table that has the most of them keeps every other one, then every fourth, and so on until all is sent, so
    that a curve gets coarser instead of ending. Events have a room of the same size.

    The first fault is one warning and one call of `on_problem`; the end says what was dropped.

    Args:
        sink: Where it goes; its selection decides what.
        gather_s: Seconds, at least 0; larger means fewer and larger batches.
        retry_s: The first pause after a fault, seconds above 0.
        longest_retry_s: The longest pause, at least `retry_s`.
        room_bytes: Of rows that wait, about.
        on_problem: Called with the reason when the sink first fails, on the feed's thread.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        gather_s: float = _GATHER_S,
        retry_s: float = _RETRY_S,
        longest_retry_s: float = _LONGEST_RETRY_S,
        room_bytes: int = _ROOM_BYTES,
        on_problem: Callable[[str], None] = lambda reason: None,
    ) -> None:
        if not gather_s >= 0:
            raise ValueError(f"`Feed(gather_s=...)` must be at least 0, got {gather_s}.")
        if not 0 < retry_s <= longest_retry_s:
            raise ValueError(
                f"`Feed(retry_s=...)` must be above 0 and at most longest_retry_s, {longest_retry_s}, got {retry_s}."
            )
        self._sink, self._on_problem = sink, on_problem
        self._gather_s, self._retry_s, self._longest_retry_s = gather_s, retry_s, longest_retry_s
        self._room_bytes = room_bytes
        self._sieve = Sieve(sink.selection)
        self._turn = threading.Condition()
        self._waiting: deque[_Waiting] = deque()
        self._row_bytes = self._event_bytes = 0
        self._dropped: Counter[str] = Counter()
        self._places: Counter[str] = Counter()
        self._strides: dict[str, int] = {}
        """Of the tables that are being thinned out: one of so many rows is kept."""
        self._deadline: float | None = None
        """When to give up; None while open."""
        self._has_warned = self._is_closed = False
        self._num_in_flight = 0
        self._thread = threading.Thread(target=self._work, name=f"sonde-{sink.name}", daemon=True)
        self._thread.start()

    # What the training's background thread calls.

    def append(self, frame: Frame) -> None:
        """Take what the sink wants of a row."""
        try:
            with self._turn:
                if self._deadline is None:
                    chosen = self._sieve(frame)
                    if chosen is not None:
                        self._put_row(chosen)
        except Exception as error:  # whatever it is: the store has the row
            self._warn(error)

    def event(self, event: Event) -> None:
        """Take an event."""
        with self._turn:
            if self._deadline is not None:
                return
            if self._event_bytes + _EVENT_BYTES > self._room_bytes and event.kind != STARTED:
                self._dropped["event"] += 1
                return
            self._event_bytes += _EVENT_BYTES
            self._put(_Waiting(event, _EVENT_BYTES))

    @property
    def dropped(self) -> Mapping[str, int]:
        """How many rows were dropped, of each detail, and events.

        Besides, `refused` is what the sink will never take, `unconfirmed` what it had not answered to at the end.
        """
        with self._turn:
            return dict(self._dropped)

    def stop(self, timeout_s: float) -> None:
        """Take nothing more; `close` then waits for what is left. Several feeds stop together."""
        with self._turn:
            if self._deadline is None:
                self._deadline = time.monotonic() + timeout_s
                self._turn.notify_all()

    def close(self, timeout_s: float = 10.0) -> None:
        """Send what waits, let go of the sink; after this time at the latest it is given up. Again: nothing."""
        self.stop(timeout_s)
        assert self._deadline is not None
        self._thread.join(max(0.0, self._deadline - time.monotonic()) + _CLOSING_RETRY_S)
        with self._turn:
            if self._thread.is_alive() and not self._is_closed:  # it waits for the service, which may be for ever
                self._give_up()
                if self._num_in_flight:
                    self._dropped["unconfirmed"] += self._num_in_flight
            dropped, was_closed, self._is_closed = dict(self._dropped), self._is_closed, True
        if dropped and not was_closed:
            told = ", ".join(f"{number} {kind}" for kind, number in sorted(dropped.items()))
            _log.warning("%s did not get everything; dropped: %s. The run itself has it.", self._sink.name, told)

    def forget(self) -> None:
        """After a fork: the thread and the service are the parent's."""
        self._turn = threading.Condition()  # another thread may have held it
        self._deadline, self._is_closed = 0.0, True
        self._waiting.clear()

    def _put_row(self, frame: Frame) -> None:
        waiting = _Waiting(frame, frame.values.nbytes + _FRAME_BYTES)
        if frame.columns.detail is Detail.ESSENTIAL:
            table = frame.columns.table
            waiting = waiting._replace(place=self._places[table])
            self._places[table] += 1
            if self._is_kept(waiting) and not self._has_room(waiting):
                self._thin()
        if self._has_room(waiting) and self._is_kept(waiting):
            self._row_bytes += waiting.num_bytes
            self._put(waiting)
        else:
            self._dropped[_kind(frame)] += 1

    def _has_room(self, waiting: _Waiting) -> bool:
        assert isinstance(waiting.item, Frame)
        share = _SHARES.get(waiting.item.columns.detail, 1.0)
        return self._row_bytes + waiting.num_bytes <= share * self._room_bytes

    def _put(self, waiting: _Waiting) -> None:
        if not self._waiting:
            self._turn.notify_all()
        self._waiting.append(waiting)

    def _thin(self) -> None:
        """Drop every other row of the essential table that has the most."""
        taken = Counter[str]()
        for waiting in self._waiting:
            if _is_essential(waiting.item):
                taken[waiting.item.columns.table] += waiting.num_bytes
        if not taken:
            return
        table = taken.most_common(1)[0][0]
        self._strides[table] = 2 * self._strides.get(table, 1)
        kept = deque(waiting for waiting in self._waiting if self._is_kept(waiting))
        self._dropped["essential"] += len(self._waiting) - len(kept)
        self._row_bytes -= sum(waiting.num_bytes for waiting in self._waiting if not self._is_kept(waiting))
        self._waiting = kept

    def _is_kept(self, waiting: _Waiting) -> bool:
        return not _is_essential(waiting.item) or not waiting.place % self._strides.get(waiting.item.columns.table, 1)

    # What the feed's own thread does.

    def _work(self) -> None:
        pause_s = self._retry_s
        while batch := self._take():
            is_done = self._is_done_with([waiting.item for waiting in batch])
            self._settle(batch, is_done=is_done)
            pause_s = self._retry_s if is_done else self._rest(pause_s)
        assert self._deadline is not None
        try:
            self._sink.close(max(0.0, self._deadline - time.monotonic()))
        except (Exception, SystemExit) as error:
            self._warn(error)

    def _is_done_with(self, batch: list[Item]) -> bool:
        """Whether the sink took it, or never will."""
        try:
            self._sink.write(batch)
        except Refused as error:
            with self._turn:
                self._dropped["refused"] += len(batch)
            self._warn(error)
        except (Exception, SystemExit) as error:
            self._warn(error)
            return False
        return True

    def _settle(self, batch: list[_Waiting], *, is_done: bool) -> None:
        with self._turn:
            self._num_in_flight = 0
            if not is_done and not self._is_closed:
                self._waiting.extendleft(reversed(batch))  # where it may be thinned out
                return
            for waiting in batch:
                if isinstance(waiting.item, Frame):
                    self._row_bytes -= waiting.num_bytes
                else:
                    self._event_bytes -= waiting.num_bytes
            if not self._waiting:
                self._strides.clear()

    def _rest(self, pause_s: float) -> float:
        """Wait before the next try; the pause after that. At the end there is no time for long ones."""
        with self._turn:
            self._turn.wait_for(lambda: self._deadline is not None, pause_s)
            if self._deadline is not None:
                left_s = self._deadline - time.monotonic()
                if left_s <= 0:
                    self._give_up()
                else:
                    self._turn.wait(min(_CLOSING_RETRY_S, left_s))
        return min(2 * pause_s, self._longest_retry_s)

    def _give_up(self) -> None:
        for waiting in self._waiting:
            self._dropped[_kind(waiting.item)] += 1
        self._waiting.clear()

    def _take(self) -> list[_Waiting]:
        """The next batch; nothing where all was sent and no more will come."""
        with self._turn:
            self._turn.wait_for(lambda: self._waiting or self._deadline is not None)
            self._turn.wait_for(lambda: self._deadline is not None, self._gather_s)
            num_items = len(self._waiting)
            if self._deadline is None:
                # A row more of the newest step may be on its way; alone, it has waited long enough.
                newest = sum(1 for _ in takewhile(self._is_newest, reversed(self._waiting)))
                num_items -= newest if newest < num_items else 0
            num_items = self._end_of_step(self._num_that_fit(num_items), num_items)
            self._num_in_flight = num_items
            return [self._waiting.popleft() for _ in range(num_items)]

    def _is_newest(self, waiting: _Waiting) -> bool:
        newest = self._waiting[-1].item
        return isinstance(waiting.item, Frame) and isinstance(newest, Frame) and waiting.item.step == newest.step

    def _num_that_fit(self, most: int) -> int:
        left = self._room_bytes * _BATCH_SHARE
        for place, waiting in enumerate(islice(self._waiting, most)):
            left -= waiting.num_bytes
            if left < 0:
                return place + 1
        return most

    def _end_of_step(self, place: int, most: int) -> int:
        while place < most and self._waiting[place].item.step == self._waiting[place - 1].item.step:
            place += 1
        return place

    def _warn(self, error: BaseException) -> None:
        if self._has_warned or self._is_closed:
            return
        self._has_warned = True
        # It goes into a log and into the run, where no password belongs.
        reason = str(shown(f"{type(error).__name__}: {error}"))
        _log.warning(
            "%s cannot be written: %s. The training goes on, the run has everything, and Sonde keeps trying.",
            self._sink.name,
            reason,
        )
        try:
            self._on_problem(reason)
        except Exception as failed:
            _log.debug("a problem of %s was not recorded: %r", self._sink.name, failed)


def _is_essential(item: Item) -> TypeGuard[Frame]:
    return isinstance(item, Frame) and item.columns.detail is Detail.ESSENTIAL


def _kind(item: Item) -> str:
    return item.columns.detail.name.lower() if isinstance(item, Frame) else "event"
