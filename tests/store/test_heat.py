"""Several series as one picture, newest values and times, each against what the whole series say."""

import itertools
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sonde
from sonde.core.errors import TagNotFound
from sonde.core.frames import MISSING, Columns, Frame
from sonde.store.reader import Run
from sonde.store.writer import Writer

NAMES = [f"grad/rms@layer.{i}" for i in range(5)]
LATE = "act/rms@late"


def record(path: Path, num_steps: int, *, segment_rows: int = 300, seed: int = 0) -> Run:
    """Five layers with holes, NaN and infinities, and one in a table of its own that begins late."""
    rng = np.random.default_rng(seed)
    columns, late = Columns("gradients", tuple(NAMES)), Columns("activations", (LATE,))
    with Writer(path, segment_rows=segment_rows) as writer:
        for step in range(num_steps):
            row = rng.normal(size=5).astype(np.float32)
            row[rng.random(5) < 0.2] = MISSING
            row[rng.random(5) < 0.002] = np.nan
            row[rng.random(5) < 0.002] = -np.inf
            writer.append(Frame(columns, step, 1e9 + step / 3, row))
            if step > num_steps // 2 and step % 7 == 0:
                writer.append(Frame(late, step, 1e9 + step / 3, np.array([step], np.float32)))
            if step % 250 == 249:
                writer.flush()
    return sonde.load(path)


def slowly(run: Run, tag: str, first: int, last: int) -> float:
    """The cell of a series over some steps, from every point of it."""
    value = run.series(tag, start=first, end=last).value.astype(np.float64)
    if not len(value):
        return np.nan
    return np.inf if not np.isfinite(value).all() else float(value.mean())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """4,000 steps in segments and a log."""
    return record(tmp_path_factory.mktemp("heat") / "run", 4000)


@pytest.mark.parametrize(("start", "end"), [(None, None), (100, 180), (64, 3000), (3990, None), (-9, 70)])
def test_every_cell_is_the_mean_of_its_steps(run: Run, start: int | None, end: int | None) -> None:
    tags = [NAMES[3], *NAMES[:3], LATE]
    for columns in (70, 80, 1000):  # of fewer than 64 rows each, which are read one by one
        picture = run.heat([*tags, "not/there@x"], start=start, end=end, columns=columns)
        assert picture.value.shape == (len(tags) + 1, len(picture.step))
        assert 1 <= len(picture.step) <= columns
        assert np.isnan(picture.value[-1]).all()
        edges = [*picture.step.tolist(), (3999 if end is None else end) + 1]
        for row, tag in enumerate(tags):
            for column, (first, behind) in enumerate(itertools.pairwise(edges)):
                expected = slowly(run, tag, first, behind - 1)
                np.testing.assert_allclose(picture.value[row, column], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("start", "end"), [(None, None), (1000, 19_000), (5, 9_999), (10_100, None)])
@pytest.mark.parametrize("columns", [1, 3, 10])
def test_wide_cells_are_of_whole_buckets(tmp_path: Path, start: int | None, end: int | None, columns: int) -> None:
    with Writer(tmp_path / "run") as writer:
        for step in range(20_000):
            writer.log({"ramp": float(step), "fall": float(-step)}, step=step)
    picture = sonde.load(tmp_path / "run").heat(["fall", "ramp"], start=start, end=end, columns=columns)
    first, behind = start or 0, (19_999 if end is None else end) + 1
    assert len(picture.step) == columns
    slack = max(64, (behind - first) // columns // 2)  # a bucket belongs to the column in which it begins
    assert abs(int(picture.step[0]) - first) <= slack
    edges = np.append(picture.step, behind)
    for column, (low, high) in enumerate(itertools.pairwise(edges.tolist())):
        assert abs(picture.value[1, column] - (low + high - 1) / 2) <= slack
    np.testing.assert_array_equal(picture.value[0], -picture.value[1])


def test_a_picture_of_the_whole_hides_no_value_that_is_not_finite(run: Run) -> None:
    picture = run.heat(NAMES, columns=10)
    for row, tag in enumerate(NAMES):
        lost = run.series(tag)
        steps = lost.step[~np.isfinite(lost.value)]
        assert np.isinf(picture.value[row]).any() == bool(len(steps))
        cells = np.searchsorted(picture.step, steps, side="right") - 1
        # The bucket of a step may begin in the column before.
        assert all(np.isinf(picture.value[row, max(0, cell - 1) : cell + 1]).any() for cell in cells)


@settings(max_examples=25)
@given(num_steps=st.integers(1, 400), columns=st.integers(1, 60), seed=st.integers(0, 5), data=st.data())
def test_short_runs_in_pieces_of_any_size(
    tmp_path_factory: pytest.TempPathFactory, num_steps: int, columns: int, seed: int, data: st.DataObject
) -> None:
    run = record(
        tmp_path_factory.mktemp("short") / "run", num_steps, segment_rows=data.draw(st.integers(1, 90)), seed=seed
    )
    start = data.draw(st.none() | st.integers(-5, num_steps))
    end = data.draw(st.none() | st.integers(0, num_steps + 5))
    picture = run.heat(NAMES, start=start, end=end, columns=columns)
    if num_steps // columns >= 64:
        return
    edges = [*picture.step.tolist(), num_steps if end is None else end + 1]
    for row, tag in enumerate(NAMES):
        for column, (first, behind) in enumerate(itertools.pairwise(edges)):
            np.testing.assert_allclose(
                picture.value[row, column], slowly(run, tag, first, behind - 1), rtol=1e-4, atol=1e-6
            )


def test_a_pyramid_that_is_torn_or_missing_costs_time_and_nothing_else(run: Run, tmp_path: Path) -> None:
    shutil.copytree(run.path, tmp_path / "torn")
    pyramids = sorted((tmp_path / "torn").rglob("*.pyramid"))
    pyramids[0].write_bytes(pyramids[0].read_bytes()[:-1])
    for pyramid in pyramids[1:]:
        pyramid.unlink()
    torn = sonde.load(tmp_path / "torn")
    picture = torn.heat(NAMES, columns=1000)
    np.testing.assert_array_equal(picture.value, run.heat(NAMES, columns=1000).value)
    whole = torn.heat(NAMES, columns=5)
    assert len(whole.step) == 5
    for row, tag in enumerate(NAMES):
        for column, (first, behind) in enumerate(itertools.pairwise([*whole.step.tolist(), 4000])):
            np.testing.assert_allclose(
                whole.value[row, column], slowly(torn, tag, first, behind - 1), rtol=1e-3, atol=1e-4
            )
    assert torn.latest(NAMES) == run.latest(NAMES)
    assert torn.problems == []


def test_a_picture_needs_a_column(run: Run) -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        run.heat(NAMES, columns=0)


def test_of_nothing_there_is_an_empty_picture(run: Run) -> None:
    assert run.heat([]).value.shape == (0, 0)
    assert run.heat(NAMES, start=9999).value.shape == (5, 0)


def test_the_newest_points_are_those_of_all_tags(run: Run) -> None:
    newest = run.last()
    assert run.latest([*NAMES, LATE, "not/there"]) == {tag: newest[tag] for tag in (*NAMES, LATE)}


def test_the_newest_point_of_a_tag_may_be_long_ago(tmp_path: Path) -> None:
    with Writer(tmp_path / "run", segment_rows=50) as writer:
        writer.log({"loss": 1.0, "rare": 7.0}, step=3, time=5.0)
        for step in range(4, 400):
            writer.log({"loss": 1.0}, step=step, time=5.0)
            if step % 50 == 0:
                writer.flush()
    run = sonde.load(tmp_path / "run")
    assert run.latest(["rare"]) == {"rare": (3, 7.0, 5.0)}


def test_a_line_that_went_back_has_only_its_own_points(tmp_path: Path) -> None:
    with Writer(tmp_path / "run") as writer:
        for step in range(200):
            writer.log({"loss": 1.0}, step=step, time=float(step))
        writer.branch(100)
        for step in range(100, 120):
            writer.log({"loss": 2.0}, step=step, time=float(1000 + step))
    run = sonde.load(tmp_path / "run")
    assert run.latest(["loss"]) == {"loss": (119, 2.0, 1119.0)}
    assert run.heat(["loss"], columns=1000).value.tolist() == [[1.0] * 100 + [2.0] * 20]
    steps, times = run.clock("loss")
    assert (steps[-1], times[-1]) == (119, 1119.0)
    assert times.tolist() == [float(at if at < 100 else 1000 + at) for at in steps.tolist()]


def test_times_are_those_of_the_rows(run: Run) -> None:
    step, time = run.clock(NAMES[0])
    np.testing.assert_array_equal(time, 1e9 + step / 3)
    assert (step[0], step[-1]) == (0, 3999)
    assert np.diff(step).max() <= 64
    with pytest.raises(TagNotFound):
        run.clock("not/there")
