"""Runs are read where POSIX's own calls are missing. What stands in for such a system is said in `elsewhere.py`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import sonde

HERE = Path(__file__).parent

READ = """
import sys
import elsewhere, sonde
from pathlib import Path
from sonde.store import opening
run, other = sys.argv[1:3]
read = sonde.load(run)
print(read.state.ending, read.steps, len(read.series("loss").step), len(read.window("loss", points=10).step))
print(read.table().num_rows, read.last()["loss"].value, len(read.events()), len(read.problems), sorted(read.tags()))
print(sum(len(list(rows)) for rows in read.frames()))
print(sonde.diagnose(run).steps, "## Health checklist" in sonde.report(run).markdown())
print([one.name for one in sonde.runs(Path(run).parent)], len(sonde.compare(run, other).variants))
print(sonde.export(run, Path(run).parent / "out.csv").stat().st_size > 0)
assert not {"torch", "sonde.store.locks"} & set(sys.modules)
"""


def elsewhere(code: str, *words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def recorded(run: Path, *, rows: int) -> Path:
    with sonde.record(run) as writer:
        for step in range(1, rows + 1):
            writer.log({"loss": 1 / step, "lr": 0.1}, step=step)
            if step % 10 == 0:
                writer.log({"val/loss": 2 / step}, step=step, table="evaluation")
        writer.event("note", step=3, data={"text": "ü"})
    return run


@pytest.mark.parametrize("rows", [40, 1500], ids=["logs", "segments"])
def test_a_run_is_read_diagnosed_and_reported_as_it_is_here(tmp_path: Path, rows: int) -> None:
    run, other = recorded(tmp_path / "a", rows=rows), recorded(tmp_path / "b", rows=rows)
    found = elsewhere(READ, str(run), str(other)).splitlines()
    assert found == [
        f"finished {rows} {rows} 10",
        f"{rows} {sonde.load(run).last()['loss'].value} 1 0 ['loss', 'lr', 'val/loss']",
        f"{rows + rows // 10}",
        f"{rows} True",
        "['b', 'a'] 2",
        "True",
    ]


def test_a_live_run_is_read_from_its_logs(tmp_path: Path) -> None:
    with sonde.record(tmp_path / "run") as writer:
        for step in range(1, 31):
            writer.log({"loss": 1 / step}, step=step)
        assert writer.flush()
        code = "import sys, elsewhere, sonde; run = sonde.load(sys.argv[1]); print(run.state.ending, run.steps)"
        assert elsewhere(code, str(tmp_path / "run")) == "live 30\n"


LINKED = """
import sys, elsewhere, sonde
run = sonde.load(sys.argv[1])
print(run.tags(), [event.kind for event in run.events()], run.problems)
"""


@pytest.mark.parametrize("place", ["tables/step", "tables", "tables/step/columns.jsonl", "events.jsonl"])
def test_links_inside_of_a_run_are_not_followed_there_either(tmp_path: Path, place: str) -> None:
    run, other = recorded(tmp_path / "run", rows=20), recorded(tmp_path / "other", rows=20)
    (run / place).rename(tmp_path / "aside")
    (run / place).symlink_to(other / place)
    read = sonde.load(run)
    here = [read.tags(), [event.kind for event in read.events()], read.problems]
    assert "it is a link" in str(here[2])
    assert here[0] != sonde.load(other).tags() or here[1] == []
    assert elsewhere(LINKED, str(run)) == " ".join(map(str, here)) + "\n"
