"""What changes is told while it happens."""

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.server.answers import Ask, Said, events
from tests.server.conftest import JUDGED, SPIKE

from sonde.server.live import MOST_RUNS, MOST_STREAMS
from sonde.store.writer import Writer


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    """A run that is being recorded, with a step."""
    with Writer(tmp_path / "runs" / "one", settings=JUDGED, flush_s=0.05) as opened:
        opened.log({"loss": 2.0, "lr": 0.5, "mine/own": 1.0}, step=1)
        opened.flush()
        yield opened


@pytest.fixture
def own(serve: Callable[..., Ask], writer: Writer) -> Ask:
    """A server of that run's folder."""
    return serve(writer.path.parent)


@contextlib.contextmanager
def listening(ask: Ask, *runs: str, last_id: str = "") -> Iterator[Iterator[Said]]:
    headers = {"last-event-id": last_id} if last_id else {}
    with ask.client.stream("GET", "/api/live", params={"run": list(runs)}, headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield events(answer)


def the(said: Iterator[Said], kind: str, holds: Callable[[Any], bool] = lambda _: True) -> Said:
    """The next event of a kind that is as wanted."""
    return next(event for event in said if event.kind == kind and holds(event.data))


def test_steps_come_with_the_newest_values(own: Ask, writer: Writer) -> None:
    with listening(own, "one") as said:
        first = the(said, "step")
        assert (first.data["run"], first.data["step"]) == ("one", 1)
        assert first.data["last"] == {"loss": 2.0, "lr": 0.5}
        writer.log({"loss": float("nan"), "lr": 0.25}, step=2)
        second = the(said, "step")
        assert (second.data["step"], second.data["last"]) == (2, {"loss": "NaN", "lr": 0.25})
        assert second.data["time"] > first.data["time"]


def test_findings_and_the_verdict_come_when_they_change(own: Ask, writer: Writer) -> None:
    with listening(own, "one") as said:
        assert the(said, "state").data == {
            "run": "one",
            "state": "running",
            "verdict": "healthy",
            "alarms": {"warning": 0, "critical": 0},
        }
        writer.event("finding", step=700, data=SPIKE.to_json())
        finding = the(said, "finding").data
        assert (finding["id"], finding["open"], finding["muted"]) == ("LOS002@700", True, False)
        assert SPIKE.to_json().items() <= finding.items()
        assert the(said, "state").data["alarms"] == {"warning": 1, "critical": 0}
        writer.event("finding-closed", step=800, data={"code": "LOS002", "first_step": 700})
        assert the(said, "finding").data["open"] is False
        assert own.note("one", {"kind": "mute", "code": "LOS002"}).status_code == 200
        assert the(said, "state").data["verdict"] == "healthy"


def test_the_end_of_a_run_and_its_deletion_are_told(own: Ask, writer: Writer) -> None:
    with listening(own, "one") as said:
        the(said, "state")
        writer.close()
        assert the(said, "state").data["state"] == "ended"
        shutil.rmtree(writer.path)
        assert the(said, "gone").data == {"run": "one"}
        with Writer(writer.path, settings=JUDGED) as again:
            again.log({"loss": 1.0}, step=5)
            again.flush()
            assert the(said, "step").data["step"] == 5


def test_who_comes_back_is_told_what_was_missed(own: Ask, writer: Writer) -> None:
    writer.event("finding", step=600, data={**SPIKE.to_json(), "first_step": 600})
    writer.flush()
    with listening(own, "one") as said:
        the(said, "step")
        place = the(said, "state").place
    writer.event("finding", step=700, data=SPIKE.to_json())
    writer.log({"loss": 1.0}, step=2)
    writer.flush()
    with listening(own, "one", last_id=place) as said:
        assert the(said, "finding").data["id"] == "LOS002@700"
        assert the(said, "step").data["step"] == 2
    with listening(own, "one") as said:  # who comes for the first time has the findings from elsewhere
        assert next(said).kind == "step"


@pytest.mark.parametrize("place", ["x", "1", "1.2,3.4", "-1.-1", "9999999999999999999.1", "999.999"])
def test_a_place_that_is_none_is_the_beginning(own: Ask, place: str) -> None:
    with listening(own, "one", last_id=place) as said:
        assert the(said, "state").data["run"] == "one"


def test_several_runs_share_a_stream(own: Ask, writer: Writer) -> None:
    with Writer(writer.path.parent / "two", settings=JUDGED, flush_s=0.05) as other:
        other.log({"loss": 1.0}, step=9)
        other.flush()
        with listening(own, "one", "two", "never-there") as said:
            assert {the(said, "step").data["run"], the(said, "step").data["run"]} == {"one", "two"}
            assert the(said, "gone").data == {"run": "never-there"}
            writer.log({"loss": 1.0}, step=2)
            assert the(said, "step").data == {**the_step(own, "one"), "step": 2}


def the_step(ask: Ask, run: str) -> Any:
    with listening(ask, run) as said:
        return the(said, "step").data


def test_the_table_tells_what_has_changed(own: Ask, writer: Writer) -> None:
    with listening(own) as said:
        writer.log({"loss": 1.0}, step=2)
        changed = the(said, "runs", lambda data: any(line["steps"] == 2 for line in data["changed"])).data
        assert [line["id"] for line in changed["changed"]] == ["one"]
        with Writer(writer.path.parent / "deep" / "two", settings=JUDGED) as other:
            born = the(said, "runs", lambda data: any(line["id"] == "deep/two" for line in data["changed"])).data
            assert born["gone"] == []
            other.close()
        shutil.rmtree(writer.path.parent / "deep")
        assert the(said, "runs", lambda data: bool(data["gone"])).data["gone"] == ["deep/two"]


def test_the_table_tells_again_what_was_written_since(own: Ask, writer: Writer) -> None:
    with listening(own) as said:
        writer.log({"loss": 1.0}, step=2)
        place = the(said, "runs").place
    writer.log({"loss": 1.0}, step=3)
    writer.flush()
    with listening(own, last_id=place) as said:
        assert [line["id"] for line in the(said, "runs").data["changed"]] == ["one"]


def test_streams_are_bounded(own: Ask) -> None:
    answer = own.client.get("/api/live", params={"run": ["one"] * (MOST_RUNS + 1)})
    assert answer.status_code == 400
    with contextlib.ExitStack() as stack:
        open_ = [stack.enter_context(listening(own, "one")) for _ in range(MOST_STREAMS)]
        assert {next(said).kind for said in open_} == {"step"}
        answer = own.client.get("/api/live", params={"run": "one"})
        assert answer.status_code == 429
        assert answer.json()["error"]["do"]
    end = time.monotonic() + 60
    while own.client.send(own.client.build_request("GET", "/api/live?run=one"), stream=True).status_code == 429:
        assert time.monotonic() < end, "streams that were closed still count"
