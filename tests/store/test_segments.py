"""Segments, read back by Sonde, and opened by programs that do not know it."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.core.errors import FormatError
from sonde.core.frames import MISSING, MISSING_BITS, Float32, is_missing
from sonde.store.layout import SEGMENT
from sonde.store.pyramid import Pyramid
from sonde.store.segments import (
    MAX_CELLS,
    MAX_COLUMNS,
    BlockFile,
    Segment,
    block_path,
    column_names,
    read_footer,
    read_segment,
    write_segment,
)

ODD_NAMES = (
    "loss",
    "grad/norm@blocks.0.attn.qkv.weight",
    "a.b",
    "a",
    'x@"quoted"',
    "x@it's",
    "x@back\\slash",
    "x@größe/入力",
    "x@, ;\u00a0=",
    "x.list.element",
    "step",
    "time",
)


def write(folder: Path, columns: Float32, *, bins: int = 1, tags: tuple[str, ...] | None = None) -> Segment:
    """A segment of the given columns (a row a series), at every third step."""
    rows = columns.shape[1] // bins
    tags = tags or tuple(f"tag@{i}" for i in range(len(columns)))
    step, time = np.arange(rows) * 3, 1e9 + np.arange(rows) / 8
    for _ in write_segment(folder, tags, len(columns), bins, step, time, lambda first, last: columns[first:last]):
        pass
    return read_segment(folder)


def read(folder: Path) -> Float32:
    """All columns of a segment, a row a series."""
    segment = read_segment(folder)
    found = []
    for number in range(segment.num_blocks):
        with BlockFile(block_path(folder, number), bins=segment.bins) as block:
            width = min(segment.block_columns, segment.columns - number * segment.block_columns)
            found += [block.column(place) for place in range(width)]
    return np.array(found, np.float32)


def some_columns(columns: int, length: int, seed: int, holes: float = 0.0) -> Float32:
    """Random bits: numbers of every size and NaNs of every (quiet) payload."""
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 1 << 32, (columns, length), np.uint32)
    values[np.isnan(values.view(np.float32))] |= np.uint32(0x00400000)
    values[rng.random(values.shape) < 0.1] = 0x7FC00000
    values[rng.random(values.shape) < holes] = MISSING_BITS
    return values.view(np.float32)


def same(a: Float32, b: Float32) -> bool:
    return np.array_equal(np.ascontiguousarray(a).view(np.uint32), np.ascontiguousarray(b).view(np.uint32))


@settings(deadline=None, max_examples=40)
@given(
    rows=st.integers(1, 400),
    columns=st.integers(1, 12),
    seed=st.integers(0, 1000),
    holes=st.sampled_from([0.0, 0.1, 0.9, 1.0]),
)
def test_series_read_back_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, rows: int, columns: int, seed: int, holes: float
) -> None:
    folder = tmp_path_factory.mktemp("segment") / "seg"
    values = some_columns(columns, rows, seed, holes)
    about = write(folder, values)
    assert about == Segment(
        rows=rows, columns=columns, bins=1, block_columns=about.block_columns, first_step=0, last_step=3 * (rows - 1)
    )
    assert same(read(folder), values)
    with BlockFile(block_path(folder, 0), bins=1, footer=read_footer(str(block_path(folder, 0)))) as block:
        assert np.array_equal(block.steps(), np.arange(rows) * 3)
        assert np.array_equal(block.times(), 1e9 + np.arange(rows) / 8)


@settings(deadline=None, max_examples=40)
@given(
    rows=st.integers(1, 60),
    columns=st.integers(1, 4),
    bins=st.integers(2, 40),
    seed=st.integers(0, 1000),
    holes=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_histograms_read_back_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, rows: int, columns: int, bins: int, seed: int, holes: float
) -> None:
    folder = tmp_path_factory.mktemp("segment") / "seg"
    values = some_columns(columns, rows * bins, seed).reshape(columns, rows, bins)
    values[np.random.default_rng(seed).random((columns, rows)) < holes] = MISSING
    write(folder, values.reshape(columns, -1), bins=bins)
    assert same(read(folder), values.reshape(columns, -1))


def test_columns_are_split_into_blocks_of_bounded_width(tmp_path: Path) -> None:
    columns = 2 * MAX_COLUMNS + 7
    values = some_columns(columns, 3, seed=0, holes=0.1)
    about = write(tmp_path / "seg", values)
    assert (about.block_columns, about.num_blocks) == (MAX_COLUMNS, 3)
    assert same(read(tmp_path / "seg"), values)
    assert pq.read_metadata(block_path(tmp_path / "seg", 2)).num_columns == 7 + 2


@pytest.mark.parametrize("bins", [1, 4])
def test_long_segments_have_narrow_blocks(tmp_path: Path, bins: int) -> None:
    rows = MAX_CELLS // (10 * bins)
    values = some_columns(23, rows * bins, seed=1)
    values[:, ::bins] = 1.0  # no histogram is missing
    about = write(tmp_path / "seg", values, bins=bins)
    assert (about.block_columns, about.num_blocks) == (10, 3)
    assert same(read(tmp_path / "seg"), values)


def test_a_segment_longer_than_a_block_may_have_cells_is_written(tmp_path: Path) -> None:
    values = np.ones((2, MAX_CELLS + 1), np.float32)
    assert write(tmp_path / "seg", values).block_columns == 1
    assert same(read(tmp_path / "seg"), values)


def test_a_pyramid_lies_beside_every_block_of_plain_series(tmp_path: Path) -> None:
    write(tmp_path / "seg", np.arange(1000, dtype=np.float32).reshape(2, 500))
    with Pyramid(block_path(tmp_path / "seg", 0, "pyramid")) as pyramid:
        window, _ = pyramid.level(1, 1 << 20)
        assert (window.min[0], window.mean[0], window.max[0]) == (500, 749.5, 999)
        assert pyramid.newest().value.tolist() == [499, 999]
        assert pyramid.newest().step.tolist() == [3 * 499] * 2


def test_other_programs_open_a_block_and_tell_null_from_nan(tmp_path: Path) -> None:
    values = np.array([[1.5, np.nan, MISSING, -0.0], [MISSING] * 4], np.float32)
    write(tmp_path / "seg", values, tags=("loss", "never"))
    path = block_path(tmp_path / "seg", 0)
    table = pq.read_table(path)
    assert table.column("loss").to_pylist()[0] == 1.5
    assert table.column("loss").is_null().to_pylist() == [False, False, True, False]
    assert table.column("loss").is_null(nan_is_null=True).to_pylist() == [False, True, True, False]
    assert table.column("never").null_count == 4
    frame = pd.read_parquet(path)
    assert frame.columns.tolist() == ["step", "time", "loss", "never"]
    assert frame["step"].tolist() == [0, 3, 6, 9]
    assert frame["loss"].dtype == np.float32
    assert frame["loss"].isna().tolist() == [False, True, True, False]
    exact = pd.read_parquet(path, dtype_backend="pyarrow")["loss"]
    assert [value is pd.NA for value in exact] == [False, False, True, False]


@pytest.mark.parametrize("bins", [1, 3])
def test_other_programs_see_every_name_as_it_is(tmp_path: Path, bins: int) -> None:
    values = np.arange(len(ODD_NAMES) * 200 * bins, dtype=np.float32).reshape(len(ODD_NAMES), -1)
    write(tmp_path / "seg", values, tags=ODD_NAMES, bins=bins)
    path = block_path(tmp_path / "seg", 0)
    names = [*ODD_NAMES[:-2], "step@", "time@"]
    assert column_names(ODD_NAMES) == names
    assert pq.read_schema(path).names == ["step", "time", *names]
    frame = pd.read_parquet(path)
    for name, expected in zip(names, values.reshape(len(ODD_NAMES), 200, bins), strict=True):
        assert np.array_equal(np.stack(frame[name].to_list()).reshape(200, bins), expected)
        assert pq.read_table(path, columns=[name]).num_columns == 1
    assert same(read(tmp_path / "seg"), values)


@pytest.mark.parametrize("bins", [1, 3])
def test_every_column_is_stored_split_by_bytes(tmp_path: Path, bins: int) -> None:
    write(tmp_path / "seg", np.ones((len(ODD_NAMES), 200 * bins), np.float32), tags=ODD_NAMES, bins=bins)
    group = pq.read_metadata(block_path(tmp_path / "seg", 0)).row_group(0)
    encodings = [group.column(i).encodings for i in range(group.num_columns)]
    assert "DELTA_BINARY_PACKED" in encodings[0]
    assert all("BYTE_STREAM_SPLIT" in encoding for encoding in encodings[1:])


def test_other_programs_see_histograms_as_lists(tmp_path: Path) -> None:
    values = np.array([[1, 2, MISSING, MISSING, 3, 4]], np.float32)
    write(tmp_path / "seg", values, bins=2, tags=("shape",))
    path = block_path(tmp_path / "seg", 0)
    assert pq.read_table(path).column("shape").to_pylist() == [[1, 2], None, [3, 4]]
    assert [None if cell is None else list(cell) for cell in pd.read_parquet(path)["shape"]] == [[1, 2], None, [3, 4]]


def test_a_segment_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    columns = np.ones((3 * MAX_COLUMNS, 2), np.float32)
    tags = [f"tag@{i}" for i in range(len(columns))]
    step, time = np.arange(2), np.zeros(2)
    leftover = tmp_path / ".seg.tmp"  # of a process that was killed
    leftover.mkdir()
    (leftover / "block-0009.parquet").write_bytes(b"half")
    writing = write_segment(tmp_path / "seg", tags, len(columns), 1, step, time, lambda a, b: columns[a:b])
    for _ in range(3):
        next(writing)
        assert not (tmp_path / "seg").exists()
    del writing
    assert list(tmp_path.iterdir()) == []
    write(tmp_path / "seg", columns)
    assert [path.name for path in tmp_path.iterdir()] == ["seg"]
    assert len(list((tmp_path / "seg").iterdir())) == 2 * 3 + 1


def test_a_segment_whose_rows_cannot_be_read_leaves_nothing(tmp_path: Path) -> None:
    def broken(first: int, last: int) -> Float32:
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="gone"):
        list(write_segment(tmp_path / "seg", ["a"], 1, 1, np.arange(2), np.zeros(2), broken))
    assert list(tmp_path.iterdir()) == []


RIGHT = {"rows": 5, "columns": 3, "bins": 1, "block_columns": 3, "first_step": 0, "last_step": 9}
WRONG = [json.dumps({**RIGHT, **wrong}) for wrong in ({"rows": "5"}, {"block_columns": 0}, {"rows": 0}, {"bins": None})]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "3", "{}", '{"rows": 1}', '{"rows": NaN}', '{"rows": 1, "columns": 1, "unknown": 2}', *WRONG],
)
def test_a_damaged_description_is_a_format_error(tmp_path: Path, text: str) -> None:
    (tmp_path / SEGMENT).write_text(text)
    with pytest.raises(FormatError):
        read_segment(tmp_path)


def test_a_torn_block_raises_what_readers_expect(tmp_path: Path) -> None:
    values = some_columns(4, 300, seed=0)
    write(tmp_path / "seg", values)
    path = block_path(tmp_path / "seg", 0)
    whole = path.read_bytes()
    for size in (0, 3, 8, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises((OSError, ValueError)):
            read(tmp_path / "seg")


def test_missing_values_survive_a_second_round(tmp_path: Path) -> None:
    values = some_columns(3, 50, seed=5, holes=0.5)
    write(tmp_path / "first", values)
    write(tmp_path / "second", read(tmp_path / "first"))
    assert np.array_equal(is_missing(read(tmp_path / "second")), is_missing(values))
