"""Reading a run: every zoom, half of its files, and while it is written."""

import os
import random
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sonde
from sonde.core.errors import RunNotFound, RunUnreadable, StoreError, TagNotFound
from sonde.core.frames import MISSING, Columns, Detail, Frame
from sonde.core.records import Branch, Ending, Series
from sonde.store.export import export
from sonde.store.layout import EVENTS
from sonde.store.runs import list_runs
from sonde.testing import MemoryRun, assert_records_agree, assert_series_agree, assert_window_sums_up

STEP = Columns("step", ("loss", "lr", "rare"))
WIDER = Columns("step", ("lr", "late", "loss"))
LAYERS = Columns("layers", tuple(f"grad/norm@layer.{i}" for i in range(5)), Detail.LAYER)
SHAPES = Columns("shapes", ("shape@a", "shape@b"), Detail.DISTRIBUTION, bins=3)


def frames(steps: range, seed: int) -> list[Frame]:
    """Rows of three tables, with NaN, infinities and holes, and a tag that comes late."""
    rng = np.random.default_rng(seed)
    found = []
    for step in steps:
        columns = STEP if step < 400 else WIDER
        values = rng.normal(size=3).astype(np.float32)
        values[rng.random(3) < 0.02] = np.nan
        values[rng.random(3) < 0.01] = np.inf
        if columns is STEP and step % 50:
            values[2] = MISSING
        found.append(Frame(columns, step, 1e9 + step, values))
        if step % 5 == 0:
            found.append(Frame(LAYERS, step, 1e9 + step, rng.normal(size=5).astype(np.float32)))
        if step % 20 == 0:
            found.append(Frame(SHAPES, step, 1e9 + step, np.arange(6, dtype=np.float32) + step))
    return found


def record(path: Path, recorded: list[Frame], *, rows_a_flush: int, segment_rows: int) -> None:
    with sonde.Writer(path, segment_rows=segment_rows) as run:
        for i, frame in enumerate(recorded):
            run.append(frame)
            if i % 200 == 0:
                run.event("note", step=frame.step, data={"i": i})
            if i % rows_a_flush == rows_a_flush - 1:
                assert run.flush()


@pytest.fixture(scope="module")
def story() -> list[Frame]:
    """A run that went back twice."""
    return [*frames(range(700), 0), *frames(range(500, 650), 1), *frames(range(580, 900), 2)]


@pytest.fixture(scope="module")
def memory(story: list[Frame]) -> MemoryRun:
    run = MemoryRun()
    for i, frame in enumerate(story):
        run.append(frame)
        if i % 200 == 0:
            run.event("note", step=frame.step, data={"i": i})
    run.close()
    return run


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, story: list[Frame]) -> Path:
    """The run in many segments, some merged."""
    path = tmp_path_factory.mktemp("reader") / "run"
    record(path, story, rows_a_flush=70, segment_rows=7)
    return path


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory, story: list[Frame]) -> Path:
    """The run as a kill would leave it: segments, logs, and a state that says live."""
    path = tmp_path_factory.mktemp("reader") / "run"
    with sonde.Writer(path, segment_rows=30) as run:
        for i, frame in enumerate(story):
            run.append(frame)
            if i % 150 == 149:
                run.flush()
        run.event("note")
        run.flush()
        # Folding goes on in the background: folders come and go under a walk, which `rglob` cannot bear.
        while not any(name.startswith("seg-") for _, folders, _ in os.walk(path) for name in folders):
            run.flush()
        copy_live(path, path.with_name("copy"))
    return path.with_name("copy")


def copy_live(path: Path, to: Path) -> None:
    """Copy a run that is being folded: a file may go while the others are copied."""
    while True:
        try:
            shutil.copytree(path, to)
        except (shutil.Error, FileNotFoundError):
            shutil.rmtree(to)
        else:
            return


# The whole, and parts of it.


def test_a_run_of_many_segments_reads_as_the_one_in_memory(recorded: Path, memory: MemoryRun) -> None:
    run = sonde.load(recorded)
    assert len(list(recorded.rglob("seg-*"))) > 4
    assert_records_agree(run, memory)
    assert run.problems == []
    assert run.steps == 899


def test_a_run_of_segments_and_logs_reads_as_the_one_in_memory(interrupted: Path, memory: MemoryRun) -> None:
    run = sonde.load(interrupted)
    assert list(interrupted.rglob("*.log"))
    assert list(interrupted.rglob("seg-*"))
    for tag in memory.tags():
        for branch in range(3):
            assert_series_agree(run.series(tag, branch=branch), memory.series(tag, branch=branch))
    assert run.state.ending is Ending.DIED
    assert run.problems == []


@settings(deadline=None, max_examples=120)
@given(
    tag=st.sampled_from(["loss", "rare", "late", "grad/norm@layer.3"]),
    start=st.none() | st.integers(-10, 950),
    length=st.none() | st.integers(0, 950),
    points=st.sampled_from([1, 2, 3, 5, 10, 20, 40, 100, 700, 5000]),
    branch=st.sampled_from([None, 0, 1, 2]),
)
def test_any_zoom_of_any_part_sums_up_the_series(
    recorded: Path, tag: str, start: int | None, length: int | None, points: int, branch: int | None
) -> None:
    run = sonde.load(recorded)
    end = None if length is None else (start or 0) + length
    series = run.series(tag, start=start, end=end, branch=branch)
    assert_window_sums_up(run.window(tag, start, end, points, branch=branch), series, points)


@settings(deadline=None, max_examples=60)
@given(
    start=st.none() | st.integers(-10, 950), end=st.none() | st.integers(-10, 950), branch=st.sampled_from([None, 0])
)
def test_a_table_has_what_its_series_have(
    recorded: Path, start: int | None, end: int | None, branch: int | None
) -> None:
    run = sonde.load(recorded)
    tags = ["loss", "grad/norm@layer.1", "rare", "late"]
    table = run.table(tags, start=start, end=end, branch=branch)
    assert table.column_names == ["step", "time", *tags]
    steps = np.array(table["step"])
    assert (np.diff(steps) > 0).all()
    for tag in tags:
        measured = ~np.array(table[tag].is_null())
        series = run.series(tag, start=start, end=end, branch=branch)
        assert np.array_equal(steps[measured], series.step)
        assert np.array_equal(np.array(table[tag].drop_null(), np.float32), series.value, equal_nan=True)
        assert np.array_equal(np.array(table["time"])[measured], series.time)


def test_a_table_of_everything_has_every_tag(recorded: Path) -> None:
    run = sonde.load(recorded)
    assert run.table().column_names == ["step", "time", *run.tags()]
    assert run.table("grad/norm@layer.?").num_columns == 2 + 5
    assert run.table("nothing*").num_columns == 2
    assert len(run.table("nothing*")) == 0
    assert run.table([]).column_names == ["step", "time"]
    with pytest.raises(TagNotFound, match="lozz"):
        run.table(["loss", "lozz"])


def test_a_table_becomes_a_frame_of_pandas_that_tells_null_from_nan(tmp_path: Path) -> None:
    with sonde.record(tmp_path) as run:
        run.log({"a": np.nan, "time": 7.0}, step=0)
        run.log({"b": 2.0, "step": 9.0}, step=1)
    table = sonde.load(tmp_path).table()
    assert table["a"].to_pylist()[1] is None
    assert np.isnan(table["a"].to_pylist()[0])
    frame = table.to_pandas()
    assert frame.columns.tolist() == ["step", "time", "a", "b", "step@", "time@"]
    assert frame["step"].tolist() == [0, 1]
    assert frame["step@"].dropna().tolist() == [9.0]


def test_of_a_step_recorded_twice_a_table_has_the_later_value_and_the_first_time(tmp_path: Path) -> None:
    with sonde.record(tmp_path) as run:
        run.log({"loss": 1.0}, step=0, time=10.0)
        run.log({"lr": 0.5}, step=0, time=11.0)
        run.log({"loss": 2.0}, step=0, time=12.0)
        run.log({"loss": 3.0}, step=1, time=13.0)
    read = sonde.load(tmp_path)
    assert read.table().to_pydict() == {"step": [0, 1], "time": [10.0, 13.0], "loss": [2.0, 3.0], "lr": [0.5, None]}
    assert read.series("loss").value.tolist() == [1, 2, 3]


@pytest.mark.parametrize("folded", [False, True])
def test_many_rows_of_one_step_are_all_in_its_window(tmp_path: Path, folded: bool) -> None:
    with sonde.record(tmp_path) as run:
        for step in range(300):
            for _ in range(7):
                run.log({"loss": float(step)}, step=step)
        run.flush()
        if folded:
            run.close()
        read = sonde.load(tmp_path)
        for start, end in ((None, None), (9, 9), (10, 100), (150, None), (None, 0)):
            for points in (1, 3, 50):
                series = read.series("loss", start=start, end=end)
                assert_window_sums_up(read.window("loss", start, end, points), series, points)
                assert len(series.step) % 7 == 0


def test_a_tag_in_two_tables_reads_as_one_series(tmp_path: Path) -> None:
    with sonde.record(tmp_path) as run:
        for step in range(101):
            run.log({"loss": float(step)}, step=step, table="even" if step % 2 == 0 else "odd", time=float(step))
    read = sonde.load(tmp_path)
    series = read.series("loss")
    assert series.value.tolist() == series.step.tolist() == series.time.tolist() == list(range(101))
    for points in (1, 7, 1000):
        assert_window_sums_up(read.window("loss", points=points), series, points)
    assert read.last()["loss"] == (100, 100.0, 100.0)  # in the first of the two tables
    assert read.table("loss")["loss"].to_pylist() == list(range(101))


# Histograms.


@pytest.mark.parametrize("run", ["recorded", "interrupted"])
def test_histograms_read_back_on_every_line(run: str, request: pytest.FixtureRequest) -> None:
    read = sonde.load(request.getfixturevalue(run))
    assert read.histogram_tags() == ["shape@a", "shape@b"]
    assert read.histogram_tags("*@b") == ["shape@b"]
    for branch, last in ((0, 700), (1, 650), (None, 900)):
        steps, counts, times = read.histogram("shape@b", branch=branch)
        assert steps.tolist() == list(range(0, last, 20))
        assert np.array_equal(counts, steps[:, None] + np.array([3, 4, 5]))
        assert np.array_equal(times, 1e9 + steps)
    steps, counts, _ = read.histogram("shape@a", start=100, end=140)
    assert counts.tolist() == [[100, 101, 102], [120, 121, 122], [140, 141, 142]]


def test_histograms_outside_of_what_was_recorded_are_none(recorded: Path) -> None:
    steps, counts, times = sonde.load(recorded).histogram("shape@a", start=10_000)
    assert (steps.shape, counts.shape, times.shape) == ((0,), (0, 3), (0,))


def test_histograms_that_come_late_or_are_missing_have_no_row(tmp_path: Path) -> None:
    both, one = Columns("shapes", ("b", "a"), bins=2), Columns("shapes", ("a",), bins=2)
    with sonde.record(tmp_path) as run:
        run.append(Frame(one, 0, 0.0, np.array([1, 2], np.float32)))
        run.append(Frame(both, 1, 0.0, np.array([3, 4, 5, 6], np.float32)))
        run.append(Frame(both, 2, 0.0, np.array([MISSING, MISSING, 7, np.nan], np.float32)))
        run.flush()
        live = sonde.load(tmp_path)
        assert live.histogram("b")[1].tolist() == [[3, 4]]
    read = sonde.load(tmp_path)
    assert read.histogram("b")[0].tolist() == [1]
    assert read.histogram("b")[1].tolist() == [[3, 4]]
    np.testing.assert_array_equal(read.histogram("a")[1], np.array([[1, 2], [5, 6], [7, np.nan]]))
    assert read.tags() == []
    with pytest.raises(TagNotFound, match=r"'b'"):
        read.series("b")
    with pytest.raises(TagNotFound, match="no series 'c'"):
        read.histogram("c")


# Names and errors.


def test_a_misspelt_tag_is_told_what_there_is(recorded: Path) -> None:
    with pytest.raises(TagNotFound, match=r"no series 'los'; it has 'loss'.* and \d+ more\.$"):
        sonde.load(recorded).series("los")


def test_a_run_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(RunNotFound, match="does not exist"):
        sonde.load(tmp_path / "nothing")
    with pytest.raises(RunNotFound, match=r"no run\.json"):
        sonde.load(tmp_path)


def test_a_branch_that_is_not_there_is_refused(recorded: Path) -> None:
    run = sonde.load(recorded)
    assert run.branches == [Branch(0, None, 0), Branch(1, 0, 500), Branch(2, 1, 580)]
    for ask in (run.series, run.histogram, run.window, run.table):
        with pytest.raises(ValueError, match="must be 0 to 2 in this run, got 3"):
            ask("shape@a" if ask == run.histogram else "loss", branch=3)


def test_a_run_recorded_anew_at_the_same_place_is_not_mistaken_for_the_old(tmp_path: Path) -> None:
    for value in (1.0, 2.0, 3.0):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        with sonde.record(tmp_path / "run") as run:
            for step in range(200):
                run.log({"loss": value}, step=step)
        read = sonde.load(tmp_path / "run")
        assert set(read.series("loss").value.tolist()) == {value}
        assert read.window("loss", points=1).max.tolist() == [value]
        assert read.last()["loss"].value == value


# Following.


def test_following_an_ended_run_gives_its_current_line(recorded: Path, memory: MemoryRun) -> None:
    seen: dict[str, list[int]] = {}
    for frame in sonde.load(recorded).follow():
        assert len(frame.values) == frame.columns.width
        seen.setdefault(frame.columns.table, []).append(frame.step)
    assert seen["step"] == memory.series("loss").step.tolist()
    assert seen["layers"] == memory.series("grad/norm@layer.0").step.tolist()
    assert seen["shapes"] == list(range(0, 900, 20))


def test_following_goes_on_in_the_branch_that_a_run_goes_back_to(tmp_path: Path) -> None:
    with sonde.record(tmp_path) as run:
        for step in range(5):
            run.log({"loss": 1.0}, step=step)
        run.flush()
        rows = sonde.load(tmp_path).follow(poll_s=0.001)
        assert [next(rows).step for _ in range(5)] == [0, 1, 2, 3, 4]
        for step in (2, 3):
            run.log({"loss": 2.0}, step=step)
        run.flush()
        assert [(frame.step, frame.values.tolist()) for frame in (next(rows), next(rows))] == [(2, [2.0]), (3, [2.0])]
    assert list(rows) == []


def test_following_from_now_on_leaves_out_what_was_there(tmp_path: Path) -> None:
    got: list[int] = []
    with sonde.record(tmp_path) as run:
        run.log({"loss": 1.0}, step=0)
        run.flush()
        rows = sonde.load(tmp_path).follow(poll_s=0.0001, from_start=False)
        thread = threading.Thread(target=lambda: got.extend(frame.step for frame in rows))
        thread.start()
        step = 0
        while not got:
            step += 1
            run.log({"loss": 1.0}, step=step)
            run.flush()
    thread.join()
    assert got == list(range(got[0], step + 1))
    assert got[0] > 0


# Damage.


def points_of(series: Series) -> set[tuple[int, bytes]]:
    return {(int(step), value.tobytes()) for step, value in zip(series.step, series.value, strict=True)}


@pytest.fixture(scope="module")
def truth(memory: MemoryRun) -> dict[str, set[tuple[int, bytes]]]:
    return {tag: set().union(*(points_of(memory.series(tag, branch=b)) for b in range(3))) for tag in memory.tags()}


def ask_everything(path: Path, truth: dict[str, set[tuple[int, bytes]]]) -> None:
    """Every question there is; what comes back was recorded."""
    run = sonde.load(path)
    assert run.state.steps == run.steps
    assert run.name
    assert len(run.branches) <= 3
    for event in run.events():
        assert event.kind == "note"
    tags = run.tags()
    assert set(tags) <= set(truth)
    for tag in tags:
        for branch in range(len(run.branches)):
            assert points_of(run.series(tag, branch=branch)) <= truth[tag]
        for points in (1, 4, 1000):
            window = run.window(tag, 50, 800, points)
            # A picture may show more than its series: the pyramid of a block that is gone.
            assert len(window.step) <= points
            assert (window.finite + window.nonfinite).sum() <= len(truth[tag])
    for tag, point in run.last().items():
        assert (point.step, np.float32(point.value).tobytes()) in truth[tag] or np.isnan(point.value)
    table = run.table()
    assert table.num_columns == 2 + len(tags)
    for tag in run.histogram_tags():
        steps, counts, _ = run.histogram(tag)
        assert np.array_equal(counts, steps[:, None] + np.arange(3) + (3 if tag == "shape@b" else 0))
    for frame in run.follow(poll_s=0):
        assert len(frame.values) == frame.columns.width
        if frame.columns.bins == 1:
            for tag, value in zip(frame.columns.tags, frame.values, strict=True):
                assert (frame.step, value.tobytes()) in truth[tag] or value.tobytes() == MISSING.tobytes()
    assert all(isinstance(problem, str) for problem in run.problems)
    export(run, path.with_name("out.jsonl"))


def truncate(path: Path, rng: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(len(content) + 1)])


def delete(path: Path, rng: random.Random) -> None:
    path.unlink()


def zero_the_end(path: Path, rng: random.Random) -> None:
    """What some file systems leave after a power cut: the length, and not the bytes."""
    content = path.read_bytes()
    keep = rng.randrange(len(content) + 1)
    path.write_bytes(content[:keep].ljust(len(content), b"\0"))


DAMAGE: list[Callable[[Path, random.Random], None]] = [truncate, delete, zero_the_end]


@pytest.mark.parametrize("source", ["recorded", "interrupted"])
@pytest.mark.parametrize("share", [0.02, 0.1, 0.5])
@pytest.mark.parametrize("seed", range(3))
def test_half_a_run_reads_as_what_is_left_of_it(
    source: str, share: float, seed: int, tmp_path: Path, truth: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    path = tmp_path / "run"
    shutil.copytree(request.getfixturevalue(source), path)
    rng = random.Random(f"{source}{share}{seed}")
    files = sorted(file for file in path.rglob("*") if file.is_file() and file.name != "run.json")
    for file in rng.sample(files, max(1, int(share * len(files)))):
        kinds = DAMAGE[:2] if file.suffix in {".parquet", ".pyramid"} else DAMAGE
        rng.choice(kinds)(file, rng)
    ask_everything(path, truth)


@pytest.mark.parametrize("kind", ["truncated", "deleted", "flipped"])
@pytest.mark.parametrize("name", ["*.json", "*.jsonl", "*.log", "*.pyramid", "*.parquet"])
def test_one_damaged_file_costs_no_more_than_itself(
    kind: str, name: str, tmp_path: Path, truth: dict[str, Any], interrupted: Path
) -> None:
    rng = random.Random(f"{kind}{name}")
    files = sorted(interrupted.rglob(name))
    for number, file in enumerate(rng.sample(files, min(3, len(files)))):
        path = tmp_path / str(number)
        shutil.copytree(interrupted, path)
        damaged = path / file.relative_to(interrupted)
        if kind == "deleted":
            damaged.unlink()
        elif kind == "truncated":
            truncate(damaged, rng)
        elif damaged.suffix in {".json", ".log"}:  # the others have no checksum of their own
            content = bytearray(damaged.read_bytes())
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
            damaged.write_bytes(content)
        try:
            ask_everything(path, truth)
        except (RunNotFound, RunUnreadable):
            assert file.name == "run.json"


def test_pictures_and_newest_points_need_no_pyramid(tmp_path: Path, recorded: Path, memory: MemoryRun) -> None:
    path = tmp_path / "run"
    shutil.copytree(recorded, path)
    files = sorted(path.rglob("*.pyramid"))
    assert files
    for i, file in enumerate(files):
        if i % 2:
            file.unlink()
        else:
            file.write_bytes(b"")
    assert_records_agree(sonde.load(path), memory)


def test_a_missing_piece_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    for part in range(3):
        with sonde.Writer(tmp_path) as run:
            for step in range(10 * part, 10 * part + 10):
                run.log({"loss": float(step)}, step=step)
    pieces = sorted(tmp_path.rglob("seg-*"))
    assert len(pieces) == 3
    (pieces[1] / "block-0000.parquet").unlink()
    read = sonde.load(tmp_path)
    assert read.problems == []
    assert read.series("loss").value.tolist() == [*range(10), *range(20, 30)]
    assert read.problems == [f"{pieces[1]}: a file is missing"]
    assert [frame.step for frame in read.follow()] == [*range(10), *range(20, 30)]
    assert read.last()["loss"].step == 29
    (pieces[0] / "segment.json").write_text("{")
    assert read.series("loss").value.tolist() == list(range(20, 30))
    assert len(read.problems) == 2


def test_a_half_copied_run_can_be_continued(tmp_path: Path, interrupted: Path) -> None:
    for seed in range(6):
        path = tmp_path / str(seed)
        shutil.copytree(interrupted, path)
        rng = random.Random(seed)
        files = sorted(file for file in path.rglob("*") if file.is_file() and file.suffix not in (".json", ".jsonl"))
        for file in rng.sample(files, 3):
            rng.choice(DAMAGE[:2])(file, rng)
        with sonde.record(path) as run:
            run.log({"loss": 7.0, "brand/new": 8.0}, step=5000, table="another")
            assert run.flush()
        read = sonde.load(path)
        assert read.series("brand/new").value.tolist() == [8.0]
        assert read.series("loss", start=5000).value.tolist() == [7.0]


def test_events_that_are_not_events_are_left_out(tmp_path: Path) -> None:
    with sonde.record(tmp_path) as run:
        run.event("note", step=3)
    with (tmp_path / EVENTS).open("a") as file:
        file.write(
            '[]\n3\n{"kind": 5}\n{"data": {}}\n{"kind": "odd", "time": "x", "step": "y", "data": []}\n{"kind": "torn'
        )
    events = sonde.load(tmp_path).events()
    assert [(event.kind, event.step, event.data) for event in events] == [("note", 3, {}), ("odd", None, {})]


# While it is written.


def test_readers_see_every_flushed_row_once_while_the_run_is_folded_and_merged(tmp_path: Path) -> None:
    """Everything below runs while segments of a few rows come and go; what was flushed must be there, in order."""
    flushed = [-1]
    done = threading.Event()
    faults: list[BaseException] = []
    polls: list[int] = []

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                faults.append(error)

        return run

    def poll() -> None:
        read = sonde.load(tmp_path)
        while not done.is_set() or not polls:
            least = flushed[0]
            loss = read.series("loss") if least >= 0 else None
            if loss is not None:
                assert np.array_equal(loss.step, np.arange(len(loss.step)))
                assert np.array_equal(loss.value, loss.step.astype(np.float32))
                assert len(loss.step) > least
                assert_window_sums_up(read.window("loss", 0, least, 5), read.series("loss", start=0, end=least), 5)
                assert read.window("norm@1", points=1).max[0] >= least - least % 3
                assert read.last()["loss"].step >= least
                assert read.steps >= least
                assert len(read.table(["loss", "norm@0"], end=least)) == least + 1
                assert len(read.histogram("shape")[0]) > least // 10
                polls.append(least)
            assert read.problems == []

    followed: dict[str, list[int]] = {}

    def follow() -> None:
        for frame in sonde.load(tmp_path).follow(poll_s=0.0001):
            followed.setdefault(frame.columns.table, []).append(frame.step)

    layers, shapes = Columns("layers", ("norm@0", "norm@1"), Detail.LAYER), Columns("shapes", ("shape",), bins=4)
    with sonde.Writer(tmp_path, segment_rows=2) as run:
        threads = [threading.Thread(target=guarded(work), daemon=True) for work in (poll, follow)]
        for thread in threads:
            thread.start()
        step = -1
        while (step < 400 or len(polls) < 12) and step < 1200 and not faults:
            step += 1
            run.log({"loss": float(step)} if step < 200 else {"lr": 0.5, "loss": float(step)}, step=step)
            if step % 3 == 0:
                run.append(Frame(layers, step, 0.0, np.full(2, step, np.float32)))
            if step % 10 == 0:
                run.append(Frame(shapes, step, 0.0, np.full(4, step, np.float32)))
            if step % 17 == 16:
                assert run.flush()
                flushed[0] = step
        done.set()
        threads[0].join()
    threads[1].join()
    assert faults == []
    assert polls
    every = range(step + 1)
    assert followed == {"step": list(every), "layers": list(every[::3]), "shapes": list(every[::10])}
    assert sonde.load(tmp_path).series("loss").step.tolist() == list(every)


def test_a_damaged_run_is_listed_with_its_problem(tmp_path: Path) -> None:
    sonde.record(tmp_path / "good").close()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "run.json").write_text("{")
    with pytest.raises(StoreError, match="damaged"):
        sonde.load(tmp_path / "bad")
    assert [(run.name, bool(run.problem)) for run in list_runs(tmp_path)] == [("good", False), ("bad", True)]
