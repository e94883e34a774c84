"""Runs and logs of strangers: whatever is in them, readers answer, and nothing else is touched."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.store.fuzzing import seeds

import sonde
from sonde.core.errors import FormatError, RunNotWritable, RunUnreadable, TagNotFound
from sonde.store.importing.imports import import_logs
from sonde.store.runs import list_runs

ROOT = Path(__file__).parents[2]
SECRET = "somebody else's\n"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret.txt"
    file.write_text(SECRET)
    return file


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded") / "run"
    seeds.record_run(folder)
    return folder


@pytest.fixture
def run(recorded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recorded, tmp_path / "runs" / "victim"))


@pytest.fixture
def fast_folder(tmp_path: Path) -> Iterator[Path]:
    """In memory, where there is such a place: a case makes and deletes a hundred files."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as folder:
        yield Path(folder)


def test_two_thousand_damaged_runs_and_logs_are_read_or_refused(fast_folder: Path) -> None:
    """Each field of each file with bad values, each file as something else, and other bits: see `fuzzing`."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.store.fuzzing.server", fast_folder, "--num", "2020"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    *wrong, last = [json.loads(line) for line in done.stdout.splitlines()] or [done.stderr]
    assert not wrong, "\n\n".join(f"{one['case']}\n{one['wrong']}" for one in wrong[:5])
    assert done.returncode == 0, done.stderr
    assert last["cases"] >= 2000
    assert last["peak_mb"] <= 1024
    assert not last["torch"]


@pytest.mark.parametrize("name", ["writer.lock", "events.jsonl", "branches.jsonl", "tables/step/columns.jsonl"])
def test_recording_into_a_received_run_follows_no_link(run: Path, secret: Path, name: str) -> None:
    (run / name).unlink()
    (run / name).symlink_to(secret)
    with pytest.raises(RunNotWritable, match="a link"):
        sonde.record(run)
    assert secret.read_text() == SECRET


@pytest.mark.parametrize("name", ["state.json", "tables/step/b1/rows-00000001.log"])
def test_recording_replaces_or_refuses_a_link_and_leaves_what_it_points_to(run: Path, secret: Path, name: str) -> None:
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(secret)
    with sonde.record(run) as writer:
        writer.log({"loss": 1.0}, step=seeds.NUM_STEPS)
    assert secret.read_text() == SECRET


@pytest.mark.parametrize("name", ["tables", "tables/step", "tables/step/b1"])
def test_recording_goes_into_no_folder_behind_a_link(run: Path, tmp_path: Path, name: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    (run / name).rename(elsewhere)
    (elsewhere / ".old.tmp").write_text("kept")
    (run / name).symlink_to(elsewhere)
    before = sorted((path, path.is_file() and path.read_bytes()) for path in elsewhere.rglob("*"))
    with pytest.raises(RunNotWritable, match="a link"):
        sonde.record(run)
    assert sorted((path, path.is_file() and path.read_bytes()) for path in elsewhere.rglob("*")) == before


def test_a_folder_behind_a_link_is_not_read_and_named(run: Path, tmp_path: Path) -> None:
    (run / "tables" / "step").rename(tmp_path / "elsewhere")
    (run / "tables" / "step").symlink_to(tmp_path / "elsewhere")
    opened = sonde.load(run)
    with pytest.raises(TagNotFound):
        opened.series("loss")
    assert [problem for problem in opened.problems if "tables/step: it is a link" in problem]


def test_a_parameter_of_mlflow_that_is_a_link_is_left_out(tmp_path: Path, secret: Path) -> None:
    seeds.record_logs(tmp_path / "logs")
    (tmp_path / "logs" / "mlflow" / "params" / "x").symlink_to(secret)
    os.mkfifo(tmp_path / "logs" / "mlflow" / "params" / "y")
    imported = import_logs("mlflow", tmp_path / "logs" / "mlflow", tmp_path / "made")
    assert sorted(sonde.load(imported.path).info["config"]) == ["batch", "lr"]


@pytest.mark.parametrize("value", ["1e999", "1" + "0" * 400, '"\\ud800"', "[" * 10_000 + "]" * 10_000, "null"])
def test_one_damaged_run_does_not_hide_the_others(run: Path, recorded: Path, value: str) -> None:
    shutil.copytree(recorded, run.parent / "good")
    told = (run / "run.json").read_text()
    (run / "run.json").write_text(told.replace('"created": ', f'"created": {value}, "was": '))
    listed = {summary.path.name: summary for summary in list_runs(run.parent)}
    assert "run.json is damaged" in listed["victim"].problem
    assert listed["good"].steps == seeds.NUM_STEPS - 1
    with pytest.raises(RunUnreadable, match="damaged"):
        sonde.load(run)


def test_damaged_lines_of_events_are_named(run: Path) -> None:
    before = sonde.load(run).events()
    with (run / "events.jsonl").open("a") as file:
        file.write('{"kind": "note", "step": 1e999}\n{"kind": "note", "step": 18446744073709551616}\n{"kind": "to')
    opened = sonde.load(run)
    assert [event.step for event in opened.events()] == [*(event.step for event in before), None]
    assert [problem for problem in opened.problems if "events.jsonl" in problem]


def test_a_view_in_the_place_of_a_table_of_mlflow_is_refused(tmp_path: Path) -> None:
    import sqlite3

    seeds.record_logs(tmp_path / "logs")
    base = sqlite3.connect(tmp_path / "logs" / "sqlite" / "mlflow.db")
    endless = "WITH RECURSIVE a(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM a) SELECT n, n FROM a"
    base.executescript(f"DROP TABLE params; CREATE VIEW params (key, value) AS {endless}")
    base.close()
    with pytest.raises(FormatError, match="no table"):
        import_logs("mlflow", tmp_path / "logs" / "sqlite" / "mlflow.db", tmp_path / "made")
