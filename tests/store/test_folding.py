"""Logs become segments, segments become few, and nothing is lost or read twice, whenever it stops."""

import itertools
import random
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sonde.core.frames import MISSING, Columns, Detail, Float32, Frame, is_missing
from sonde.store import column_index, layout
from sonde.store.buffers import Table
from sonde.store.folding import FAN_IN, MAX_ROWS, MAX_WAITING, fold_log, merge, merge_due
from sonde.store.row_log import HEADER_BYTES, header, seed
from sonde.store.segments import Segment, read_segment
from sonde.store.table_files import TableFiles
from sonde.store.table_reader import WHOLE, Part, Stretch, TableReader

TAGS = tuple(f"tag@{i}" for i in range(6))


def write_log(branch: Path, number: int, values: Float32, *, first: int, bins: int = 1) -> None:
    """A log of rows (a row a step, from step `first` on)."""
    rows, width = values.shape
    table = Table(Columns("t", TAGS[: width // bins], bins=bins))
    columns = Columns("t", TAGS[: width // bins], bins=bins)
    for i in range(rows):
        table.push(Frame(columns, first + i, (first + i) / 4, values[i]), 0, float("inf"))
    branch.mkdir(parents=True, exist_ok=True)
    with (branch / layout.log_name(number)).open("wb") as file:
        file.write(header(width, number))
        for block in table.take()[1]:
            file.write(block.seal(seed(width, number)))


def some_rows(rows: int, width: int, seed: int = 0) -> Float32:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(rows, width)).astype(np.float32)
    values[rng.random(values.shape) < 0.2] = MISSING
    values[rng.random(values.shape) < 0.1] = np.nan
    return values


def new_table(tmp_path: Path, *, bins: int = 1) -> Path:
    folder = layout.table_folder(tmp_path, "t", bins=bins)
    folder.mkdir(parents=True)
    column_index.append(folder, TAGS, 0, len(TAGS), bins)
    return folder


def read_all(folder: Path, columns: int = len(TAGS)) -> tuple[list[int], Float32]:
    """Steps, and the values, a row a step."""
    reader = TableReader(folder)
    rows = reader.rows(range(columns), WHOLE, None, None)
    assert reader.problems == {}
    values = rows.values.reshape(columns, len(rows.step), reader.bins)
    return rows.step.tolist(), np.ascontiguousarray(values.swapaxes(0, 1)).reshape(len(rows.step), -1)


def same(a: Float32, b: Float32) -> bool:
    return np.array_equal(np.ascontiguousarray(a).view(np.uint32), np.ascontiguousarray(b).view(np.uint32))


# Folding a log.


@pytest.mark.parametrize(("rows", "bins"), [(1, 1), (63, 1), (700, 1), (1, 3), (50, 3)])
def test_a_folded_log_reads_the_same_and_is_gone(tmp_path: Path, rows: int, bins: int) -> None:
    folder = new_table(tmp_path, bins=bins)
    values = some_rows(rows, len(TAGS) * bins)
    if bins > 1:  # of a histogram, all bins or none are measured
        values[is_missing(values)] = 0
        values[::7, :bins] = MISSING
    write_log(folder / "b0", 4, values, first=10, bins=bins)
    before = read_all(folder)
    for _ in fold_log(folder / "b0", 4, TAGS, bins):
        pass
    after = read_all(folder)
    assert [path.name for path in (folder / "b0").iterdir()] == ["seg-00000004-00000004"]
    assert before[0] == after[0] == list(range(10, 10 + rows))
    assert same(before[1], after[1])
    assert same(after[1], values)


def test_a_torn_log_is_folded_up_to_the_tear(tmp_path: Path) -> None:
    folder = new_table(tmp_path)
    values = some_rows(20, 6)
    write_log(folder / "b0", 0, values, first=0)
    path = folder / "b0" / layout.log_name(0)
    path.write_bytes(path.read_bytes()[:-5])
    for _ in fold_log(folder / "b0", 0, TAGS, 1, check_all=True):
        pass
    steps, got = read_all(folder)
    assert steps == list(range(19))
    assert same(got, values[:19])


def test_a_damaged_row_of_another_process_is_left_out(tmp_path: Path) -> None:
    folder = new_table(tmp_path)
    write_log(folder / "b0", 0, some_rows(600, 6), first=0)
    path = folder / "b0" / layout.log_name(0)
    content = bytearray(path.read_bytes())
    content[HEADER_BYTES + 20] ^= 1
    path.write_bytes(content)
    for _ in fold_log(folder / "b0", 0, TAGS, 1, check_all=True):
        pass
    assert read_all(folder)[0] == list(range(1, 600))


@pytest.mark.parametrize("content", [b"", b"SONDE", header(6, 0), header(6, 0) + b"half a row"])
def test_a_log_without_a_whole_row_just_goes(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / layout.log_name(0)
    path.write_bytes(content)
    assert list(fold_log(tmp_path, 0, TAGS, 1)) == []
    assert list(tmp_path.iterdir()) == []


def test_a_log_with_a_damaged_header_is_kept_for_a_closer_look(tmp_path: Path) -> None:
    folder = new_table(tmp_path)
    write_log(folder / "b0", 0, some_rows(20, 6), first=0)
    path = folder / "b0" / layout.log_name(0)
    content = bytearray(path.read_bytes())
    content[9] ^= 1
    path.write_bytes(content)
    assert list(fold_log(folder / "b0", 0, TAGS, 1, check_all=True)) == []
    assert path.read_bytes() == content
    assert len(TableReader(folder).rows([0], WHOLE, None, None).step) == 0


def test_a_log_that_was_folded_but_not_deleted_is_only_deleted(tmp_path: Path) -> None:
    folder = new_table(tmp_path)
    values = some_rows(20, 6)
    write_log(folder / "b0", 0, values, first=0)
    path = folder / "b0" / layout.log_name(0)
    content = path.read_bytes()
    for _ in fold_log(folder / "b0", 0, TAGS, 1):
        pass
    path.write_bytes(content)
    for _ in fold_log(folder / "b0", 0, TAGS, 1):
        pass
    assert not path.exists()
    assert same(read_all(folder)[1], values)


# Merging.


@pytest.mark.parametrize("bins", [1, 3])
def test_merged_segments_of_different_widths_read_the_same(tmp_path: Path, bins: int) -> None:
    folder = new_table(tmp_path, bins=bins)
    branch = folder / "b0"
    step = 0
    for number, (rows, width) in enumerate([(3, 2), (70, 1), (1, 6), (130, 4), (8, 6)]):
        values = some_rows(rows, width * bins, seed=number)
        values[is_missing(values)] = 0.5
        write_log(branch, number, values, first=step, bins=bins)
        step += rows
        for _ in fold_log(branch, number, TAGS, bins):
            pass
    before = read_all(folder)
    assert is_missing(before[1]).any()
    for _ in merge(branch, layout.parts(branch), TAGS, bins):
        pass
    assert [path.name for path in branch.iterdir()] == ["seg-00000000-00000004"]
    about = read_segment(branch / "seg-00000000-00000004")
    assert (about.rows, about.columns, about.first_step, about.last_step) == (212, 6, 0, 211)
    after = read_all(folder)
    assert before[0] == after[0] == list(range(212))
    assert same(before[1], after[1])


def size_class(rows: int) -> int:
    number = 0
    while rows >= FAN_IN:
        rows, number = rows // FAN_IN, number + 1
    return number


def simulate(sizes: list[int]) -> tuple[list[int], Counter[int], int]:
    """Segments after merging whenever it is due.

    Returns:
        Their sizes, how many rows were rewritten without reaching a higher class (by class), and the most segments
        below the largest class that there ever were.
    """
    segments: list[tuple[str, Segment]] = []
    names = itertools.count()
    idle: Counter[int] = Counter()
    most = 0
    for size in sizes:
        segments.append((str(next(names)), described(size)))
        while due := merge_due(segments):
            assert due == [name for name, _ in segments[-len(due) :]], "the newest ones, without a gap"
            assert len(due) >= FAN_IN
            merged = [segment.rows for _, segment in segments[-len(due) :]]
            assert max(merged) < MAX_ROWS
            for rows in merged:
                if size_class(rows) >= size_class(sum(merged)) and len(due) < MAX_WAITING:
                    idle[size_class(rows)] += rows
            segments[-len(due) :] = [(str(next(names)), described(sum(merged)))]
        most = max(most, sum(segment.rows < MAX_ROWS for _, segment in segments))
    assert sum(segment.rows for _, segment in segments) == sum(sizes)
    return [segment.rows for _, segment in segments], idle, most


def described(rows: int) -> Segment:
    return Segment(rows=rows, columns=1, bins=1, block_columns=1, first_step=0, last_step=rows)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from([1, 5, 8, 60, 700, 1000, 8000, 100_000, 300_000]), max_size=400))
@example([1] * 5000)
@example([8000] * 1000)
@example([1, 8000] * 1000)
@example(([1] * 7 + [8]) * 50 + [64, 512, 4096] * 50)
@example(random.Random(0).choices([1] * 7 + [8] * 7 + [64] * 7 + [512] * 7 + [4096], k=6000))
def test_each_row_is_rewritten_at_most_once_a_class_and_segments_stay_few(sizes: list[int]) -> None:
    _, idle, most = simulate(sizes)
    assert idle == {}
    assert most < MAX_WAITING


def test_a_long_run_ends_up_in_segments_of_every_class() -> None:
    sizes, _, most = simulate([1000] * 3000)
    assert most <= 3 * FAN_IN
    assert [rows >= MAX_ROWS for rows in sizes[:8]] == [True] * 8
    assert sizes == sorted(sizes, reverse=True)


def test_segments_of_the_largest_class_are_left_alone() -> None:
    sizes, _, _ = simulate([MAX_ROWS] * 20)
    assert sizes == [MAX_ROWS] * 20


# What a crash leaves behind.


def test_a_log_beside_the_segment_made_from_it_is_read_once(tmp_path: Path) -> None:
    folder = new_table(tmp_path)
    values = some_rows(30, 6)
    for number in range(3):
        write_log(folder / "b0", number, values[10 * number : 10 * number + 10], first=10 * number)
    log = folder / "b0" / layout.log_name(1)
    content = log.read_bytes()
    for _ in fold_log(folder / "b0", 1, TAGS, 1):
        pass
    log.write_bytes(content)
    assert layout.parts(folder / "b0") == ["rows-00000000.log", "seg-00000001-00000001", "rows-00000002.log"]
    steps, got = read_all(folder)
    assert steps == list(range(30))
    assert same(got, values)


def crashed(tmp_path: Path) -> tuple[Path, Float32]:
    """A table whose writer died after a merge, before it had deleted all that was merged, and inside another one."""
    folder = new_table(tmp_path)
    branch = folder / "b0"
    values = some_rows(60, 6)
    for number in range(6):
        write_log(branch, number, values[10 * number : 10 * number + 10], first=10 * number)
        if number < 5:
            for _ in fold_log(branch, number, TAGS, 1):
                pass
    kept = tmp_path / "kept"
    shutil.copytree(branch, kept)
    for _ in merge(branch, layout.parts(branch)[:4], TAGS, 1):
        pass
    shutil.copytree(kept / "seg-00000001-00000001", branch / "seg-00000001-00000001")
    shutil.copytree(kept / "seg-00000003-00000003", branch / "seg-00000003-00000003")
    (branch / "seg-00000003-00000003" / "block-0000.parquet").unlink()  # deleting it had begun
    shutil.copytree(kept / "seg-00000004-00000004", branch / ".seg-00000004-00000009.tmp")
    (branch / "run.json.4711.tmp").write_bytes(b"{")
    (branch / "notes.txt").write_text("not ours")
    return folder, values


def test_readers_pass_over_what_a_crash_left(tmp_path: Path) -> None:
    folder, values = crashed(tmp_path)
    assert layout.parts(folder / "b0") == ["seg-00000000-00000003", "seg-00000004-00000004", "rows-00000005.log"]
    steps, got = read_all(folder)
    assert steps == list(range(60))
    assert same(got, values)


def test_the_next_writer_clears_what_a_crash_left_and_nothing_else(tmp_path: Path) -> None:
    folder, values = crashed(tmp_path)
    files = TableFiles(folder, 1, TAGS, 10)
    before = files.has_folding
    for _ in files.fold():
        pass
    assert (before, files.has_folding) == (True, False)
    names = sorted(path.name for path in (folder / "b0").iterdir())
    assert names == ["notes.txt", "seg-00000000-00000003", "seg-00000004-00000004", "seg-00000005-00000005"]
    steps, got = read_all(folder)
    assert steps == list(range(60))
    assert same(got, values)


def test_the_next_writer_numbers_its_logs_behind_all_others(tmp_path: Path) -> None:
    folder, _ = crashed(tmp_path)
    files = TableFiles(folder, 1, TAGS, 1000)
    table = Table(Columns("t", TAGS, Detail.ESSENTIAL), TAGS)
    table.push(Frame(Columns("t", TAGS), 60, 0.0, np.ones(6, np.float32)), 0, float("inf"))
    files.queue(*table.take())
    assert len(list(files.drain())) == 1
    assert layout.parts(folder / "b0")[-1] == "rows-00000006.log"
    assert read_all(folder)[0] == list(range(61))
    files.close_log()


def test_every_prefix_of_a_merge_reads_the_same(tmp_path: Path) -> None:
    folder = new_table(tmp_path)
    branch = folder / "b0"
    values = some_rows(40, 6)
    for number in range(4):
        write_log(branch, number, values[10 * number : 10 * number + 10], first=10 * number)
        for _ in fold_log(branch, number, TAGS, 1):
            assert read_all(folder)[0] == list(range(10 * number + 10))
    names = layout.parts(branch)
    for _ in merge(branch, names, TAGS, 1):
        steps, got = read_all(folder)
        assert steps == list(range(40))
        assert same(got, values)
    assert layout.parts(branch) == ["seg-00000000-00000003"]


class MergedMeanwhile(TableReader):
    """A reader whose segments are merged, and half deleted, after it has listed them."""

    def parts(self, line: Sequence[Stretch]) -> list[Part]:
        found = super().parts(line)
        if len(found) > 1:
            descriptions = [(part.path / layout.SEGMENT).read_bytes() for part in found]
            for _ in merge(found[0].path.parent, [part.path.name for part in found], TAGS, 1):
                pass
            for part, description in zip(found, descriptions, strict=True):  # deleting them has begun
                part.path.mkdir()
                (part.path / layout.SEGMENT).write_bytes(description)
        return found


@pytest.mark.parametrize("ask", ["rows", "window", "newest", "last_step", "rows_after"])
def test_what_is_merged_between_listing_and_reading_is_read_from_the_merged(tmp_path: Path, ask: str) -> None:
    folder = new_table(tmp_path)
    values = some_rows(40, 6)
    for number in range(4):
        write_log(folder / "b0", number, values[10 * number : 10 * number + 10], first=10 * number)
        for _ in fold_log(folder / "b0", number, TAGS, 1):
            pass
    reader = MergedMeanwhile(folder)
    if ask == "rows":
        assert len(reader.rows([0], WHOLE, None, None).step) == 40
    elif ask == "window":
        window = reader.window(0, WHOLE, None, None, 1)
        assert (window.finite + window.nonfinite).tolist() == [int((~is_missing(values[:, 0])).sum())]
    elif ask == "newest":
        measured = np.flatnonzero(~is_missing(values[:, 0]))
        assert reader.newest(WHOLE).step[0] == measured[-1]
    elif ask == "last_step":
        assert reader.last_step(WHOLE) == 39
    else:
        seen: dict[int, int] = {}
        polls = [[int(step) for _, rows in reader.rows_after(WHOLE, seen) for step in rows.step] for _ in range(2)]
        assert polls[0] + polls[1] == list(range(40))
    assert reader.problems == {}


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), st.booleans()), max_size=12))
def test_parts_never_cover_a_log_twice(
    tmp_path_factory: pytest.TempPathFactory, spans: list[tuple[int, int, bool]]
) -> None:
    folder = tmp_path_factory.mktemp("branch")
    covers: set[int] = set()
    for first, extra, is_log in spans:
        # Segments are nested or apart, as merging makes them: here aligned to powers of two.
        size = 1 << (extra % 4)
        low, high = (first, first) if is_log else (first - first % size, first - first % size + size - 1)
        name = layout.log_name(low) if is_log else layout.segment_name(low, high)
        (folder / name).mkdir(exist_ok=True)
        covers.update(range(low, high + 1))
    spans_kept = [layout.covered(name) for name in layout.parts(folder)]
    logs = [number for span in spans_kept if span for number in range(span[0], span[1] + 1)]
    assert logs == sorted(covers)
