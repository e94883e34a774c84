import json
from pathlib import Path

import pytest

import sonde
from sonde.core.errors import RunNotFound
from sonde.core.records import Ending, State
from sonde.store.layout import RUN, SCHEMA, STATE
from sonde.store.runs import Summary, list_runs


def record(path: Path, losses: list[float], *, created: float | None = None, name: str | None = None) -> None:
    with sonde.record(path, name=name) as run:
        for step, loss in enumerate(losses):
            run.log({"loss": loss}, step=step)
    if created is not None:
        info = json.loads((path / RUN).read_text())
        (path / RUN).write_text(json.dumps({**info, "created": created}))


def test_runs_are_listed_newest_first(tmp_path: Path) -> None:
    for name, created in (("b", 3.0), ("a", 1.0), ("c", 2.0), ("d", 2.0)):
        record(tmp_path / name, [1.0], created=created)
    assert [run.name for run in list_runs(tmp_path)] == ["b", "c", "d", "a"]


def test_a_summary_says_how_a_run_stands(tmp_path: Path) -> None:
    record(tmp_path / "folder", [3.0, 2.0, 1.5], name="My run")
    (summary,) = list_runs(tmp_path)
    state = sonde.load(tmp_path / "folder").state
    info = sonde.load(tmp_path / "folder").info
    assert summary == Summary(
        name="My run",
        path=tmp_path / "folder",
        ending=Ending.FINISHED,
        steps=2,
        loss=1.5,
        created=info["created"],
        updated=state.updated,
    )


def test_a_live_run_is_live_and_shows_its_last_flush(tmp_path: Path) -> None:
    with sonde.Writer(tmp_path / "run", flush_s=1e6) as run:
        (summary,) = list_runs(tmp_path)
        assert (summary.ending, summary.steps, summary.loss) == (Ending.LIVE, 0, None)
        run.log({"loss": float("-inf")}, step=7)
        run.event("finding")
        run.flush()
        (summary,) = list_runs(tmp_path)
        assert (summary.ending, summary.steps, summary.loss, summary.findings) == (Ending.LIVE, 7, float("-inf"), 1)


def test_a_run_whose_recorder_is_gone_without_a_word_died(tmp_path: Path) -> None:
    record(tmp_path / "run", [1.0])
    state = json.loads((tmp_path / "run" / STATE).read_text())
    (tmp_path / "run" / STATE).write_text(json.dumps({**state, "ending": "live"}))
    assert list_runs(tmp_path)[0].ending is Ending.DIED
    (tmp_path / "run" / STATE).unlink()
    assert list_runs(tmp_path)[0].ending is Ending.DIED


def test_a_live_run_on_another_machine_is_known_by_its_heartbeat(tmp_path: Path) -> None:
    record(tmp_path / "run", [1.0])
    path = tmp_path / "run" / STATE
    state = {**json.loads(path.read_text()), "ending": "live", "host": "elsewhere"}
    path.write_text(json.dumps(state))
    assert list_runs(tmp_path)[0].ending is Ending.LIVE
    path.write_text(json.dumps({**state, "updated": state["updated"] - 3600}))
    assert list_runs(tmp_path)[0].ending is Ending.DIED


def test_the_folder_of_a_run_is_a_list_of_one(tmp_path: Path) -> None:
    record(tmp_path / "run", [1.0])
    assert list_runs(tmp_path / "run") == list_runs(tmp_path) == list_runs(str(tmp_path))


def test_what_is_not_a_run_is_left_out(tmp_path: Path) -> None:
    record(tmp_path / "run", [1.0])
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_text("")
    (tmp_path / "deeper" / "run").mkdir(parents=True)
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    (tmp_path / "link").symlink_to(tmp_path / "run")
    assert sorted(run.path.name for run in list_runs(tmp_path)) == ["link", "run"]
    assert list_runs(tmp_path / "empty") == []


@pytest.mark.parametrize("name", ["nothing", "file"])
def test_a_folder_that_is_none_is_not_found(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunNotFound, match="name the folder that holds your runs"):
        list_runs(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "damaged"),
        ("{", "damaged"),
        ("[]", "no schema version"),
        ('{"schema": "1"}', "no schema version"),
        ('{"schema": 0}', "no schema version"),
        (f'{{"schema": {SCHEMA + 1}}}', "newer Sonde"),
        ('{"schema": NaN}', "damaged"),
    ],
)
def test_a_run_that_cannot_be_read_is_listed_with_the_reason(tmp_path: Path, text: str, problem: str) -> None:
    record(tmp_path / "good", [1.0])
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / RUN).write_text(text)
    good, bad = list_runs(tmp_path)
    assert (good.name, good.problem) == ("good", "")
    assert bad.name == "bad"
    assert problem in bad.problem


@pytest.mark.parametrize(
    "state",
    [
        '{"steps": "many"}',
        '{"loss": []}',
        '{"findings": {}}',
        '{"updated": "x", "dropped": 3}',
        '{"loss": "low"}',
        "[]",
        "",
        "{",
        '{"ending": "on fire"}',
    ],
)
def test_a_damaged_state_does_not_keep_a_run_from_being_listed_or_read(tmp_path: Path, state: str) -> None:
    record(tmp_path / "run", [1.0, 2.0])
    (tmp_path / "run" / STATE).write_text(state)
    (summary,) = list_runs(tmp_path)
    assert summary == Summary(name="run", path=tmp_path / "run", created=summary.created)
    read = sonde.load(tmp_path / "run")
    assert read.state == State(Ending.DIED, steps=1)
    with sonde.record(tmp_path / "run") as run:  # and it can be continued
        run.log({"loss": 3.0}, step=2)
    assert sonde.load(tmp_path / "run").series("loss").value.tolist() == [1, 2, 3]
    assert list_runs(tmp_path)[0].steps == 2


def test_listing_writes_nothing(tmp_path: Path) -> None:
    record(tmp_path / "run", [1.0])

    def snapshot() -> dict[str, int]:
        return {str(path): path.stat().st_mtime_ns for path in tmp_path.rglob("*")}

    before = snapshot()
    list_runs(tmp_path)
    read = sonde.load(tmp_path / "run")
    assert (read.steps, len(read.last()), len(read.window("loss").step), len(list(read.follow()))) == (0, 1, 1, 1)
    assert snapshot() == before


def test_a_run_whose_birth_is_no_time_is_listed_with_the_reason(tmp_path: Path) -> None:
    record(tmp_path / "run", [1.0])
    info = json.loads((tmp_path / "run" / RUN).read_text())
    (tmp_path / "run" / RUN).write_text(json.dumps({**info, "created": "yesterday"}))
    assert "is damaged" in list_runs(tmp_path)[0].problem
