"""A copy of runs elsewhere is what they are."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import sonde
from sonde.core.errors import StoreError
from sonde.core.records import Ending
from sonde.store.mirrors import Mirror
from sonde.store.writer import Writer


def same(first: Path, second: Path) -> None:
    """Whether two folders hold the same runs."""
    one, other = sonde.load(first), sonde.load(second)
    assert (one.steps, one.tags(), one.events()) == (other.steps, other.tags(), other.events())
    for tag in one.tags():
        np.testing.assert_array_equal(one.series(tag).value, other.series(tag).value)
        assert one.window(tag, points=7).max.tolist() == other.window(tag, points=7).max.tolist()
    assert other.problems == []


def test_every_look_is_the_run_as_it_was(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    mirror = Mirror(there.as_uri(), here)
    assert mirror.sync() == 0
    with Writer(there / "in" / "run", segment_rows=100, flush_s=0.05) as writer:
        for step in range(1500):
            writer.log({"loss": float(step)}, step=step)
            if step % 100 == 0:
                writer.event("note", step=step)
            if step % 300 == 299:
                writer.flush()
                mirror.sync()
                # Between the listing and the copying of it a log may have become a segment.
                assert sonde.load(here / "in" / "run").series("loss").value.tolist()[:300] == list(range(300))
    assert mirror.sync() > 0
    same(there / "in" / "run", here / "in" / "run")
    assert sonde.load(here / "in" / "run").state.ending is Ending.FINISHED
    assert mirror.sync() == 0
    shutil.rmtree(there / "in")
    mirror.sync()
    assert list(here.iterdir()) == []


def test_only_files_of_runs_are_copied(tmp_path: Path) -> None:
    there = tmp_path / "there"
    with sonde.record(there / "run") as writer:
        writer.log({"loss": 1.0}, step=1)
    for name in ("secret.key", "run/other.json", "run/tables/step/b0/rows-1.log"):
        (there / name).write_text("not ours")
    (tmp_path / "outside").mkdir()
    Mirror(there.as_uri(), tmp_path / "here").sync()
    copied = [path for path in (tmp_path / "here").rglob("*") if path.is_file()]
    assert copied
    assert all("not ours" not in path.read_text(errors="replace") for path in copied)
    same(there / "run", tmp_path / "here" / "run")


def test_what_does_not_fit_is_left_out_and_counted(tmp_path: Path) -> None:
    there = tmp_path / "there"
    with sonde.record(there / "run") as writer:
        for step in range(3000):
            writer.log({"loss": np.random.default_rng(step).random()}, step=step)
    mirror = Mirror(there.as_uri(), tmp_path / "here", most_bytes=8_000)
    mirror.sync()
    assert mirror.left_out
    assert sum(path.stat().st_size for path in (tmp_path / "here").rglob("*") if path.is_file()) <= 8_000
    assert (tmp_path / "here" / "run" / "run.json").exists()


def test_what_arrow_does_not_know_is_said(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nothing://here cannot be read"):
        Mirror("nothing://here", tmp_path)
