import math

import numpy as np
import pytest

from sonde.core.frames import Columns, Frame
from sonde.core.records import Event
from sonde.core.redaction import Redactor
from sonde.sinks.feed import Feed
from sonde.sinks.relay import Relay
from sonde.sinks.sink import BRANCHED, STARTED, Sink
from sonde.testing.memory import MemoryRun

from .services import Service, found, row

STEP = Columns("step", ("loss",))


def relay(run: MemoryRun, *sinks: Sink, problems: list[str] | None = None) -> Relay:
    return Relay(
        run,
        sinks,
        run="runs/demo",
        config={"lr": 0.1},
        on_problem=lambda problem: None if problems is None else problems.append(problem),
        feed=lambda sink, problem: Feed(sink, gather_s=0.001, retry_s=0.001, longest_retry_s=0.01, on_problem=problem),
    )


def test_the_run_and_every_sink_get_everything() -> None:
    run, sinks = MemoryRun(), [Service(), Service()]
    both = relay(run, *sinks)
    for step in range(1, 6):
        both.append(row(STEP, step, step))
    both.event("finding", step=5, data=found(5).to_json())
    both.event(STARTED, step=5, data={"a user's": "own"})
    both.branch(3)
    both.append(row(STEP, 3, 30))
    assert both.flush()
    both.finish(60)
    assert run.series("loss").value.tolist() == [1, 2, 30]
    for sink in sinks:
        first, *rest = sink.items
        assert isinstance(first, Event)
        assert (first.kind, first.data) == (STARTED, {"run": "runs/demo", "config": {"lr": 0.1}})
        assert [item.step for item in rest] == [1, 2, 3, 4, 5, 5, 3, 3]
        kinds = [item.kind for item in rest if isinstance(item, Event)]
        assert kinds == ["finding", BRANCHED]
        assert sink.is_closed.is_set()
    assert [event.kind for event in run.events()] == ["finding", STARTED]
    both.append(row(STEP, 4, 40))  # the run stays open without its sinks
    both.close()
    assert run.series("loss").value.tolist() == [1, 2, 30, 40]


def test_sinks_are_told_no_secrets() -> None:
    run, sink = MemoryRun(), Service()
    both = Relay(
        run,
        [sink],
        run="runs/7fKq2ZpX9vLwT4mBs8Rd",
        config={"lr": 0.1, "api_key": "abc"},
        redactor=lambda: Redactor({"correct horse"}),
    )
    both.event("exception", step=1, data={"reason": "correct horse: password=abc"})
    both.finish(60)
    started, happened = sink.items
    assert isinstance(started, Event)
    assert isinstance(happened, Event)
    assert started.data == {
        "run": "runs/7fKq2ZpX9vLwT4mBs8Rd",
        "config": {"lr": 0.1, "api_key": "•••"},
    }  # a folder is one
    assert happened.data == {"reason": "•••: password=•••"}


def test_a_dead_sink_is_told_of_in_the_run_and_keeps_nothing_from_another() -> None:
    def dead(batch: object) -> None:
        raise ConnectionError("gone")

    run, bad, good = MemoryRun(), Service(dead), Service()
    bad.name = "bad"
    problems: list[str] = []
    both = relay(run, bad, good, problems=problems)
    both.append(row(STEP, 1, 1))
    bad.wait_for(lambda: bad.num_attempts > 2)
    both.finish(0.05)
    assert good.steps == [1]
    assert problems == ["bad cannot be written: ConnectionError: gone"]
    told = {event.kind: event.data for event in run.events()}
    assert told["sink-dropped"] == {"sink": "bad", "dropped": {"essential": 1, "event": 1}}


def test_a_row_that_the_run_refuses_is_not_sent_either() -> None:
    run, sink = MemoryRun(), Service()
    both = relay(run, sink)
    with pytest.raises(ValueError, match="2 values for 1 columns"):
        both.append(row(STEP, 1, 1, 2))
    both.close()
    assert sink.steps == []


def test_findings_of_a_doctor_in_front_of_it_reach_the_sinks() -> None:
    pytest.importorskip("torch", reason="the monitor needs it")
    from sonde.monitor.doctor.connections import CONNECT
    from sonde.monitor.doctor.host import Host

    run, sink = MemoryRun(), Service()
    both = relay(run, sink)
    host = Host(both, CONNECT["thread"])
    columns = Columns("step", ("loss", "grad/norm", "lr"))
    for step in range(1, 40):
        loss = 1 / step if step < 30 else math.nan
        host.append(Frame(columns, step, float(step), np.array([loss, loss, 0.1], np.float32)))
    host.close()
    both.finish(60)
    recorded = list(run.events("finding"))
    sent = [item for item in sink.items if isinstance(item, Event) and item.kind == "finding"]
    assert recorded
    assert [(event.step, event.data["code"]) for event in sent] == [
        (event.step, event.data["code"]) for event in recorded
    ]
