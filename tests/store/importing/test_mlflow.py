"""The golden store was written by mlflow 3.17.2: a folder, and the four tables of its database as SQL."""

import math
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import sonde
from sonde.core.errors import FormatError, RunNotFound
from sonde.store.importing.imports import import_logs

GOLDEN = Path(__file__).parents[2] / "golden" / "mlflow"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    base = sqlite3.connect(tmp_path / "mlflow.db")
    base.executescript((GOLDEN / "mlflow.sql").read_text(encoding="utf-8"))
    base.close()
    return tmp_path / "mlflow.db"


def points(run: sonde.Run, tag: str) -> dict[int, float]:
    series = run.series(tag)
    return dict(zip(series.step.tolist(), series.value.tolist(), strict=True))


def check(run: sonde.Run) -> None:
    losses = points(run, "loss")
    assert math.isnan(losses.pop(4))
    assert losses == {step: 3 / (step + 1) for step in range(6) if step != 4}
    assert points(run, "val/loss") == {step: pytest.approx(3.2 / (step + 1)) for step in (1, 3, 5)}
    assert points(run, "big") == {5: math.inf}
    assert run.info["config"] == {"lr": 0.1, "batch": 32}
    assert 1.7e9 < run.series("loss").time[0] < 1.9e9


def test_a_database_is_read(database: Path, tmp_path: Path) -> None:
    for number, source in enumerate((f"sqlite:///{database}", str(database), str(database.parent))):
        made = import_logs("mlflow", source, tmp_path / f"run-{number}", run="second")
        check(sonde.load(made.path))
        assert sonde.load(made.path).name == "second"


def test_a_folder_is_read(tmp_path: Path) -> None:
    store = GOLDEN / "mlruns"
    for number, (source, name) in enumerate(((str(store), "first"), (f"file://{store}", "second"))):
        check(sonde.load(import_logs("mlflow", source, tmp_path / f"run-{number}", run=name).path))


def test_the_folder_of_one_run_is_read(tmp_path: Path) -> None:
    folder = next((GOLDEN / "mlruns").glob("*/*/meta.yaml")).parent
    check(sonde.load(import_logs("mlflow", folder, tmp_path / "run").path))


def test_a_run_is_chosen_by_its_id_as_well(database: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(database)) as base:
        (key,) = base.execute("SELECT run_uuid FROM runs WHERE name = 'first'").fetchone()
    assert sonde.load(import_logs("mlflow", database, tmp_path / "run", run=key).path).name == "first"


@pytest.mark.parametrize("kind", ["database", "folder"])
def test_of_several_runs_one_must_be_chosen(database: Path, tmp_path: Path, kind: str) -> None:
    source = database if kind == "database" else GOLDEN / "mlruns"
    with pytest.raises(RunNotFound, match=r"first \("):
        import_logs("mlflow", source, tmp_path / "run")
    with pytest.raises(RunNotFound, match="'third'"):
        import_logs("mlflow", source, tmp_path / "run", run="third")


def test_a_torn_last_line_is_left_out_and_a_wrong_one_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    shutil.copytree(next((GOLDEN / "mlruns").glob("*/*/meta.yaml")).parent, folder)
    metric = folder / "metrics" / "train_loss"
    metric.write_text("1700000000000 2.5 1\n17000", encoding="utf-8")
    assert points(sonde.load(import_logs("mlflow", folder, tmp_path / "run").path), "loss") == {1: 2.5}
    metric.write_text("1700000000000 high 1\n", encoding="utf-8")
    with pytest.raises(FormatError, match="time value step"):
        import_logs("mlflow", folder, tmp_path / "other")


@pytest.mark.parametrize(
    ("source", "error"),
    [("http://localhost:5000", FormatError), ("postgresql+psycopg2://host/db", FormatError), ("none.db", RunNotFound)],
)
def test_what_is_not_on_this_machine_is_refused(source: str, error: type[Exception], tmp_path: Path) -> None:
    with pytest.raises(error):
        import_logs("mlflow", source, tmp_path / "run")


def test_another_database_is_refused(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "other.db").executescript("CREATE TABLE a (b)").connection.close()
    (tmp_path / "text.db").write_text("not a database at all, but long enough to be told apart from one")
    for name in ("other.db", "text.db"):
        with pytest.raises(FormatError, match="MLflow"):
            import_logs("mlflow", tmp_path / name, tmp_path / "run")


def test_the_environment_is_what_the_tags_say(database: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(GOLDEN / "mlruns", tmp_path / "mlruns")
    for meta in folder.glob("*/*/meta.yaml"):
        (meta.parent / "tags").mkdir(exist_ok=True)
        (meta.parent / "tags" / "mlflow.source.name").write_text("train.py")
        (meta.parent / "tags" / "mlflow.source.git.commit").write_text("abc")
    told = {"command": ["train.py"], "commit": "abc"}
    assert sonde.load(import_logs("mlflow", folder, tmp_path / "one", run="first").path).info["environment"] == told
    with closing(sqlite3.connect(database)) as base:
        base.execute("CREATE TABLE IF NOT EXISTS tags (key TEXT, value TEXT, run_uuid TEXT)")
        base.execute("DELETE FROM tags")
        key = base.execute("SELECT run_uuid FROM runs WHERE name = 'second'").fetchone()[0]
        rows = [("mlflow.source.name", "train.py", key), ("mlflow.source.git.commit", "abc", key)]
        base.executemany("INSERT INTO tags (key, value, run_uuid) VALUES (?, ?, ?)", rows)
        base.commit()
    assert sonde.load(import_logs("mlflow", database, tmp_path / "two", run="second").path).info["environment"] == told
