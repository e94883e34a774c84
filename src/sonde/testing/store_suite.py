"""The tests that every store has to pass."""

import json
from collections.abc import Iterator
from typing import Protocol

import numpy as np
import pytest

from sonde.core.errors import TagNotFound
from sonde.core.frames import MISSING, MISSING_BITS, Columns, Detail, Float32, Frame, is_missing
from sonde.core.records import Branch, Point, Record, Recorder
from sonde.testing.agreement import assert_records_agree, assert_series_agree, assert_window_sums_up, bits
from sonde.testing.memory import MemoryRun

LOSS = Columns("step", ("loss",))


class Store(Protocol):
    """One run, somewhere: what a suite writes into and reads back."""

    def open_recorder(self) -> Recorder:
        """Start recording; called once a test."""

    def open_record(self) -> Record:
        """Read what was recorded so far; called any number of times, after `open_recorder`."""


def odd_floats() -> Float32:
    """Numbers that a careless copy changes: both zeros, the smallest and largest, infinities, NaNs, random bits."""
    info = np.finfo(np.float32)
    named = np.array(
        [0.0, -0.0, info.smallest_subnormal, -info.smallest_subnormal, info.tiny, info.max, info.min, np.inf, -np.inf],
        np.float32,
    )
    nans = np.array([0x7FC00000, 0xFFC00000, 0x7FC00001, 0x7FFFFFFF], np.uint32)  # quiet, of several payloads
    some = np.random.default_rng(0).integers(0, 1 << 32, 200, np.uint32)
    some = some[(some != MISSING_BITS) & np.isfinite(some.view(np.float32))]
    return np.concatenate([named, nans.view(np.float32), some.view(np.float32)])


def record_losses(recorder: Recorder, values: Float32, *, first: int = 0, stride: int = 1) -> None:
    """A row a value, in the table `step`."""
    for i, value in enumerate(values):
        step = first + i * stride
        recorder.append(Frame(LOSS, step, 1e9 + step / 8, np.array([value], np.float32)))


def row(columns: Columns, step: int, *values: float) -> Frame:
    """A frame."""
    return Frame(columns, step, float(step), np.array(values, np.float32))


class StoreSuite:
    """Inherit it, override `store`, and pytest runs every test below against your store.

    `pytest.register_assert_rewrite("sonde.testing")` before the import makes failures tell more.

    Example:
        >>> class TestMyStore(StoreSuite):
        ...     @pytest.fixture
        ...     def store(self, tmp_path):
        ...         return MyStore(tmp_path)  # has open_recorder() and open_record()
    """

    @pytest.fixture
    def store(self) -> Store:
        """A store that holds nothing yet."""
        raise NotImplementedError("override the fixture `store` of StoreSuite with one that returns your store.")

    @pytest.fixture
    def recorder(self, store: Store) -> Iterator[Recorder]:
        """The store's recorder, closed when the test ends."""
        recorder = store.open_recorder()
        yield recorder
        recorder.close()

    # Before anything is there.

    def test_a_run_without_rows_reads_as_empty(self, store: Store, recorder: Recorder) -> None:
        assert recorder.flush()
        record = store.open_record()
        assert record.tags() == []
        assert record.last() == {}
        assert record.events() == []
        assert list(record.branches) == [Branch(0, None, 0)]

    def test_an_unknown_tag_raises_tag_not_found(self, store: Store, recorder: Recorder) -> None:
        with pytest.raises(TagNotFound, match="loss"):
            store.open_record().series("loss")
        record_losses(recorder, np.ones(3, np.float32))
        recorder.flush()
        for ask in (store.open_record().series, store.open_record().window):
            with pytest.raises(TagNotFound, match="los"):
                ask("los")

    def test_a_frame_without_tags_leaves_nothing(self, store: Store, recorder: Recorder) -> None:
        for step in (5, 4, 6):
            recorder.append(row(Columns("empty", ()), step))
            recorder.append(row(Columns("step", ()), step))
        record_losses(recorder, np.ones(3, np.float32), first=2)
        assert recorder.flush()
        record = store.open_record()
        assert record.tags() == ["loss"]
        assert record.series("loss").step.tolist() == [2, 3, 4]
        assert len(record.branches) == 1

    # Series.

    def test_a_series_reads_back_bit_for_bit(self, store: Store, recorder: Recorder) -> None:
        values = odd_floats()
        record_losses(recorder, values, first=3, stride=5)
        assert recorder.flush()
        series = store.open_record().series("loss")
        np.testing.assert_array_equal(bits(series.value), bits(values))
        np.testing.assert_array_equal(series.step, 3 + 5 * np.arange(len(values)))
        np.testing.assert_array_equal(series.time, 1e9 + series.step / 8)
        assert [str(part.dtype) for part in series] == ["int64", "float32", "float64"]

    def test_what_the_caller_does_to_its_array_later_changes_nothing(self, store: Store, recorder: Recorder) -> None:
        values = np.zeros(1, np.float32)
        for step in range(4):
            values[0] = step
            recorder.append(Frame(LOSS, step, 0.0, values))
        values[0] = -1
        recorder.flush()
        assert store.open_record().series("loss").value.tolist() == [0, 1, 2, 3]

    def test_what_was_not_measured_is_left_out_and_nan_is_not(self, store: Store, recorder: Recorder) -> None:
        columns = Columns("step", ("loss", "lr"))
        for step in range(12):
            loss = MISSING if step % 3 == 0 else np.float32(np.nan)
            recorder.append(Frame(columns, step, 0.0, np.array([loss, 0.5], np.float32)))
        recorder.flush()
        record = store.open_record()
        series = record.series("loss")
        assert series.step.tolist() == [1, 2, 4, 5, 7, 8, 10, 11]
        assert np.isnan(series.value).all()
        assert not is_missing(series.value).any()
        assert len(record.series("lr").step) == 12

    def test_a_tag_that_comes_later_has_no_points_before(self, store: Store, recorder: Recorder) -> None:
        both = Columns("step", ("loss", "late"))
        record_losses(recorder, np.arange(30, dtype=np.float32))
        for step in range(30, 50):
            recorder.append(row(both, step, step, -step))
        recorder.flush()
        record = store.open_record()
        assert record.tags() == ["late", "loss"]
        assert record.series("late").step.tolist() == list(range(30, 50))
        assert record.series("late").value.tolist() == [-step for step in range(30, 50)]
        assert record.series("loss").value.tolist() == list(range(50))

    def test_rows_may_hold_some_of_the_tags_in_any_order(self, store: Store, recorder: Recorder) -> None:
        orders = [("a", "b", "c"), ("c", "a"), ("b",), ("d", "c", "b", "a"), ("a", "b", "c")]
        for step in range(50):
            tags = orders[step % len(orders)]
            values = [step + "abcd".index(tag) / 8 for tag in tags]
            recorder.append(row(Columns("step", tags), step, *values))
        recorder.flush()
        record = store.open_record()
        for place, tag in enumerate("abcd"):
            steps = [step for step in range(50) if tag in orders[step % len(orders)]]
            series = record.series(tag)
            assert series.step.tolist() == steps
            assert series.value.tolist() == [step + place / 8 for step in steps]

    def test_tables_keep_their_own_steps(self, store: Store, recorder: Recorder) -> None:
        layers = Columns("layers", ("grad/norm@a", "grad/norm@b"), Detail.LAYER)
        for step in range(60):
            recorder.append(row(LOSS, step, step))
            if step % 10 == 0:
                recorder.append(row(layers, step, step, -step))
        recorder.flush()
        record = store.open_record()
        assert record.tags() == ["grad/norm@a", "grad/norm@b", "loss"]
        assert record.series("loss").step.tolist() == list(range(60))
        assert record.series("grad/norm@b").value.tolist() == [0, -10, -20, -30, -40, -50]

    def test_a_late_row_of_one_table_does_not_send_another_back(self, store: Store, recorder: Recorder) -> None:
        recorder.append(row(LOSS, 10, 1.0))
        recorder.append(row(Columns("layers", ("norm",)), 3, 2.0))
        recorder.flush()
        record = store.open_record()
        assert len(record.branches) == 1
        assert record.series("norm").step.tolist() == [3]

    def test_a_step_recorded_twice_has_both_points_in_order(self, store: Store, recorder: Recorder) -> None:
        for step in (0, 1, 1, 1, 2, 2, 3):
            recorder.append(row(LOSS, step, step))
        recorder.flush()
        record = store.open_record()
        assert record.series("loss").step.tolist() == [0, 1, 1, 1, 2, 2, 3]
        assert len(record.branches) == 1

    def test_start_and_end_are_included(self, store: Store, recorder: Recorder) -> None:
        record_losses(recorder, np.arange(100, dtype=np.float32), stride=2)
        recorder.flush()
        record = store.open_record()
        assert record.series("loss", end=40).step.tolist() == list(range(0, 41, 2))
        assert record.series("loss", start=60).step.tolist() == list(range(60, 200, 2))
        assert record.series("loss", start=35, end=41).value.tolist() == [18, 19, 20]
        assert record.series("loss", start=36, end=36).time.tolist() == [1e9 + 36 / 8]
        assert record.series("loss", start=-5, end=0).step.tolist() == [0]
        assert record.series("loss", start=198, end=500).step.tolist() == [198]
        for start, end in ((199, None), (None, -1), (50, 40), (41, 41)):
            assert len(record.series("loss", start=start, end=end).step) == 0

    # Branches.

    def test_a_lower_step_starts_a_branch_and_the_old_line_stays(self, store: Store, recorder: Recorder) -> None:
        record_losses(recorder, np.full(100, 1, np.float32))
        record_losses(recorder, np.full(20, 2, np.float32), first=60)
        recorder.flush()
        record = store.open_record()
        assert list(record.branches) == [Branch(0, None, 0), Branch(1, 0, 60)]
        assert record.series("loss").step.tolist() == list(range(80))
        assert record.series("loss").value.tolist() == [1] * 60 + [2] * 20
        assert record.series("loss", branch=1).value.tolist() == [1] * 60 + [2] * 20
        assert record.series("loss", branch=0).value.tolist() == [1] * 100
        assert record.series("loss", start=58, end=61).value.tolist() == [1, 1, 2, 2]
        with pytest.raises(ValueError, match="branch"):
            record.series("loss", branch=2)

    def test_a_branch_takes_every_table_with_it(self, store: Store, recorder: Recorder) -> None:
        layers = Columns("layers", ("norm",))
        for value, steps in ((1, range(50)), (2, range(31, 45))):
            for step in steps:
                recorder.append(row(LOSS, step, value))
                if step % 10 == 0:
                    recorder.append(row(layers, step, value))
        recorder.flush()
        record = store.open_record()
        assert record.series("norm").step.tolist() == [0, 10, 20, 30, 40]
        assert record.series("norm").value.tolist() == [1, 1, 1, 1, 2]
        assert len(record.branches) == 2

    def test_steps_never_fall_along_a_line(self, store: Store, recorder: Recorder) -> None:
        layers = Columns("layers", ("norm",))
        recorder.append(row(layers, 58, 1))
        recorder.append(row(LOSS, 70, 1))
        recorder.append(row(LOSS, 60, 2))  # goes back
        recorder.append(row(layers, 55, 2))  # goes back further
        recorder.append(row(Columns("new", ("x",)), 50, 3))  # and further, in a table that had no row yet
        recorder.flush()
        record = store.open_record()
        assert [branch.fork_step for branch in record.branches] == [0, 60, 55, 50]
        assert record.series("norm").step.tolist() == []
        assert record.series("norm", branch=2).step.tolist() == [55]
        assert record.series("norm", branch=1).step.tolist() == [58]
        assert record.series("x").step.tolist() == [50]

    def test_an_announced_branch_hides_what_is_behind_it(self, store: Store, recorder: Recorder) -> None:
        recorder.branch(0)  # nothing to go back from
        record_losses(recorder, np.full(10, 1, np.float32))
        recorder.branch(10)  # nor from here
        recorder.branch(4)
        recorder.branch(4)
        recorder.flush()
        record = store.open_record()
        assert [branch.fork_step for branch in record.branches] == [0, 4]
        assert record.series("loss").step.tolist() == [0, 1, 2, 3]
        assert record.last()["loss"].step == 3
        recorder.append(row(LOSS, 4, 2))
        recorder.flush()
        assert store.open_record().series("loss").value.tolist() == [1, 1, 1, 1, 2]

    # Newest points and pictures.

    def test_last_is_the_newest_measured_point_of_every_tag(self, store: Store, recorder: Recorder) -> None:
        columns = Columns("step", ("loss", "lr", "never"))
        for step in range(40):
            lr = np.float32(0.25) if step < 25 else MISSING
            loss = np.nan if step == 39 else 1.0
            recorder.append(Frame(columns, step, step / 4, np.array([loss, lr, MISSING], np.float32)))
        recorder.append(row(Columns("eval", ("eval/loss",)), 12, 7.0))
        recorder.flush()
        last = store.open_record().last()
        assert last.keys() == {"loss", "lr", "eval/loss"}
        np.testing.assert_equal(last["loss"], Point(39, np.nan, 39 / 4))
        assert last["lr"] == Point(24, 0.25, 6.0)
        assert last["eval/loss"] == Point(12, 7.0, 12.0)

    def test_last_follows_the_current_line(self, store: Store, recorder: Recorder) -> None:
        both = Columns("step", ("loss", "old"))
        for step in range(50):
            recorder.append(row(both, step, 1, step))
        record_losses(recorder, np.full(5, 2, np.float32), first=30)
        recorder.flush()
        last = store.open_record().last()
        assert (last["loss"].step, last["loss"].value) == (34, 2)
        assert (last["old"].step, last["old"].value) == (29, 29)

    def test_a_window_sums_up_every_value_once(self, store: Store, recorder: Recorder) -> None:
        rng = np.random.default_rng(0)
        values = rng.normal(size=1500).astype(np.float32) * np.float32(10) ** rng.integers(-30, 30, 1500)
        values[rng.integers(0, 1500, 100)] = np.nan
        values[rng.integers(0, 1500, 20)] = np.inf
        values[700:900] = -np.inf
        values[1000:1100] = np.finfo(np.float32).max
        record_losses(recorder, values)
        recorder.flush()
        record = store.open_record()
        for points in (1, 2, 3, 10, 99, 1000, 5000):
            window = record.window("loss", points=points)
            assert_window_sums_up(window, record.series("loss"), points)
            assert len(window.step) >= min(points, 1500) / 2, "a picture shows as much as it has room for"
            for start, end in ((None, 63), (64, None), (1, 1498), (333, 777), (1499, 1499), (701, 702), (9, 8)):
                part = record.window("loss", start, end, points)
                assert_window_sums_up(part, record.series("loss", start=start, end=end), points)

    def test_a_window_counts_no_missing_value(self, store: Store, recorder: Recorder) -> None:
        columns = Columns("step", ("loss", "rare"))
        for step in range(700):
            rare = np.float32(step) if step % 90 == 7 else MISSING
            recorder.append(Frame(columns, step, 0.0, np.array([1.0, rare], np.float32)))
        recorder.flush()
        record = store.open_record()
        part = record.series("rare", start=100, end=620)
        for points in (1, 4, 50):
            assert_window_sums_up(record.window("rare", points=points), record.series("rare"), points)
            assert_window_sums_up(record.window("rare", 100, 620, points), part, points)

    def test_a_window_leaves_out_what_another_branch_measured(self, store: Store, recorder: Recorder) -> None:
        record_losses(recorder, np.full(1000, np.inf, np.float32))
        record_losses(recorder, np.full(500, 2, np.float32), first=600)
        record_losses(recorder, np.full(300, 3, np.float32), first=650)
        recorder.flush()
        record = store.open_record()
        for points in (1, 5, 400):
            assert_window_sums_up(record.window("loss", points=points), record.series("loss"), points)
            part = record.series("loss", start=500, end=700)
            assert_window_sums_up(record.window("loss", 500, 700, points), part, points)

    def test_a_window_without_points_is_refused(self, store: Store, recorder: Recorder) -> None:
        record_losses(recorder, np.ones(3, np.float32))
        recorder.flush()
        with pytest.raises(ValueError, match=r"points=\.\.\.\).* at least 1, got 0"):
            store.open_record().window("loss", points=0)

    # Names.

    def test_tags_match_shell_style_patterns(self, store: Store, recorder: Recorder) -> None:
        tags = ("loss", "loss_scale", "grad/norm@blocks.0.weight", "grad/norm@blocks.10.bias", "grad/std@w[0]", "Loss")
        recorder.append(row(Columns("step", tags), 0, *range(6)))
        recorder.flush()
        record = store.open_record()
        assert record.tags() == sorted(tags)
        assert record.tags("loss") == ["loss"]
        assert record.tags("grad/norm@*") == ["grad/norm@blocks.0.weight", "grad/norm@blocks.10.bias"]
        assert record.tags("*.?.*") == ["grad/norm@blocks.0.weight"]
        assert record.tags("*w[0]") == ["grad/std@w[0]"]
        assert record.tags("nothing*") == []

    def test_tags_that_resemble_each_other_are_kept_apart(self, store: Store, recorder: Recorder) -> None:
        tags = ("a", "aa", "a@a", 'a@"a"', "a@a\\", 'a@\\"a', "a@ä", "a@a.b", "a@a,b", "a@'a'", "step", "time", "first")
        for step in range(20):
            recorder.append(row(Columns("step", tags), step, *(step + i / 16 for i in range(len(tags)))))
        recorder.flush()
        record = store.open_record()
        assert record.tags() == sorted(tags)
        for i, tag in enumerate(tags):
            assert record.series(tag).value.tolist() == [step + i / 16 for step in range(20)]

    # Events.

    def test_events_come_back_in_order(self, store: Store, recorder: Recorder) -> None:
        for step in range(20):
            recorder.event("note" if step % 2 else "finding", step=step, data={"text": f"line\n{step} ü"})
        recorder.event("action")
        recorder.flush()
        record = store.open_record()
        assert [event.step for event in record.events()] == [*range(20), None]
        assert [event.step for event in record.events("finding")] == list(range(0, 20, 2))
        assert record.events("note")[0].data == {"text": "line\n1 ü"}
        assert record.events("action")[0].data == {}
        assert record.events("nothing") == []
        times = [event.time for event in record.events()]
        assert times == sorted(times)
        assert times[0] > 1.6e9

    def test_events_hold_what_strict_json_can_say(self, store: Store, recorder: Recorder) -> None:
        data = {"nan": np.nan, "list": [np.float32(np.inf), -np.inf, 0.5], "deep": {"count": np.int64(3)}, "path": LOSS}
        recorder.event("note", data=data)
        recorder.flush()
        said = store.open_record().events()[0].data
        assert said["nan"] == "NaN"
        assert said["list"] == ["Infinity", "-Infinity", 0.5]
        assert said["deep"] == {"count": 3}
        assert isinstance(said["path"], str)
        json.dumps(said, allow_nan=False)

    # Following.

    def test_follow_gives_every_row_of_an_ended_run(self, store: Store, recorder: Recorder) -> None:
        expected = MemoryRun()
        layers = Columns("layers", ("norm@a", "norm@b"), Detail.LAYER)
        shapes = Columns("shapes", ("shape@a", "shape@b"), Detail.DISTRIBUTION, bins=3)
        for step in range(100):
            frames = [row(LOSS if step < 50 else Columns("step", ("lr", "loss")), step, *range(1 + (step >= 50)))]
            if step % 7 == 0:
                frames += [row(layers, step, float(MISSING), step), row(shapes, step, *range(6))]
            for frame in frames:
                recorder.append(frame)
                expected.append(frame)
        recorder.close()
        expected.close()
        assert _measured(store.open_record()) == _measured(expected)

    def test_follow_gives_rows_as_they_come_until_the_run_ends(self, store: Store, recorder: Recorder) -> None:
        record_losses(recorder, np.arange(3, dtype=np.float32))
        recorder.flush()
        record = store.open_record()
        frames = record.follow(poll_s=0.001)
        assert [next(frames).step for _ in range(3)] == [0, 1, 2]
        record_losses(recorder, np.arange(2, dtype=np.float32), first=3)
        recorder.flush()
        assert [next(frames).step for _ in range(2)] == [3, 4]
        recorder.append(row(Columns("step", ("loss", "new")), 5, 1, 2))
        recorder.flush()
        frame = next(frames)
        assert dict(zip(frame.columns.tags, frame.values.tolist(), strict=True)) == {"loss": 1, "new": 2}
        recorder.close()
        assert list(frames) == []

    # All at once.

    @pytest.mark.parametrize("seed", range(3))
    def test_a_random_run_reads_as_the_one_in_memory_does(self, store: Store, recorder: Recorder, seed: int) -> None:
        rng = np.random.default_rng(seed)
        expected = MemoryRun()
        pool = [f"loss@{i}" for i in range(8)]
        layouts = []
        for table in ("step", "layers", "step"):
            tags = tuple(rng.permutation([f"{table}/{name}" for name in pool])[: rng.integers(1, 8)].tolist())
            layouts.append(Columns(table, tags))
        step = 0
        for i in range(400):
            columns = layouts[rng.integers(len(layouts))]
            step = max(0, step + int(rng.integers(0, 3))) if rng.random() > 0.02 else step // 2
            values = rng.normal(size=columns.width).astype(np.float32)
            values[rng.random(columns.width) < 0.2] = MISSING
            values[rng.random(columns.width) < 0.1] = np.nan
            for run in (recorder, expected):
                run.append(Frame(columns, step, float(i), values))
                if i % 50 == 0:
                    run.event("note", step=step, data={"i": i})
        recorder.flush()
        assert_records_agree(store.open_record(), expected)

    def test_closing_twice_and_recording_after_it_do_nothing(self, store: Store, recorder: Recorder) -> None:
        record_losses(recorder, np.ones(3, np.float32))
        recorder.event("note")
        recorder.close()
        recorder.close()
        recorder.append(row(LOSS, 3, 1))
        recorder.event("late")
        record = store.open_record()
        assert record.series("loss").step.tolist() == [0, 1, 2]
        assert [event.kind for event in record.events()] == ["note"]

    def test_records_that_are_open_see_what_comes_later(self, store: Store, recorder: Recorder) -> None:
        record = store.open_record()
        for part in range(3):
            record_losses(recorder, np.full(10, part, np.float32), first=10 * part)
            recorder.append(row(Columns("step", (f"new@{part}",)), 10 * part + 9, part))
            recorder.event("note")
            recorder.flush()
            assert len(record.series("loss").step) == 10 * part + 10
            assert len(record.tags()) == part + 2
            assert record.series(f"new@{part}").value.tolist() == [part]
            assert record.last()["loss"].value == part
            assert len(record.events()) == part + 1
        assert_series_agree(record.series("loss"), store.open_record().series("loss"))


def _measured(record: Record) -> dict[str, list[tuple[int, float, dict[str, list[float]]]]]:
    """What `follow` gives: a table's rows, each with the numbers of the tags that were measured."""
    tables: dict[str, list[tuple[int, float, dict[str, list[float]]]]] = {}
    for frame in record.follow(poll_s=0.001):
        cells = frame.values.reshape(len(frame.columns.tags), frame.columns.bins)
        numbers = {
            tag: cell.tolist()
            for tag, cell in zip(frame.columns.tags, cells, strict=True)
            if not is_missing(cell).any()
        }
        tables.setdefault(frame.columns.table, []).append((frame.step, frame.time, numbers))
    return tables
