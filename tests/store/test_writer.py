"""What the training thread calls."""

import json
import logging
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sonde
from sonde.core.errors import FormatError, TagNotFound
from sonde.core.frames import MISSING, Columns, Detail, Frame
from sonde.core.records import Ending
from sonde.store.layout import EVENTS, RUN, STATE
from sonde.store.runs import list_runs
from sonde.testing import MemoryRun, assert_records_agree

LAYERS = Columns("layers", ("norm@a", "norm@b"), Detail.LAYER)
SHAPES = Columns("shapes", ("shape@a",), Detail.DISTRIBUTION, bins=4)


# log and append.


def test_numbers_of_every_size_are_logged_without_a_warning(tmp_path: Path) -> None:
    values = {
        "nan": np.nan,
        "inf": np.inf,
        "huge": 1e300,
        "tiny": 1e-300,
        "int": 3,
        "np": np.float64(0.1),
        "bool": True,
    }
    with sonde.record(tmp_path) as run:
        run.log(values, step=0)
    read = sonde.load(tmp_path)
    found = {tag: read.series(tag).value.tolist() for tag in values}
    assert np.isnan(found.pop("nan"))
    assert found == {
        "inf": [np.inf],
        "huge": [np.inf],
        "tiny": [0.0],
        "int": [3.0],
        "np": [float(np.float32(0.1))],
        "bool": [1.0],
    }


def test_a_row_has_the_time_that_was_given_or_the_time_of_day(tmp_path: Path) -> None:
    with sonde.record(tmp_path) as run:
        run.log({"loss": 1.0}, step=0, time=12.5)
        run.log({"loss": 1.0}, step=1)
        run.event("note")
    read = sonde.load(tmp_path)
    given_time, now = read.series("loss").time.tolist()
    assert given_time == 12.5
    assert read.info["created"] <= now <= read.events()[0].time <= read.state.updated


def test_a_table_may_be_chosen(tmp_path: Path) -> None:
    with sonde.record(tmp_path) as run:
        run.log({"loss": 1.0}, step=5)
        run.log({"val/loss": 2.0}, step=3, table="evaluation")
    assert sorted(path.name for path in (tmp_path / "tables").iterdir()) == ["evaluation", "step"]
    assert len(sonde.load(tmp_path).branches) == 1


def test_numpy_integers_are_steps(tmp_path: Path) -> None:
    with sonde.record(tmp_path) as run:
        steps: list[Any] = [*np.arange(3), np.int32(1)]
        for i, step in enumerate(steps):
            run.log({"loss": float(i)}, step=step)
    read = sonde.load(tmp_path)
    assert read.series("loss").value.tolist() == [0, 3]
    assert read.branches[-1].fork_step == 1


def test_what_is_refused_leaves_nothing_and_the_run_goes_on(tmp_path: Path) -> None:
    with sonde.record(tmp_path) as run:
        run.log({"loss": 1.0}, step=0)
        run.append(Frame(SHAPES, 0, 0.0, np.ones(4, np.float32)))
        with pytest.raises(FormatError, match="no tag!"):
            run.log({"no tag!": 1.0}, step=1)
        with pytest.raises(ValueError, match="lower-case"):
            run.log({"loss": 1.0}, step=1, table="../elsewhere")
        with pytest.raises(ValueError, match="3 values for 2 columns"):
            run.append(Frame(LAYERS, 1, 0.0, np.ones(3, np.float32)))
        with pytest.raises(ValueError, match="'shapes' holds 4 numbers a tag, got columns with 2"):
            run.append(Frame(Columns("shapes", ("shape@a",), bins=2), 1, 0.0, np.ones(2, np.float32)))
        with pytest.raises(ValueError, match="could not convert"):
            run.log({"loss": "low"}, step=1)  # type: ignore[dict-item]
        run.log({"loss": 2.0}, step=1)
    read = sonde.load(tmp_path)
    assert read.tags() == ["loss"]
    assert read.series("loss").value.tolist() == [1, 2]
    assert read.histogram("shape@a")[0].tolist() == [0]


def test_nothing_logged_is_nothing_recorded(tmp_path: Path) -> None:
    with sonde.record(tmp_path) as run:
        run.log({}, step=7)
        assert run.flush()
        run.log({"loss": 1.0}, step=3)
    read = sonde.load(tmp_path)
    assert read.series("loss").step.tolist() == [3]
    assert len(read.branches) == 1


@pytest.mark.parametrize("argument", ["flush_s", "room_bytes", "segment_rows"])
@pytest.mark.parametrize("value", [0, -1])
def test_settings_must_be_positive(tmp_path: Path, argument: str, value: int) -> None:
    settings: dict[str, Any] = {argument: value}
    with pytest.raises(ValueError, match=rf"`Writer\({argument}=\.\.\.\)` must be positive, got {value}"):
        sonde.Writer(tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


# Flushing and closing.


def test_what_was_flushed_can_be_read_while_the_run_is_open(tmp_path: Path) -> None:
    with sonde.Writer(tmp_path, flush_s=1e6) as run:
        with pytest.raises(TagNotFound):
            sonde.load(tmp_path).series("loss")
        for step in range(3):
            run.log({"loss": 1.0}, step=step)
            run.event("note", step=step)
            assert run.flush(sync=step == 1)
            read = sonde.load(tmp_path)
            assert read.series("loss").step.tolist() == list(range(step + 1))
            assert len(read.events()) == step + 1
            assert read.state.steps == read.steps == step
            assert read.state.ending is Ending.LIVE
    assert sonde.load(tmp_path).state.ending is Ending.FINISHED


def test_rows_come_to_the_disk_by_themselves(tmp_path: Path) -> None:
    with sonde.Writer(tmp_path, flush_s=0.001) as run:
        run.log({"loss": 1.0}, step=0)
        frames = sonde.load(tmp_path).follow(poll_s=0.001)
        assert next(frames).step == 0


def test_a_closed_run_ignores_rows_and_says_so_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = sonde.record(tmp_path)
    run.log({"loss": 1.0}, step=0)
    run.close()
    with caplog.at_level(logging.WARNING, "sonde"):
        run.log({"loss": 1.0}, step=1)
        run.event("note")
        run.branch(0)
        assert run.flush()
        run.close()
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path} is closed; what is recorded from here on is lost."
    ]
    read = sonde.load(tmp_path)
    assert read.series("loss").step.tolist() == [0]
    assert (read.events(), len(read.branches)) == ([], 1)


def test_a_flush_that_meets_the_closing_waits_for_it(tmp_path: Path) -> None:
    for attempt in range(20):
        run = sonde.record(tmp_path / str(attempt))
        run.log({"loss": 1.0}, step=0)
        answers: list[bool] = []
        ready = threading.Barrier(4)

        def flush(run: sonde.Writer = run, answers: list[bool] = answers, ready: threading.Barrier = ready) -> None:
            ready.wait()
            answers.extend(run.flush() for _ in range(20))

        threads = [threading.Thread(target=flush) for _ in range(3)]
        for thread in threads:
            thread.start()
        ready.wait()
        run.close()
        for thread in threads:
            thread.join()
        assert answers == [True] * 60


def test_all_rows_are_in_segments_once_the_run_is_closed(tmp_path: Path) -> None:
    with sonde.record(tmp_path) as run:
        for step in range(20):
            run.log({"loss": 1.0}, step=step)
            run.append(Frame(SHAPES, step, 0.0, np.ones(4, np.float32)))
    assert list(tmp_path.rglob("*.log")) == []
    assert list(tmp_path.rglob("*.tmp")) == []
    assert len(list(tmp_path.rglob("seg-*"))) == 2


@pytest.mark.parametrize(("rows", "ended"), [(79, False), (80, True), (500, True)])
def test_a_narrow_log_ends_at_eight_times_the_rows_of_a_segment(tmp_path: Path, rows: int, ended: bool) -> None:
    with sonde.Writer(tmp_path, segment_rows=10) as run:
        for step in range(rows):
            run.log({"loss": 1.0}, step=step)
        run.flush()
        run.log({"loss": 1.0}, step=rows)
        run.flush()  # into the same log, or into the next
        assert (tmp_path / "tables" / "step" / "b0" / "rows-00000001.log").exists() == ended


def test_a_wide_log_ends_at_the_rows_of_a_segment(tmp_path: Path) -> None:
    columns = Columns("layers", tuple(f"norm@{i}" for i in range(8000)), Detail.LAYER)  # 32 kB a row
    with sonde.Writer(tmp_path, segment_rows=10) as run:
        for step in range(10):
            run.append(Frame(columns, step, 0.0, np.ones(8000, np.float32)))
        run.flush()
        run.append(Frame(columns, 10, 0.0, np.ones(8000, np.float32)))
        run.flush()
        assert (tmp_path / "tables" / "layers" / "b0" / "rows-00000001.log").exists()


# Events, configuration, state.


def test_events_are_lines_of_strict_json(tmp_path: Path) -> None:
    with sonde.record(tmp_path) as run:
        run.event("finding", step=3, data={"value": np.float32(np.nan), "where": Path("a/b"), "text": "zwei\nZeilen"})
        run.event("note")
    lines = (tmp_path / EVENTS).read_text().splitlines()
    first = json.loads(lines[0], parse_constant=lambda name: pytest.fail(name))
    assert len(lines) == 2
    assert first["data"] == {"value": "NaN", "where": "a/b", "text": "zwei\nZeilen"}
    assert (first["kind"], first["step"]) == ("finding", 3)
    assert list_runs(tmp_path)[0].findings == 1


def test_the_configuration_is_kept_as_json_can_say_it(tmp_path: Path) -> None:
    config = {
        "lr": 0.1,
        "betas": (0.9, 0.99),
        "clip": np.inf,
        "path": Path("data"),
        "width": np.int64(7),
        "deep": {3: 1},
    }
    sonde.record(tmp_path, name="first try", config=config).close()
    text = (tmp_path / RUN).read_text()
    json.loads(text, parse_constant=lambda name: pytest.fail(name))
    read = sonde.load(tmp_path)
    assert read.name == "first try"
    assert read.info["config"] == {
        "lr": 0.1,
        "betas": [0.9, 0.99],
        "clip": "Infinity",
        "path": "data",
        "width": 7,
        "deep": {"3": 1},
    }


def test_the_state_shows_the_newest_loss_even_if_it_came_late(tmp_path: Path) -> None:
    with sonde.Writer(tmp_path, flush_s=1e6) as run:
        run.log({"lr": 0.1}, step=0)
        run.log({"lr": 0.1, "loss": 3.0}, step=1)
        run.log({"lr": 0.1}, step=2)
        assert run.flush()
        assert list_runs(tmp_path)[0].steps == 2
        run.log({"loss": 2.0}, step=3)
        assert run.flush()
        assert list_runs(tmp_path)[0].loss == 2.0
        run.log({"loss": np.nan}, step=4)
        run.append(Frame(LAYERS, 900, 0.0, np.ones(2, np.float32)))
    summary = list_runs(tmp_path)[0]
    assert summary.loss is not None
    assert np.isnan(summary.loss)
    assert summary.steps == 4
    json.loads((tmp_path / STATE).read_text(), parse_constant=lambda name: pytest.fail(name))


def test_a_loss_that_is_no_number_yet_is_none(tmp_path: Path) -> None:
    with sonde.record(tmp_path) as run:
        run.append(Frame(Columns("step", ("loss",)), 0, 0.0, np.array([MISSING])))
    assert list_runs(tmp_path)[0].loss is None


# Dropping.


def test_without_room_layers_are_dropped_and_the_loss_is_not(tmp_path: Path) -> None:
    with sonde.Writer(tmp_path, room_bytes=1) as run:
        for step in range(3000):
            run.log({"loss": float(step)}, step=step)
            run.append(Frame(LAYERS, step, 0.0, np.ones(2, np.float32)))
            if step % 3 == 0:
                run.append(Frame(SHAPES, step, 0.0, np.ones(4, np.float32)))
    read = sonde.load(tmp_path)
    assert read.series("loss").step.tolist() == list(range(3000))
    assert read.state.dropped == {"layers": 3000, "shapes": 1000}
    assert len(read.series("norm@a").step) == 0


def test_distributions_are_dropped_while_there_is_room_for_layers(tmp_path: Path) -> None:
    columns = Columns("layers", tuple(f"norm@{i}" for i in range(400)), Detail.LAYER)  # 1,620 bytes a row
    shapes = Columns("shapes", ("shape@a",), Detail.DISTRIBUTION, bins=400)
    with sonde.Writer(tmp_path, flush_s=1e6, room_bytes=2_000) as run:
        run.append(Frame(shapes, 0, 0.0, np.ones(400, np.float32)))
        run.append(Frame(columns, 0, 0.0, np.ones(400, np.float32)))
    read = sonde.load(tmp_path)
    assert read.state.dropped == {"shapes": 1}
    assert len(read.series("norm@7").step) == 1


def test_nothing_is_dropped_while_the_disk_keeps_up(tmp_path: Path) -> None:
    with sonde.Writer(tmp_path, room_bytes=1 << 20) as run:
        for step in range(2000):
            run.append(Frame(LAYERS, step, 0.0, np.ones(2, np.float32)))
            if step % 100 == 0:
                assert run.flush()
    read = sonde.load(tmp_path)
    assert read.state.dropped == {}
    assert len(read.series("norm@a").step) == 2000


# Going back.


def test_going_back_twice_without_a_row_between_goes_back_to_the_earlier_step(tmp_path: Path) -> None:
    with sonde.record(tmp_path) as run:
        for step in range(10):
            run.log({"loss": 1.0}, step=step)
        run.branch(8)
        run.branch(4)
        run.branch(6)  # nothing is there any more
    read = sonde.load(tmp_path)
    assert [branch.fork_step for branch in read.branches] == [0, 8, 4]
    assert read.series("loss").step.tolist() == [0, 1, 2, 3]


def test_a_resumed_run_that_announces_the_step_behind_its_last_does_not_go_back(tmp_path: Path) -> None:
    for first in (0, 10):
        with sonde.record(tmp_path) as run:
            run.branch(first)
            for step in range(first, first + 10):
                run.log({"loss": 1.0}, step=step)
    assert len(sonde.load(tmp_path).branches) == 1


def test_files_that_are_no_tables_do_not_keep_a_run_from_being_continued(tmp_path: Path) -> None:
    with sonde.record(tmp_path) as run:
        run.log({"loss": 1.0}, step=0)
    (tmp_path / "tables" / ".DS_Store").write_bytes(b"\0")
    (tmp_path / "tables" / "Lost and Found").mkdir()
    with sonde.record(tmp_path) as run:
        run.log({"loss": 2.0}, step=1)
    assert sonde.load(tmp_path).series("loss").value.tolist() == [1, 2]
    assert sonde.load(tmp_path).tags() == ["loss"]


# Anything, in any order.

ROW = st.tuples(
    st.just("row"),
    st.sampled_from(["step", "layers"]),
    st.permutations(["a", "b", "c", "d@x"]).flatmap(lambda tags: st.integers(1, 4).map(lambda n: tuple(tags[:n]))),
    st.integers(-4, 3),
)
OTHER = st.tuples(st.sampled_from(["flush", "event", "branch", "reopen"]), st.integers(0, 8))


@settings(deadline=None, max_examples=50)
@given(
    actions=st.lists(st.one_of(ROW, ROW, ROW, OTHER), max_size=40),
    segment_rows=st.sampled_from([1, 1000]),
    seed=st.integers(0, 100),
)
def test_any_sequence_reads_as_the_run_in_memory_does(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[Any, ...]], segment_rows: int, seed: int
) -> None:
    path = tmp_path_factory.mktemp("writer") / "run"
    rng = np.random.default_rng(seed)
    expected = MemoryRun()
    run = sonde.Writer(path, segment_rows=segment_rows)
    step = highest = 0
    for number, action in enumerate(actions):
        match action:
            case ("row", table, tags, change):
                step = max(0, step + change)
                highest = max(highest, step)
                values = rng.normal(size=len(tags)).astype(np.float32)
                values[rng.random(len(tags)) < 0.2] = MISSING
                values[rng.random(len(tags)) < 0.2] = np.nan
                columns = Columns(table, tuple(f"{table}/{tag}" for tag in tags))
                for recorder in (run, expected):
                    recorder.append(Frame(columns, step, float(number), values))
            case ("event", _):
                for recorder in (run, expected):
                    recorder.event("note", step=step, data={"number": number})
            case ("branch", back):
                known = sorted({point.step for point in expected.last().values()})
                step = max(0, known[-1] - back) if known else step
                if any(len(expected.series(tag, start=step).step) for tag in expected.tags()):
                    for recorder in (run, expected):
                        recorder.branch(step)
            case ("flush", _):
                assert run.flush()
            case ("reopen", _):
                run.close()
                run = sonde.Writer(path, segment_rows=segment_rows)
                step = highest = highest + 1  # a session whose rows repeat the last step went back
                for table in ("step", "layers"):
                    columns = Columns(table, (f"{table}/a",))
                    for recorder in (run, expected):
                        recorder.append(Frame(columns, step, float(number), np.zeros(1, np.float32)))
    assert run.flush()
    assert_records_agree(sonde.load(path), expected)
    run.close()
    read = sonde.load(path)
    assert_records_agree(read, expected)
    assert read.problems == []


def test_tables_of_thousands_of_tags_read_back(tmp_path: Path) -> None:
    tags = tuple(f"grad/norm@blocks.{i}.weight" for i in range(5000))
    columns = Columns("layers", tags, Detail.LAYER)
    values = np.arange(5000, dtype=np.float32)
    with sonde.record(tmp_path) as run:
        for step in range(4):
            run.append(Frame(columns, step, 0.0, values + step))
        run.flush()
        live = sonde.load(tmp_path)
        assert live.series("grad/norm@blocks.4999.weight").value.tolist() == [4999, 5000, 5001, 5002]
        assert live.last()["grad/norm@blocks.1.weight"].value == 4.0
    read = sonde.load(tmp_path)
    for i in (0, 499, 500, 999, 1000, 2345, 4999):
        assert read.series(tags[i]).value.tolist() == [i, i + 1, i + 2, i + 3]
        assert read.window(tags[i], points=1).mean.tolist() == [i + 1.5]
    last = read.last()
    assert [last[tag].value for tag in tags] == (values + 3).tolist()
    assert sorted(read.tags("*.1?.weight")) == sorted(tags[10:20])


def test_recording_from_several_threads_loses_no_row(tmp_path: Path) -> None:
    with sonde.Writer(tmp_path, flush_s=0.001, segment_rows=50) as run:

        def work(name: str) -> None:
            columns = Columns(name, (f"{name}/x",))
            for step in range(1500):
                run.append(Frame(columns, step, 0.0, np.array([step], np.float32)))
                if step % 500 == 0:
                    run.event(name, step=step)

        threads = [threading.Thread(target=work, args=(name,)) for name in ("one", "two", "three")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert run.flush()
    read = sonde.load(tmp_path)
    for name in ("one", "two", "three"):
        assert read.series(f"{name}/x").value.tolist() == list(range(1500))
        assert [event.step for event in read.events(name)] == [0, 500, 1000]


@pytest.mark.parametrize("can_start", [True, False])
def test_all_tables_are_folded_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_start: bool) -> None:
    """Side by side; an ending process may start no thread any more, and folds them one after another."""
    run = sonde.record(tmp_path / "run")
    for step in range(3):
        for table in range(30):
            run.log({"loss": step + table}, step=step, table=f"table-{table}")
    if not can_start:
        monkeypatch.setattr("threading.Thread.start", _refuse)
    run.close()
    monkeypatch.undo()
    folders = sorted((tmp_path / "run" / "tables").iterdir())
    assert len(folders) == 30
    assert all(len(list(folder.glob("b0/seg-*/*.parquet"))) == 1 for folder in folders)
    assert not list((tmp_path / "run").rglob("*.log"))


def _refuse(thread: object) -> None:
    raise RuntimeError("can't create new thread at interpreter shutdown")
