"""Runs cases in forked children, with little memory and little time: `server.py FOLDER [OPTIONS]`.

The readers are imported once; a child is forked for some dozens of cases, each on a copy of its own. A child that a
case kills or stops is replaced by one that goes on behind that case. What went wrong is printed, a line of JSON a case,
and then how many there were. Torch is never imported.
"""

import argparse
import contextlib
import functools
import hashlib
import io
import itertools
import json
import os
import resource
import select
import shutil
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from tests.store.fuzzing import cases, seeds
from tests.store.fuzzing.mutations import MARKER, Case, make_bomb

import sonde
from sonde.cli.main import main
from sonde.core.errors import SondeError, StoreError
from sonde.reports.comparing import compare
from sonde.reports.report import report
from sonde.store.importing.imports import import_logs
from sonde.store.runs import list_runs

CASE_S = 10
MEMORY_BYTES = 1 << 30
BATCH = 64


class Attempt(NamedTuple):
    """A case and what is done with it."""

    number: int
    name: str
    is_special: bool
    attempt: Callable[[Path], None]


class TooLongError(BaseException):
    """A case took more than its time."""


def read_run(path: Path, good: Path, number: int) -> Iterator[object]:
    """Ask a run all there is to ask; gives what was answered."""
    try:
        run = sonde.load(path)
    except StoreError as error:
        yield str(error)
        return
    yield from (run.name, run.info, run.state, run.branches, run.events(), run.tags(), run.histogram_tags())
    yield (run.last(), [len(list(rows)) for rows in run.frames()])
    ranks = run.ranks()
    for one, tags in ((run, ("loss", "grad/norm@a.weight")), (ranks.get(1, run), ("loss",))):
        yield one.state
        for tag in tags:
            with contextlib.suppress(SondeError):
                yield (one.series(tag), one.series(tag, start=2, end=5), one.window(tag, points=1))
                yield one.window(tag, 1, 8, points=2)
    for ask in (lambda: run.histogram("grad/shape@a.weight"), run.table):
        with contextlib.suppress(SondeError):
            yield ask()
    yield len(list(itertools.islice(run.follow(poll_s=0.01), 500)))
    if number % 16 == 0:
        with contextlib.suppress(SondeError):
            yield compare(path, good)
        with contextlib.suppress(SondeError):
            yield str(report(path))
    yield run.problems


def ask_commands(path: Path, good: Path, number: int) -> Iterator[str]:
    """Look at a run with commands; gives what they printed."""
    summaries = list_runs(path.parent)
    if good not in [one.path for one in summaries] or len(summaries) != 1 + os.path.lexists(path / "run.json"):
        raise AssertionError(f"not all runs are listed: {summaries}")
    if number % 2:
        yield command("diagnose", str(path))
        return
    listed = command("runs", str(path.parent))
    if good.name not in listed:
        raise AssertionError(f"`sonde runs` does not list all runs: {listed}")
    yield listed
    yield command("show", str(path))
    more = [
        ("show", str(path), "--json"),
        ("runs", str(path.parent), "--json"),
        ("diagnose", str(path), "--json"),
        ("tail", str(path), "--once"),
        ("report", str(path), "-o", str(path.parent.parent / "report.html")),
        ("report", str(path), "--md", "-o", "-"),
        ("export", str(path), "--to", "csv", "--out", str(path.parent.parent / "exported.csv")),
        ("export", str(path), "--to", "jsonl", "--out", str(path.parent.parent / "exported.jsonl")),
        ("export", str(path), "--to", "parquet", "--out", str(path.parent.parent / "exported.parquet")),
        ("compare", str(good), str(path)),
        ("config", "--run", str(path)),
    ]
    if number % 4 == 0:
        yield command(*more[number // 4 % len(more)])


def command(*words: str) -> str:
    """What a command prints."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(words)
        out.flush()
        err.flush()
    printed = b"".join(stream.buffer.getvalue() for stream in (out, err)).decode("utf-8", "replace")
    if status not in (0, 1, 2, 3) or "Traceback" in printed:
        raise AssertionError(f"`sonde {' '.join(words[:1])}` ended with {status}: {printed[-500:]}")
    return printed


def record_into(path: Path) -> None:
    """Go on recording the run, as far as that is possible."""
    with contextlib.suppress(StoreError), sonde.record(path) as writer:
        for step in range(3):
            writer.log({"loss": 1.0, "new": 2.0}, step=seeds.NUM_STEPS + step)
            writer.log({"val/loss": 1.0}, step=seeds.NUM_STEPS + step, table="evaluation")
        writer.event("note", step=3)
        writer.branch(2)
        writer.flush(timeout_s=2)


def try_run(case: Case, work: Path, number: int) -> None:
    """One case of a run."""
    folder = work / "runs" / "victim"
    shutil.copytree(work.parent / "run", folder)
    case.damage(folder)
    good = work / "runs" / "good"
    said = "\n".join(map(_text, read_run(folder, good, number)))
    said += "\n".join(ask_commands(folder, good, number))
    if MARKER in said:
        raise AssertionError("what a link points to was read")
    if case.records:
        record_into(folder)


def try_log(case: Case, work: Path, kind: str, source: str) -> None:
    """One case of a log."""
    folder = work / "logs" / "copy"
    first = source.partition("/")[0]
    shutil.copytree(work.parent / "logs" / first, folder / first)
    case.damage(folder)
    made = work / "made"
    with contextlib.suppress(SondeError):
        import_logs(kind, folder / source, made)
        run = sonde.load(made)
        said = "".join(map(_text, (run.info, run.tags(), run.last(), run.events())))
        if MARKER in said:
            raise AssertionError("what a link points to was read")
    here = Path.cwd()
    (work / "cwd").mkdir()
    os.chdir(work / "cwd")
    try:
        said = command("import", kind, str(folder / source))
    finally:
        os.chdir(here)
    if MARKER in said:
        raise AssertionError("what a link points to was printed")
    if {path.name for path in work.iterdir()} - {"runs", "logs", "made", "cwd", "outside", "aside"}:
        raise AssertionError(f"files were made elsewhere: {sorted(path.name for path in work.iterdir())}")


def _text(answer: object) -> str:
    return repr(answer) if not isinstance(answer, pa.Table) else str(answer.slice(0, 5))


def outside_of(folder: Path) -> str:
    """What the folder beside a run holds, in short."""
    parts = [
        (str(path.relative_to(folder)), path.is_symlink() or path.read_bytes()) for path in sorted(folder.rglob("*"))
    ]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def furnish(work: Path, shared: Path) -> None:
    """A place for cases: a healthy run beside the victim's, and a stranger's folder that none may touch."""
    shutil.copytree(shared / "good", work / "runs" / "good")
    outside = work / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text(f"{MARKER}\n")
    (outside / "columns.jsonl").write_text(json.dumps({"first": 0, "bins": 1, "tags": [MARKER]}) + "\n")
    (outside / "run.json").write_text(json.dumps({"schema": 1, "name": MARKER, "config": {"a": MARKER}}))
    (outside / "old.tmp").write_text("kept")


def clear(work: Path) -> None:
    """Take away what a case left."""
    for path in (work / "runs" / "victim", work / "logs", work / "made", work / "cwd", work / "aside"):
        _make_writable(path)
        shutil.rmtree(path, ignore_errors=True)
    for path in (*work.glob("exported.*"), *work.glob("report.*")):
        path.unlink()


def _make_writable(work: Path) -> None:
    for path in work.rglob("*") if work.exists() else ():
        if not path.is_symlink() and not path.is_dir():
            path.chmod(0o600)


def work_off(todo: list[Attempt], shared: Path, answers: int) -> None:
    """What a child does: case by case, a line before and a line behind each."""
    warnings.simplefilter("error")
    pa.set_cpu_count(1)
    limit = _data_bytes() + MEMORY_BYTES - _resident_bytes() - (100 << 20)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    signal.signal(signal.SIGALRM, _stop)
    work = shared / f"work-{os.getpid()}"
    furnish(work, shared)
    before = outside_of(work / "outside")
    for index, _, _, attempt in todo:
        _say(answers, {"begun": index})
        wrong = ""
        signal.alarm(CASE_S)
        try:
            attempt(work)
        except TooLongError:
            wrong = f"it took more than {CASE_S} s: {traceback.format_exc()[-1500:]}"
        except BaseException:
            wrong = traceback.format_exc()[-3000:]
        finally:
            signal.alarm(0)
        if not wrong and outside_of(work / "outside") != before:
            wrong = "a file outside of the run was changed"
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        if not wrong and peak > MEMORY_BYTES:
            wrong = f"it took {peak >> 20} MB of memory"
        clear(work)
        _say(answers, {"done": index, "wrong": wrong, "peak": peak})
        if peak > MEMORY_BYTES // 2:
            break  # the most that a process ever had stays with it
    shutil.rmtree(work, ignore_errors=True)


def _stop(*_: object) -> None:
    raise TooLongError


def _data_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData"))


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _say(answers: int, said: dict[str, Any]) -> None:
    os.write(answers, (json.dumps(said) + "\n").encode())


def run_all(todo: list[Attempt], shared: Path) -> Iterator[tuple[str, str, int]]:
    """Name, what went wrong and the memory of each case."""
    names = {one.number: one.name for one in todo}
    while todo:
        batch = todo[:BATCH]
        done: dict[int, tuple[str, int]] = {}
        begun, ended = _run_batch(batch, shared, done)
        for index, (wrong, peak) in done.items():
            yield names[index], wrong, peak
        if begun is not None and begun not in done:
            yield names[begun], f"its process ended: {ended}", 0
            done[begun] = ("", 0)
        todo = [one for one in todo if one.number not in done]


def _run_batch(batch: list[Attempt], shared: Path, done: dict[int, tuple[str, int]]) -> tuple[int | None, str]:
    answers, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(answers)
            work_off(batch, shared, theirs)
            status = 0
        finally:
            os._exit(status)
    os.close(theirs)
    begun, rest, ended = None, b"", ""
    with os.fdopen(answers, "rb", buffering=0) as stream:
        while True:
            ready, _, _ = select.select([stream], [], [], 3 * CASE_S)
            if not ready:
                os.kill(child, signal.SIGKILL)
                ended = "it did not stop"
                break
            piece = stream.read(65536)
            if not piece:
                break
            *lines, rest = (rest + piece).split(b"\n")
            for said in map(json.loads, lines):
                if "begun" in said:
                    begun = said["begun"]
                else:
                    done[said["done"]] = (said["wrong"], said["peak"])
    _, status = os.waitpid(child, 0)
    return begun, ended or f"status {status}"


def all_cases(shared: Path, bits: int, seed: int) -> list[Attempt]:
    """Every case of the run and of the logs."""
    found: list[Attempt] = []
    for number, case in enumerate(cases.run_cases(shared / "run", shared / "bomb.parquet", bits=bits, first_seed=seed)):
        attempt = functools.partial(try_run, case, number=number)
        found.append(Attempt(len(found), f"run: {case.name}", case.records, attempt))
    kinds = {source: kind for table in (seeds.LOGS, seeds.OTHER_LOGS) for kind, source in table.items()}
    for source, of_log in cases.log_file_cases(shared / "logs", bits=bits, first_seed=seed).items():
        for case in of_log:
            attempt = functools.partial(try_log, case, kind=kinds[source], source=source)
            found.append(Attempt(len(found), f"log: {case.name}", case.records, attempt))
    return found


def serve(shared: Path, *, num: int | None, bits: int, seed: int, name: str) -> None:
    """Run cases and print what went wrong.

    Args:
        shared: An empty folder.
        num: How many cases, spread over all; those in which something else stands in the place of a file are always
            among them. All where left out.
        bits: How many random changes of each file.
        seed: Of the random changes.
        name: What the name of a case must have in it.
    """
    os.environ["COLUMNS"] = "200"
    seeds.record_run(shared / "run")
    shutil.copytree(shared / "run", shared / "good")
    about = shared / "good" / "run.json"
    about.write_text(about.read_text().replace("victim", "good"))
    seeds.record_logs(shared / "logs")
    child = os.fork()
    if child == 0:
        make_bomb(shared / "bomb.parquet")
        os._exit(0)
    os.waitpid(child, 0)
    command("diagnose", str(shared / "good"))  # what is imported late is imported before the forks
    command("show", str(shared / "good"))
    str(report(shared / "good"))
    found = [one for one in all_cases(shared, bits, seed) if name in one.name]
    plain = [one for one in found if not one.is_special]
    wanted = len(plain) if num is None else min(len(plain), max(0, num - len(found) + len(plain)))
    kept = {plain[i * len(plain) // wanted].number for i in range(wanted)}
    done, most = 0, 0
    for case, wrong, peak in run_all([one for one in found if one.is_special or one.number in kept], shared):
        done, most = done + 1, max(most, peak)
        if wrong:
            print(json.dumps({"case": case, "wrong": wrong}), flush=True)
    print(json.dumps({"cases": done, "peak_mb": most >> 20, "torch": "torch" in sys.modules}))


if __name__ == "__main__":
    words = argparse.ArgumentParser()
    words.add_argument("shared", type=Path)
    words.add_argument("--num", type=int)
    words.add_argument("--bits", type=int, default=1)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--name", default="")
    serve(**vars(words.parse_args()))
