"""A run as one file, read back by the programs that it is for."""

import csv
import json
import os
import resource
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import sonde
from sonde.core.frames import MISSING, Columns, Frame
from sonde.store.export import FORMATS, export

ODD = ["loss", "comma@a,b", 'quote@"x"', "dot@a.b.c", "size@größe/入力", "time", "step"]


@pytest.fixture
def run(tmp_path: Path) -> sonde.Run:
    """Series with every kind of number and name, and one that is measured now and then."""
    rng = np.random.default_rng(0)
    columns, rare = Columns("step", ODD), Columns("rare", ("rare",))
    with sonde.record(tmp_path / "run") as writer:
        for step in range(5000):
            values = (rng.normal(size=len(ODD)) * 10.0 ** rng.integers(-40, 38)).astype(np.float32)
            values[rng.random(len(ODD)) < 0.05] = np.nan
            values[rng.random(len(ODD)) < 0.05] = np.inf
            values[rng.random(len(ODD)) < 0.05] = -np.inf
            values[rng.random(len(ODD)) < 0.1] = MISSING
            writer.append(Frame(columns, step, 1e9 + step / 3, values))
            if step % 1000 == 0:
                writer.append(Frame(rare, step, 1e9 + step / 3, np.array([-0.0], np.float32)))
    return sonde.load(tmp_path / "run")


def column_of(tag: str) -> str:
    return f"{tag}@" if tag in {"step", "time"} else tag


def assert_equal(run: sonde.Run, found: dict[str, dict[int, float]]) -> None:
    """Numbers by tag and step are those of the run: missing ones are not there, NaN is."""
    assert sorted(found) == sorted(column_of(tag) for tag in run.tags())
    for tag in run.tags():
        series = run.series(tag)
        got = found[column_of(tag)]
        assert list(got) == series.step.tolist()
        values = np.array(list(got.values()), np.float32)
        assert np.array_equal(values, series.value, equal_nan=True)
        assert np.array_equal(np.signbit(values[values == 0]), np.signbit(series.value[series.value == 0]))


def test_parquet_reads_back_equal(run: sonde.Run, tmp_path: Path) -> None:
    path = export(run, tmp_path / "out.parquet", to="parquet")
    table = pq.read_table(path)
    assert table.schema.equals(run.table().schema)
    steps = table["step"].to_pylist()
    found = {
        name: {step: value for step, value in zip(steps, table[name].to_pylist(), strict=True) if value is not None}
        for name in table.column_names[2:]
    }
    assert_equal(run, found)
    assert table["time"].to_pylist() == [1e9 + step / 3 for step in range(5000)]
    frame = pd.read_parquet(path, dtype_backend="pyarrow")
    assert frame["loss"].isna().sum() == 5000 - len(run.series("loss").step)


def test_csv_reads_back_equal_and_is_empty_where_nothing_was_measured(run: sonde.Run, tmp_path: Path) -> None:
    path = export(run, tmp_path / "out.csv", to="csv")
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = [name for name in rows[0] if name not in {"step", "time"}]
    found = {name: {int(row["step"]): float(row[name]) for row in rows if row[name]} for name in names}
    assert_equal(run, found)
    assert [float(row["time"]) for row in rows] == [1e9 + step / 3 for step in range(5000)]
    texts = {row["loss"] for row in rows}
    assert {"", "nan", "inf", "-inf"} < texts


def test_csv_shows_float32_in_its_shortest_form(tmp_path: Path) -> None:
    with sonde.record(tmp_path / "run") as writer:
        writer.log({"a": 0.1, "b": 1e-8, "c": 2.0}, step=3, time=0.5)
    path = export(sonde.load(tmp_path / "run"), tmp_path / "out.csv", to="csv")
    assert path.read_text().splitlines() == ["step,time,a,b,c", "3,0.5,0.1,1e-08,2.0"]


def test_jsonl_reads_back_equal_and_leaves_out_what_was_not_measured(run: sonde.Run, tmp_path: Path) -> None:
    path = export(run, tmp_path / "out.jsonl", to="jsonl")
    found: dict[str, dict[int, float]] = {}
    for text in path.read_text(encoding="utf-8").splitlines():
        line = json.loads(text, parse_constant=lambda name: pytest.fail(name))
        step = line.pop("step")
        assert line.pop("time") == 1e9 + step / 3
        for name, value in line.items():
            found.setdefault(name, {})[step] = float(value)  # float() reads "NaN" and "Infinity"
    assert_equal(run, found)


@pytest.mark.parametrize("to", FORMATS)
def test_a_pattern_chooses_the_series(run: sonde.Run, tmp_path: Path, to: str) -> None:
    path = export(run, tmp_path / "out", to=to, tags="r?re")
    text = {"parquet": lambda: str(pq.read_schema(path).names)}.get(to, path.read_text)()
    assert "rare" in text
    assert "loss" not in text
    if to == "jsonl":
        assert len(text.splitlines()) == 5


@pytest.mark.parametrize("to", FORMATS)
def test_a_run_without_rows_makes_a_file_without_rows(tmp_path: Path, to: str) -> None:
    sonde.record(tmp_path / "run").close()
    path = export(sonde.load(tmp_path / "run"), tmp_path / "out", to=to)
    expected = {"csv": "step,time", "jsonl": ""}
    if to == "parquet":
        assert pq.read_table(path).shape == (0, 2)
    else:
        assert path.read_text().strip() == expected[to]


def test_an_unknown_format_is_refused_before_anything_is_written(run: sonde.Run, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`export\(to='xlsx'\)` must be one of parquet, csv, jsonl"):
        export(run, tmp_path / "out", to="xlsx")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


@pytest.mark.parametrize("to", FORMATS)
def test_an_existing_file_is_replaced(run: sonde.Run, tmp_path: Path, to: str) -> None:
    (tmp_path / "out").write_bytes(b"old" * 100_000)
    path = export(run, str(tmp_path / "out"), to=to, tags="rare")
    assert path == tmp_path / "out"
    assert b"oldold" not in path.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "run"]


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize("target", ["no/such/folder/out", "run/run.json/out", "folder"])
def test_a_target_that_cannot_be_written_leaves_no_file(run: sonde.Run, tmp_path: Path, to: str, target: str) -> None:
    (tmp_path / "folder").mkdir()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(OSError, match=r"[Nn]o such file|[Nn]ot a directory|[Ii]s a directory|exists"):
        export(run, tmp_path / target, to=to, tags="rare")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("to", FORMATS)
def test_a_full_disk_leaves_the_old_file_as_it_was(run: sonde.Run, tmp_path: Path, to: str) -> None:
    (tmp_path / "out").write_text("old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(OSError, match=r"[Ff]ile too large"):
            export(run, tmp_path / "out", to=to)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "out").read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["out", "run"]
