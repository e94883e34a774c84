"""Rows that wait for the disk."""

import gc

import numpy as np
import pytest

from sonde.core.frames import MISSING, Columns, Detail, Frame, is_missing
from sonde.store.buffers import DROP_ORDER, RowBlock, Table
from sonde.store.row_log import row_dtype

ROOM = float("inf")


def frame(columns: Columns, step: int, *values: float) -> Frame:
    return Frame(columns, step, step / 4, np.array(values, np.float32))


def rows_of(blocks: list[RowBlock]) -> list[tuple[int, float, list[float | None]]]:
    """The rows as their bytes say."""
    found = []
    for block in blocks:
        for row in np.frombuffer(block.seal(0), row_dtype(block.width)):
            values = [
                None if is_missing(value) else float(value) for value in np.atleast_1d(row["values"]).astype(np.float32)
            ]
            found.append((int(row["step"]), float(row["time"]), values))
    return found


def test_rows_come_out_in_the_order_they_went_in() -> None:
    columns = Columns("step", ("loss", "lr"))
    table = Table(columns)
    for step in range(3000):
        table.push(frame(columns, step, step, -step), 0, ROOM)
    tags, blocks = table.take()
    assert tags == ("loss", "lr")
    assert rows_of(blocks) == [(step, step / 4, [step, -step]) for step in range(3000)]
    assert table.take() == (("loss", "lr"), [])


def test_a_new_tag_makes_later_rows_wider_and_earlier_ones_not() -> None:
    table = Table(Columns("step", ()))
    for step, tags in enumerate([("a",), ("b",), ("a",), ("c", "a"), ("a", "b", "c")]):
        table.push(frame(Columns("step", tags), step, *("abc".index(tag) for tag in tags)), 0, ROOM)
    tags, blocks = table.take()
    assert tags == ("a", "b", "c")
    assert [values for _, _, values in rows_of(blocks)] == [
        [0],
        [None, 1],
        [0, None],
        [0, None, 2],
        [0, 1, 2],
    ]


def test_columns_that_were_the_whole_row_are_a_part_of_it_once_the_table_grew() -> None:
    first, second = Columns("step", ("a", "b")), Columns("step", ("c",))
    table = Table(first)
    for step, columns in enumerate([first, second, first, second, first]):
        table.push(frame(columns, step, *range(1, 1 + columns.width)), 0, ROOM)
    assert [values for _, _, values in rows_of(table.take()[1])] == [
        [1, 2],
        [None, None, 1],
        [1, 2, None],
        [None, None, 1],
        [1, 2, None],
    ]


def test_histograms_take_their_bins_with_them() -> None:
    table = Table(Columns("shapes", ("a",), bins=2))
    table.push(frame(Columns("shapes", ("a",), bins=2), 0, 1, 2), 0, ROOM)
    table.push(frame(Columns("shapes", ("b", "a"), bins=2), 1, 3, 4, 5, 6), 0, ROOM)
    table.push(frame(Columns("shapes", ("b",), bins=2), 2, 7, 8), 0, ROOM)
    assert [values for _, _, values in rows_of(table.take()[1])] == [[1, 2], [5, 6, 3, 4], [None, None, 7, 8]]


def test_columns_with_another_number_of_bins_are_refused() -> None:
    table = Table(Columns("shapes", ("a",), bins=2))
    with pytest.raises(ValueError, match="'shapes' holds 2 numbers a tag, got columns with 3"):
        table.push(frame(Columns("shapes", ("a",), bins=3), 0, 1, 2, 3), 0, ROOM)


def test_rows_of_different_branches_never_share_a_block() -> None:
    columns = Columns("step", ("loss",))
    table = Table(columns)
    for branch in (0, 0, 1, 1, 2):
        table.push(frame(columns, branch, branch), branch, ROOM)
    assert [(block.branch, block.filled) for block in table.take()[1]] == [(0, 2), (1, 2), (2, 1)]


def test_a_written_block_is_used_again_without_a_trace_of_its_rows() -> None:
    both, one = Columns("step", ("a", "b")), Columns("step", ("b",))
    table = Table(both)
    table.push(frame(both, 0, 5, 5), 0, ROOM)
    (block,) = table.take()[1]
    assert table.give_back(block) == block.row_bytes
    table.push(frame(one, 1, 7), 3, ROOM)
    (again,) = table.take()[1]
    assert again is block
    assert again.branch == 3
    assert rows_of([again]) == [(1, 0.25, [None, 7])]


def test_room_is_taken_by_rows_and_given_back() -> None:
    columns = Columns("step", ("loss",))
    table = Table(columns)
    taken = [table.push(frame(columns, step, 0), 0, ROOM) for step in range(2000)]
    blocks = table.take()[1]
    assert len(blocks) > 1
    assert sum(taken) == sum(block.filled_bytes for block in blocks) == sum(map(table.give_back, blocks))
    assert set(taken) == {RowBlock(1, 0).row_bytes}


def test_many_tables_of_few_rows_take_little_room() -> None:
    tables = [Columns(f"rare-{i}", tuple(f"a{j}" for j in range(100))) for i in range(200)]
    taken = sum(Table(columns).push(frame(columns, 0, *range(100)), 0, ROOM) for columns in tables)
    assert taken == 200 * RowBlock(100, 0).row_bytes < 1 << 20


def test_rows_without_room_are_dropped_and_counted() -> None:
    columns = Columns("step", ("loss",))
    table = Table(columns)
    size = RowBlock(1, 0).row_bytes
    assert table.push(frame(columns, 0, 0), 0, size - 1) == -1
    assert table.push(frame(columns, 1, 0), 0, size) == size
    assert table.push(frame(columns, 5000, 0), 0, 0) == -1
    assert table.push(frame(columns, 5001, 0), 0, size) == size
    assert table.dropped == 2
    assert [step for step, _, _ in rows_of(table.take()[1])] == [1, 5001]


def test_a_dropped_row_does_not_move_the_floor() -> None:
    columns = Columns("step", ("loss",))
    table = Table(columns)
    table.push(frame(columns, 3, 0), 0, ROOM)
    table.push(frame(Columns("step", ("loss", "new")), 9, 0, 0), 0, 0)
    assert (table.floor_step, table.dropped) == (3, 1)


def test_distributions_are_dropped_before_layers_and_the_essential_never() -> None:
    shares = [DROP_ORDER[detail] for detail in (Detail.DISTRIBUTION, Detail.LAYER, Detail.ESSENTIAL)]
    assert shares == sorted(shares)
    assert shares[-1] == float("inf")
    assert set(DROP_ORDER) == set(Detail)


@pytest.mark.parametrize("width", [1, 100, 300_000])
def test_a_block_has_room_for_at_least_one_row_and_for_no_more_than_a_megabyte_or_one(width: int) -> None:
    block = RowBlock(width, 0)
    assert block.capacity >= 1
    assert block.capacity * block.row_bytes <= max(1 << 20, row_dtype(width).itemsize)


def test_the_loss_is_known_by_its_column() -> None:
    table = Table(Columns("step", ()))
    found = [table.loss_column]
    for step, tags in enumerate([("lr", "loss_scale"), ("lr", "loss")]):
        table.push(frame(Columns("step", tags), step, 1, 2), 0, ROOM)
        found.append(table.loss_column)
    assert found == [None, None, 2]
    assert table.take()[1][-1].newest(2) == (1, 2.0)


def test_missing_values_inside_a_frame_stay_missing() -> None:
    columns = Columns("step", ("a", "b"))
    table = Table(columns)
    table.push(Frame(columns, 0, 0.0, np.array([MISSING, np.nan], np.float32)), 0, ROOM)
    (row,) = np.frombuffer(table.take()[1][0].seal(0), row_dtype(2))
    assert is_missing(row["values"]).tolist() == [True, False]


def test_columns_made_anew_for_every_frame_are_not_kept_forever() -> None:
    table = Table(Columns("step", ("a", "b")))

    def alive() -> int:
        return sum(type(thing) is Columns for thing in gc.get_objects())

    before = alive()
    for step in range(3000):
        tags = ("a", "b") if step % 2 else ("b",)
        table.push(frame(Columns("step", tags), step, *range(len(tags))), 0, ROOM)
        if step % 500 == 0:
            table.take()
    assert alive() - before < 1000
    table.push(frame(Columns("step", ("a", "b")), 3000, 1, 2), 0, ROOM)
    assert rows_of(table.take()[1])[-1] == (3000, 750.0, [2, 1])  # the first row had "b" only
