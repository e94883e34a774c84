import csv
import math
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import get_args, get_type_hints

import pyarrow.parquet as pq
import pytest

from sonde.cli.export import export
from sonde.core import strict_json
from sonde.store.export import FORMATS

Call = Callable[..., subprocess.CompletedProcess[str]]


def test_the_command_offers_every_format_of_the_store() -> None:
    assert set(get_args(get_type_hints(export)["to"])) == set(FORMATS)


@pytest.mark.parametrize("to", FORMATS)
def test_the_path_of_the_file_is_printed(call: Call, runs: Path, tmp_path: Path, to: str) -> None:
    file = tmp_path / f"out.{to}"
    outcome = call("export", runs / "healthy", "--to", to, "--out", file)
    assert (outcome.returncode, outcome.stdout, outcome.stderr) == (0, f"{file}\n", "")
    assert file.stat().st_size > 0


def test_without_out_the_file_is_named_after_the_run(
    call: Call, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("export", runs / "healthy", "--to", "csv").stdout == "healthy.csv\n"
    with (tmp_path / "healthy.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == list(range(1, 101))
    assert float(rows[1]["loss"]) == 2.0


def test_a_pattern_picks_the_series(call: Call, runs: Path, tmp_path: Path) -> None:
    call("export", runs / "healthy", "--to", "parquet", "--out", tmp_path / "norms", "--tags", "grad/*")
    assert pq.read_table(tmp_path / "norms").column_names == ["step", "time", "grad/norm", "grad/norm@layer.weight"]


def test_not_a_number_survives_in_every_format(call: Call, runs: Path, tmp_path: Path) -> None:
    for to in FORMATS:
        call("export", runs / "broken", "--to", to, "--out", tmp_path / to)
    assert math.isnan(pq.read_table(tmp_path / "parquet")["loss"][-1].as_py())
    assert math.isnan(float((tmp_path / "csv").read_text().split(",")[-1]))
    last = (tmp_path / "jsonl").read_text().splitlines()[-1]
    assert strict_json.loads(last)["loss"] == "NaN"


@pytest.mark.parametrize("out", ["missing/file.csv", ".", "/proc/file.csv"])
def test_a_file_that_cannot_be_written_is_one_line_and_status_2(
    call: Call, runs: Path, tmp_path: Path, out: str
) -> None:
    outcome = call("export", runs / "healthy", "--to", "csv", "--out", tmp_path / out)
    assert outcome.returncode == 2
    assert outcome.stdout == ""
    assert outcome.stderr.count("\n") == 1


def test_a_pattern_without_a_match_is_an_error(call: Call, runs: Path, tmp_path: Path) -> None:
    outcome = call("export", runs / "healthy", "--to", "csv", "--out", tmp_path / "out", "--tags", "nothing*")
    assert outcome.returncode == 2
    assert "'nothing*'" in outcome.stderr
    assert not (tmp_path / "out").exists()
