import logging
import os
import threading
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest

from sonde.core.frames import Columns, Detail, Frame
from sonde.core.records import Event
from sonde.sinks.feed import Feed
from sonde.sinks.selections import Selection
from sonde.sinks.sink import STARTED, Item, Refused

from .services import Service, row

STEP = Columns("step", ("loss",))
LAYERS = Columns("gradients", ("grad/norm@a",), Detail.LAYER)
SHAPES = Columns("shapes", ("grad/histogram@a",), Detail.DISTRIBUTION)
LONG_S = 60.0  # a bound that is never reached


def quick(sink: Service, **settings: float) -> Feed:
    return Feed(sink, **{"gather_s": 0.001, "retry_s": 0.001, "longest_retry_s": 0.004, **settings})  # type: ignore[arg-type]


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Opened at the latest when the test ends, so that no thread is left behind."""
    event = threading.Event()
    yield event
    event.set()


def test_rows_and_events_arrive_once_and_in_order() -> None:
    service = Service()
    feed = quick(service)
    for step in range(500):
        feed.append(row(STEP, step, step / 2))
        if step % 100 == 0:
            feed.event(Event("note", 0.0, step))
    feed.close(LONG_S)
    assert service.steps == list(range(500))
    assert [item.values[0] for item in service.items if isinstance(item, Frame)] == [step / 2 for step in range(500)]
    assert [item.step for item in service.items if isinstance(item, Event)] == [0, 100, 200, 300, 400]
    assert service.is_closed.is_set()
    assert not feed.dropped


def test_rows_of_a_step_come_in_one_batch() -> None:
    service = Service()
    feed = quick(service, gather_s=0.02)
    for step in range(3000):
        for columns in (STEP, LAYERS, SHAPES):
            feed.append(row(columns, step, 1))
    feed.close(LONG_S)
    assert len(service.batches) > 1
    together = [{item.step for item in batch} for batch in service.batches]
    assert sum(map(len, together)) == 3000
    assert service.steps == [step for step in range(3000) for _ in range(3)]


def test_a_service_that_is_down_half_of_the_time_gets_everything_and_is_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    problems: list[str] = []

    def flaky(batch: Sequence[Item]) -> None:
        if service.num_attempts % 2:
            raise ConnectionError("down")

    service = Service(flaky)
    feed = Feed(service, gather_s=0.001, retry_s=0.001, longest_retry_s=0.004, on_problem=problems.append)
    for step in range(2000):
        feed.append(row(STEP, step, step))
        if step % 200 == 0:
            service.wait_for(lambda: len(service.steps) >= step - 100)  # noqa: B023  so that there are many batches
    feed.close(LONG_S)
    assert len(service.batches) >= 9
    assert service.num_attempts == 2 * len(service.batches)
    assert service.steps == list(range(2000))
    assert problems == ["ConnectionError: down"]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "cannot be written: ConnectionError: down" in caplog.text


def test_whoever_brings_rows_is_not_kept_waiting_by_a_service_that_does_not_answer(
    gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service(lambda batch: (gate.wait(), None)[1])
    feed = quick(service, room_bytes=100_000)
    for step in range(20_000):
        feed.append(row(STEP, step, step))
        feed.append(row(LAYERS, step, step))
    feed.close(0.0)  # and not by its end either
    assert feed.dropped["essential"] > 10_000
    assert feed.dropped["layer"] > 19_000
    assert feed.dropped["unconfirmed"] > 0
    assert sum(feed.dropped.values()) == 40_000
    assert "did not get everything" in caplog.text
    assert not service.is_closed.is_set()


def test_detail_is_dropped_first(gate: threading.Event) -> None:
    service = Service(lambda batch: (gate.wait(), None)[1])
    feed = quick(service, room_bytes=400 * 260)
    kinds_first_dropped: list[str] = []
    for step in range(1000):
        for columns in (SHAPES, LAYERS, STEP):
            feed.append(row(columns, step, step))
            kinds_first_dropped += [kind for kind in feed.dropped if kind not in kinds_first_dropped]
    assert kinds_first_dropped == ["distribution", "layer", "essential"]
    gate.set()
    feed.close(LONG_S)
    essential = [item.step for item in service.items if isinstance(item, Frame) and item.columns.table == "step"]
    assert len(essential) + feed.dropped["essential"] == 1000
    assert max(after - before for before, after in pairwise([*essential, 1000])) <= 8  # coarser, without a hole
    assert feed.dropped["essential"] < 900


def test_the_table_with_the_most_rows_is_thinned_and_rare_rows_are_kept(gate: threading.Event) -> None:
    service = Service(lambda batch: (gate.wait(), None)[1])
    feed = quick(service, room_bytes=400 * 260)
    rare = Columns("evaluation", ("val/loss",))
    for step in range(4000):
        feed.append(row(STEP, step, step))
        if step % 100 == 0:
            feed.append(row(rare, step, step))
    gate.set()
    feed.close(LONG_S)
    kept = [item.step for item in service.items if isinstance(item, Frame) and item.columns.table == "evaluation"]
    assert kept == list(range(0, 4000, 100))


def test_once_everything_is_sent_every_row_is_again(gate: threading.Event) -> None:
    service = Service(lambda batch: (gate.wait(), None)[1])
    feed = quick(service, room_bytes=100 * 260)
    for step in range(1000):
        feed.append(row(STEP, step, step))
    gate.set()
    service.wait_for(lambda: len(service.steps) == 1000 - feed.dropped["essential"])
    for step in range(1000, 1050):
        feed.append(row(STEP, step, step))
    feed.close(LONG_S)
    assert service.steps[-50:] == list(range(1000, 1050))


def test_a_storm_of_events_is_bounded_and_the_start_of_the_run_is_never_dropped(gate: threading.Event) -> None:
    service = Service(lambda batch: (gate.wait(), None)[1])
    feed = quick(service, room_bytes=4096 * 20)
    for number in range(10_000):
        feed.event(Event("finding", 0.0, number))
    feed.event(Event(STARTED, 0.0))
    gate.set()
    feed.close(LONG_S)
    assert feed.dropped == {"event": 10_000 - 20}
    assert service.items[-1] == Event(STARTED, 0.0)


def test_a_service_that_comes_back_while_the_feed_is_closed_still_gets_all() -> None:
    def late(batch: Sequence[Item]) -> None:
        if service.num_attempts < 4:
            raise TimeoutError

    service = Service(late)
    feed = Feed(service, gather_s=0.001, retry_s=1000, longest_retry_s=1000)  # asleep when it is closed
    feed.append(row(STEP, 1, 1))
    service.wait_for(lambda: service.num_attempts > 0)
    feed.close(LONG_S)
    assert service.steps == [1]
    assert not feed.dropped


def test_closing_with_a_dead_service_ends_and_says_what_was_lost(caplog: pytest.LogCaptureFixture) -> None:
    def dead(batch: Sequence[Item]) -> None:
        raise ConnectionRefusedError(111, "refused")

    service = Service(dead)
    feed = quick(service)
    for step in range(5):
        feed.append(row(STEP, step, step))
    feed.event(Event("finding", 0.0, 3))
    feed.close(0.05)
    feed.close(0.05)
    assert feed.dropped == {"essential": 5, "event": 1}
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "service cannot be written",
        "service did not get everything; dropped",
    ]
    assert service.is_closed.wait(LONG_S)


def test_what_is_refused_is_not_tried_again_and_keeps_nothing_back() -> None:
    def choosy(batch: Sequence[Item]) -> None:
        if any(item.step == 0 for item in batch):
            raise Refused("no zeros")

    service = Service(choosy)
    feed = quick(service)
    feed.append(row(STEP, 0, 0))
    service.wait_for(lambda: service.num_attempts > 0)
    feed.append(row(STEP, 1, 1))
    feed.close(LONG_S)
    assert service.steps == [1]
    assert service.num_attempts == 2
    assert feed.dropped == {"refused": 1}


def test_a_sink_that_exits_or_fails_at_its_end_is_survived(caplog: pytest.LogCaptureFixture) -> None:
    class Rude(Service):
        def write(self, batch: Sequence[Item]) -> None:
            super().write(batch)
            if self.num_attempts == 1:
                raise SystemExit(3)

        def close(self, timeout_s: float) -> None:
            super().close(timeout_s)
            raise RuntimeError

    service = Rude()
    feed = quick(service)
    feed.append(row(STEP, 1, 1))
    feed.close(LONG_S)
    assert service.steps == [1, 1]
    assert service.is_closed.is_set()
    assert len(caplog.records) == 1


def test_what_comes_after_the_end_is_ignored() -> None:
    service = Service()
    feed = quick(service)
    feed.close(LONG_S)
    feed.append(row(STEP, 1, 1))
    feed.event(Event("note", 0.0))
    assert service.batches == []
    assert not feed.dropped


def test_only_what_the_sink_wants_takes_room() -> None:
    service = Service(selection=Selection(essential=("lr",)))
    feed = quick(service)
    feed.append(row(STEP, 1, 1))
    feed.close(LONG_S)
    assert service.num_attempts == 0


def test_a_row_that_does_not_fit_its_columns_raises_nothing(caplog: pytest.LogCaptureFixture) -> None:
    service = Service()
    feed = quick(service)
    feed.append(row(STEP, 1))
    feed.close(LONG_S)
    assert "IndexError" in caplog.text


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="gather_s"):
        Feed(Service(), gather_s=-1)
    with pytest.raises(ValueError, match="retry_s"):
        Feed(Service(), retry_s=0)


def test_a_forked_child_neither_sends_nor_waits() -> None:
    service = Service()
    feed = quick(service)
    child = os.fork()
    if not child:
        feed.forget()
        feed.append(row(STEP, 1, 1))
        feed.event(Event("note", 0.0))
        feed.close(LONG_S)
        os._exit(len(service.batches))
    _, status = os.waitpid(child, 0)
    feed.append(row(STEP, 2, 2))
    feed.close(LONG_S)
    assert os.waitstatus_to_exitcode(status) == 0
    assert service.steps == [2]


def test_a_password_in_an_address_is_neither_logged_nor_recorded(caplog: pytest.LogCaptureFixture) -> None:
    def dead(batch: Sequence[Item]) -> None:
        raise ConnectionError("cannot reach https://me:hunter2@example.org/api")

    problems: list[str] = []
    feed = Feed(Service(dead), gather_s=0.001, retry_s=0.001, on_problem=problems.append)
    feed.append(row(STEP, 1, 1))
    feed.close(0.01)
    assert "hunter2" not in caplog.text
    assert problems == ["ConnectionError: cannot reach https://•••@example.org/api"]
