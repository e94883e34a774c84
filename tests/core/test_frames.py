import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.core.errors import FormatError
from sonde.core.frames import MISSING, Columns, Detail, Frame, is_missing

TABLE_RULE = r"`Columns\(table=\.\.\.\)` must be 1-64 lower-case letters"


def test_columns_keep_the_order_of_their_tags_and_count_their_values() -> None:
    columns = Columns("layer", ["grad/norm@b", "grad/norm@a"], Detail.LAYER)
    assert columns.tags == ("grad/norm@b", "grad/norm@a")
    assert columns.width == 2


def test_a_histogram_is_as_wide_as_its_bins() -> None:
    assert Columns("histogram", ("grad@a", "grad@b"), Detail.DISTRIBUTION, bins=64).width == 128


def test_columns_do_not_change_with_the_list_they_were_made_from() -> None:
    tags = ["loss"]
    columns = Columns("step", tags)
    tags.append("lr")
    assert columns.tags == ("loss",)


@pytest.mark.parametrize("table", ["", "Step", "a/b", "..", "_a", "x" * 65, "step\n", "größe"])
def test_a_table_that_cannot_name_a_file_everywhere_is_refused(table: str) -> None:
    with pytest.raises(ValueError, match=TABLE_RULE):
        Columns(table, ("loss",))


def test_columns_refuse_a_tag_that_stands_twice_and_name_it() -> None:
    with pytest.raises(ValueError, match="has 'lr' twice"):
        Columns("step", ("loss", "lr", "grad/norm", "lr"))


def test_columns_refuse_what_is_no_tag() -> None:
    with pytest.raises(FormatError, match="no tag!"):
        Columns("step", ("loss", "no tag!"))


def test_columns_refuse_less_than_one_bin() -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        Columns("step", ("loss",), bins=0)


def test_what_is_dropped_first_has_the_highest_number() -> None:
    assert Detail.ESSENTIAL < Detail.LAYER < Detail.DISTRIBUTION


def test_missing_reads_as_nan_so_that_nobody_computes_with_it() -> None:
    assert np.isnan(MISSING)


@given(st.lists(st.floats(width=32), max_size=20), st.sets(st.integers(0, 19)))
def test_missing_is_told_apart_from_every_measured_number(measured: list[float], holes: set[int]) -> None:
    values = np.array(measured, dtype=np.float32)
    expected = np.zeros(len(values), dtype=bool)
    for hole in holes:
        if hole < len(values):
            values[hole] = MISSING
            expected[hole] = True
    assert is_missing(values).tolist() == expected.tolist()


def test_missing_survives_copies_slices_and_bytes() -> None:
    values = np.array([MISSING, np.nan, 1.0, MISSING], dtype=np.float32)
    assert is_missing(values[::-1]).tolist() == [True, False, False, True]
    assert is_missing(values.copy()[::3]).tolist() == [True, True]
    assert is_missing(np.frombuffer(values.tobytes(), dtype=np.float32)).tolist() == [
        True,
        False,
        False,
        True,
    ]


def test_is_missing_keeps_the_shape_of_a_block_of_rows() -> None:
    block = np.full((3, 2), MISSING, dtype=np.float32)
    block[1] = 0
    assert is_missing(block).tolist() == [[True, True], [False, False], [True, True]]


def test_a_frame_cannot_be_moved_to_another_step() -> None:
    frame = Frame(Columns("step", ("loss",)), step=3, time=0.0, values=np.ones(1, dtype=np.float32))
    with pytest.raises(AttributeError):
        frame.step = 4  # type: ignore[misc]
