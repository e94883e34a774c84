"""Folders that are renamed, removed or replaced while a run is recorded into them."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import sonde
from sonde.core import strict_json
from sonde.core.frames import Columns, Detail, Frame
from sonde.core.records import Ending
from sonde.store.writer import Writer

SHAPES = Columns("shapes", ("grad/histogram@a",), Detail.DISTRIBUTION, bins=5)


def log(writer: Writer, first: int, last: int) -> None:
    for step in range(first, last + 1):
        writer.log({"loss": float(step)}, step=step)
        writer.append(Frame(SHAPES, step, float(step), np.arange(5, dtype=np.float32)))
        writer.event("note", step=step)


def remove(run: Path) -> None:
    while run.exists():  # a segment that is being written at this moment comes in between
        shutil.rmtree(run, ignore_errors=True)


def steps(run: Path) -> list[int]:
    record = sonde.load(run)
    found: list[int] = record.series("loss").step.tolist()
    assert record.histogram("grad/histogram@a")[0].tolist() == found
    assert [event.step for event in record.events("note")] == found
    assert not record.problems
    return found


def test_recording_follows_a_folder_that_is_renamed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    old, new = tmp_path / "run", tmp_path / "elsewhere" / "better-name"
    new.parent.mkdir()
    writer = Writer(old, segment_rows=10)
    log(writer, 0, 99)
    assert writer.flush()
    old.rename(new)
    log(writer, 100, 199)
    assert writer.flush()
    assert writer.path == new
    assert sonde.load(new).state.ending is Ending.LIVE  # its lock is held
    old.mkdir()  # what comes into its place is not ours
    log(writer, 200, 299)
    assert writer.flush()
    writer.close()
    assert not list(old.iterdir())
    assert steps(new) == list(range(300))
    assert sonde.load(new).state.ending is Ending.FINISHED
    (event,) = sonde.load(new).events("run-folder")
    assert event.data == {"what": "renamed", "from": str(old), "to": str(new)}
    assert [record.getMessage() for record in caplog.records] == [
        f"{old} was renamed to {new}; recording goes on there."
    ]


def replace(run: Path) -> None:
    remove(run)
    with sonde.record(run) as another:
        another.log({"theirs": 1.0}, step=7)


def empty(run: Path) -> None:
    for path in run.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.parametrize(("happens", "said"), [(remove, "removed"), (replace, "replaced"), (empty, "removed")])
def test_recording_goes_on_beside_a_folder_that_is_gone_and_says_what_is_lost(
    tmp_path: Path, happens: Callable[[Path], None], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    run, beside = tmp_path / "run", tmp_path / "run-3"
    (tmp_path / "run-2").mkdir()
    (tmp_path / "run-2" / "mine").touch()
    writer = Writer(run, config={"lr": 0.1}, flush_s=60.0)  # nothing is looked at before `flush`
    log(writer, 0, 99)
    assert writer.flush()
    log(writer, 100, 149)  # in memory
    happens(run)
    left = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} if run.exists() else {}
    assert writer.flush()
    assert writer.path == beside
    log(writer, 150, 199)
    writer.close()
    assert steps(beside) == list(range(100, 200))
    record = sonde.load(beside)
    assert (record.state.ending, record.steps) == (Ending.FINISHED, 199)
    info = strict_json.loads((beside / "run.json").read_bytes())
    assert info["continues"] == {"run": str(run), "lost_steps": 99, "reason": said}
    assert (info["name"], info["config"]) == ("run-3", {"lr": 0.1})
    (event,) = record.events("run-folder")
    assert event.data == {"what": said, "from": str(run), "to": str(beside), "lost_steps": 99}
    assert left == ({path: path.read_bytes() for path in run.rglob("*") if path.is_file()} if run.exists() else {})
    assert [path.name for path in (tmp_path / "run-2").iterdir()] == ["mine"]
    (warning,) = [message.getMessage() for message in caplog.records]
    assert warning == (
        f"{run} was {said} while it was recorded: what it had, up to step 99, is lost. Recording goes on in {beside}."
    )


def test_ranks_go_on_beside_in_one_folder(tmp_path: Path) -> None:
    run = tmp_path / "run"
    first, second = Writer(run), Writer(run / "ranks" / "1")
    for writer in (second, first):
        log(writer, 0, 9)
        assert writer.flush()
    remove(run)
    for writer in (second, first):
        log(writer, 10, 19)
        writer.close()
    assert not run.exists()
    assert {
        rank: record.series("loss").step.tolist() for rank, record in sonde.load(tmp_path / "run-2").ranks().items()
    } == {
        0: list(range(10, 20)),
        1: list(range(10, 20)),
    }


def test_a_branch_that_went_on_beside_is_resumed_there(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with Writer(run) as writer:
        log(writer, 0, 49)
        writer.branch(20)
        log(writer, 20, 29)
        assert writer.flush()
        remove(run)
        log(writer, 30, 39)
        assert writer.flush()
    beside = tmp_path / "run-2"
    assert steps(beside) == list(range(30, 40))
    with Writer(beside) as writer:
        log(writer, 40, 49)
    assert steps(beside) == list(range(30, 50))


def test_the_working_directory_may_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    with Writer("run") as writer:
        log(writer, 0, 9)
        monkeypatch.chdir(tmp_path / "other")
        log(writer, 10, 19)
        assert writer.path == Path("run")
    assert steps(tmp_path / "run") == list(range(20))
    assert not list((tmp_path / "other").iterdir())
