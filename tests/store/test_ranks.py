"""What several processes that trained together recorded, read as one run."""

import os
from pathlib import Path

import pytest

import sonde
from sonde.store.layout import RANKS, RUN
from sonde.store.runs import list_runs


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Three ranks, each with a loss of its own."""
    path = tmp_path / "runs" / "together"
    for rank in range(3):
        with sonde.record(path / RANKS / str(rank) if rank else path) as writer:
            writer.log({"loss": float(rank)}, step=0)
    return path


def _losses(path: Path) -> dict[int, list[float]]:
    return {rank: run.series("loss").value.tolist() for rank, run in sonde.load(path).ranks().items()}


def test_every_rank_has_its_own_run_and_the_run_itself_is_rank_0(run: Path) -> None:
    assert _losses(run) == {0: [0.0], 1: [1.0], 2: [2.0]}
    loaded = sonde.load(run)
    assert loaded.ranks()[0] is loaded


def test_a_single_process_is_its_own_only_rank(run: Path) -> None:
    assert list(sonde.load(run / RANKS / "2").ranks()) == [0]


def test_ranks_come_in_the_order_of_their_numbers(run: Path) -> None:
    with sonde.record(run / RANKS / "10"):
        pass
    assert list(sonde.load(run).ranks()) == [0, 1, 2, 10]


def test_what_is_torn_or_absent_or_something_else_is_left_out(run: Path) -> None:
    (run / RANKS / "1" / RUN).write_text('{"sche')
    (run / RANKS / "5").mkdir()
    (run / RANKS / "6").write_text("a file")
    (run / RANKS / "notes").mkdir()
    (run / RANKS / os.fsdecode("²".encode())).mkdir()  # without a locale no file has such a name
    assert _losses(run) == {0: [0.0], 2: [2.0]}


def test_ranks_are_not_listed_as_runs_of_their_own(run: Path) -> None:
    assert [summary.path for summary in list_runs(run.parent)] == [run]
    assert [summary.path for summary in list_runs(run)] == [run]
