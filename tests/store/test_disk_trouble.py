"""Disks that are full, folders that cannot be written, runs that belong to somebody else."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import sonde
from sonde.core.errors import RunBusy, RunNotFound, RunNotWritable, RunUnreadable, SchemaTooNew
from sonde.store.runs import list_runs


def run_script(code: str, *arguments: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_a_full_disk_costs_a_warning_and_no_row_once_there_is_room_again(tmp_path: Path) -> None:
    # The limit on the size of files makes writes fail as a full disk does, half-way through a row.
    code = """
    import resource, sys
    import sonde
    run = sonde.record(sys.argv[1])
    for step in range(50):
        run.log({"loss": float(step), "lr": 0.5}, step=step)
    assert run.flush()
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1500, hard))
    for step in range(50, 500):
        run.log({"loss": float(step), "lr": 0.5, "late": 1.0}, step=step)
        run.event("note", step=step, data={"text": "x" * 30})
    assert not run.flush()
    print("still training")
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    for step in range(500, 600):
        run.log({"loss": float(step), "lr": 0.5, "late": 1.0}, step=step)
    assert run.flush()
    run.close()
    """
    done = run_script(code, tmp_path / "run")
    assert (done.returncode, done.stdout) == (0, "still training\n"), done.stderr
    assert done.stderr.count("cannot be written") == 1
    assert "can be written again" in done.stderr
    run = sonde.load(tmp_path / "run")
    assert np.array_equal(run.series("loss").value, np.arange(600, dtype=np.float32))
    assert run.series("late").step.tolist() == list(range(50, 600))
    assert [event.step for event in run.events("note")] == list(range(50, 500))
    assert not run.problems


def test_a_disk_that_stays_full_drops_detail_first_and_never_the_loss(tmp_path: Path) -> None:
    code = """
    import resource, sys
    import numpy as np
    import sonde
    from sonde.core.frames import Columns, Detail, Frame
    layers = Columns("layers", [f"grad/norm@{i}" for i in range(1000)], Detail.LAYER)
    shapes = Columns("shapes", [f"grad/shape@{i}" for i in range(100)], Detail.DISTRIBUTION, bins=10)
    run = sonde.Writer(sys.argv[1], room_bytes=8 << 20)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    for step in range(5000):
        run.log({"loss": float(step)}, step=step)
        run.append(Frame(layers, step, 0.0, np.full(1000, step, np.float32)))
        run.append(Frame(shapes, step, 0.0, np.full(1000, step, np.float32)))
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    run.close()
    """
    done = run_script(code, tmp_path / "run")
    assert done.returncode == 0, done.stderr
    run = sonde.load(tmp_path / "run")
    assert run.series("loss").step.tolist() == list(range(5000))
    dropped = run.state.dropped
    layers, (shape_steps, _, _) = run.series("grad/norm@7"), run.histogram("grad/shape@7")
    assert len(layers.step) + dropped["layers"] == 5000
    assert len(shape_steps) + dropped["shapes"] == 5000
    assert dropped["shapes"] > dropped["layers"] > 0
    assert "loss" not in dropped
    assert "step" not in dropped
    assert np.array_equal(layers.value, layers.step.astype(np.float32))


def test_a_process_ends_in_time_and_says_what_is_lost_when_the_disk_is_full_to_the_end(tmp_path: Path) -> None:
    code = """
    import resource, sys
    import sonde
    run = sonde.record(sys.argv[1])
    run.log({"loss": 1.0}, step=0)
    run.flush()
    resource.setrlimit(resource.RLIMIT_FSIZE, (70, 70))
    run.log({"loss": 1.0}, step=1)
    """
    done = run_script(code, tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert "lost" in done.stderr
    assert "Traceback" not in done.stderr
    run = sonde.load(tmp_path / "run")
    assert run.series("loss").step.tolist() == [0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a disk of its own")
def test_a_disk_that_is_really_full_behaves_the_same(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "none", str(disk)], check=False)
    if mounted.returncode != 0:
        pytest.skip("this machine does not let us mount")
    try:
        code = """
        import os, sys
        import numpy as np
        import sonde
        from sonde.core.frames import Columns, Detail, Frame
        filler = os.path.join(os.path.dirname(sys.argv[1]), "filler")
        open(filler, "wb").write(bytes(400_000))
        layers = Columns("layers", [f"grad/norm@{i}" for i in range(100)], Detail.LAYER)
        run = sonde.Writer(sys.argv[1], flush_s=0.01, segment_rows=50)
        failed = 0
        for step in range(600):
            run.append(Frame(layers, step, 0.0, np.full(100, step, np.float32)))
            run.log({"loss": float(step)}, step=step)
            failed += step % 50 == 0 and not run.flush()
        assert failed
        os.unlink(filler)
        assert run.flush()
        run.close()
        """
        done = run_script(code, disk / "run")
        assert done.returncode == 0, done.stderr
        run = sonde.load(disk / "run")
        assert run.series("loss").step.tolist() == list(range(600))
        assert np.array_equal(run.series("grad/norm@3").value, np.arange(600, dtype=np.float32))
        assert not run.problems
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(RunNotWritable, match="choose another folder"):
        sonde.record(tmp_path / "file" / "run")


def test_a_folder_that_holds_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunNotWritable, match="not a run"):
        sonde.record(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_second_writer_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    with sonde.record(tmp_path / "run") as first:
        first.log({"loss": 1.0}, step=0)
        with pytest.raises(RunBusy, match=f"process {os.getpid()}"):
            sonde.record(tmp_path / "run")
        done = run_script("import sys, sonde; sonde.record(sys.argv[1])", tmp_path / "run")
        assert done.returncode == 1
        assert "RunBusy" in done.stderr
        first.log({"loss": 1.0}, step=1)
    run = sonde.load(tmp_path / "run")
    assert run.series("loss").step.tolist() == [0, 1]
    assert len(run.info["sessions"]) == 1


def test_a_run_of_a_newer_schema_is_refused_by_reader_and_writer(tmp_path: Path) -> None:
    sonde.record(tmp_path / "run").close()
    path = tmp_path / "run" / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 99}))
    before = path.read_bytes()
    with pytest.raises(SchemaTooNew, match="upgrade Sonde"):
        sonde.load(tmp_path / "run")
    with pytest.raises(SchemaTooNew):
        sonde.record(tmp_path / "run")
    assert path.read_bytes() == before
    assert "newer" in list_runs(tmp_path)[0].problem


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"schema": "one"}', '{"name": "x"}', "\x00\xff"])
def test_a_damaged_run_json_is_unreadable_and_not_overwritten(tmp_path: Path, text: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text(text, encoding="utf-8")
    with pytest.raises(RunUnreadable):
        sonde.load(tmp_path / "run")
    with pytest.raises(RunUnreadable):
        sonde.record(tmp_path / "run")
    assert (tmp_path / "run" / "run.json").read_text(encoding="utf-8") == text


def test_a_missing_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunNotFound, match="does not exist"):
        sonde.load(tmp_path / "nowhere")
    with pytest.raises(RunNotFound, match=r"no run\.json"):
        sonde.load(tmp_path)


def test_the_folder_vanishing_under_a_run_never_reaches_the_training(tmp_path: Path) -> None:
    code = """
    import shutil, sys
    import sonde
    run = sonde.Writer(sys.argv[1], flush_s=0.01)
    run.log({"loss": 1.0}, step=0)
    run.flush()
    shutil.rmtree(sys.argv[1])
    for step in range(1, 50):
        run.log({"loss": 1.0}, step=step)
        run.event("note", step=step)
        run.flush()
    run.close()
    print("trained")
    """
    done = run_script(code, tmp_path / "run")
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    assert "Traceback" not in done.stderr


def test_a_run_that_lost_names_of_columns_is_not_continued(tmp_path: Path) -> None:
    with sonde.record(tmp_path / "run") as run:
        run.log({"loss": 1.0}, step=0)
        run.log({"loss": 1.0, "lr": 0.1}, step=1)
        run.flush()
        run.log({"late": 1.0}, step=2)
    columns = tmp_path / "run" / "tables" / "step" / "columns.jsonl"
    lines = columns.read_text().splitlines(keepends=True)
    assert len(lines) > 1
    columns.write_text(lines[0])
    with pytest.raises(RunUnreadable, match="lacks columns"):
        sonde.record(tmp_path / "run")
    columns.write_text(lines[0].replace("loss", "lo ss") + "".join(lines[1:]))
    with pytest.raises(RunUnreadable, match="damaged"):
        sonde.record(tmp_path / "run")
    assert list(sonde.load(tmp_path / "run").follow()) == []
    columns.write_text("".join(lines))
    sonde.record(tmp_path / "run").close()
    assert sonde.load(tmp_path / "run").series("loss").step.tolist() == [0, 1]
