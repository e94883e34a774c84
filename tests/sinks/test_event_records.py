import io
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.core.frames import MISSING
from sonde.sinks.event_records import Scalars, record
from sonde.sinks.names import Name

event_pb2: Any = pytest.importorskip("tensorboard.compat.proto.event_pb2", reason="tensorboard is not installed")
record_writer: Any = pytest.importorskip("tensorboard.summary.writer.record_writer")


@given(
    st.one_of(st.binary(min_size=4, max_size=70), st.integers(4, 3000).map(lambda n: bytes(range(256)) * 12 + bytes(n)))
)
def test_a_record_is_the_one_that_tensorboards_own_writer_makes(data: bytes) -> None:
    file = io.BytesIO()
    record_writer.RecordWriter(file).write(data)
    assert record(data) == file.getvalue()


ROWS = st.lists(
    st.tuples(st.text(min_size=1, max_size=200).filter(lambda t: t.isprintable()), st.floats(width=32)), min_size=1
)


@given(ROWS, st.integers(0, 2**62), st.floats(0, 2e9), st.randoms(use_true_random=False))
def test_tensorboard_reads_every_value_that_was_measured(
    row: list[tuple[str, float]], step: int, time: float, random: Any
) -> None:
    values = np.array([value for _, value in row], np.float32)
    missing = [random.random() < 0.3 for _ in row]
    values[missing] = MISSING
    encoded = Scalars([Name(name) for name, _ in row]).event(step, time, values)
    if all(missing):
        assert encoded == b""
        return
    event = event_pb2.Event.FromString(encoded)
    assert (event.step, event.wall_time) == (step, time)
    expected = [(name, value) for (name, value), absent in zip(row, missing, strict=True) if not absent]
    assert [value.tag for value in event.summary.value] == [name for name, _ in expected]
    np.testing.assert_array_equal([value.simple_value for value in event.summary.value], [v for _, v in expected])


def test_factors_are_applied_and_nan_stays_nan() -> None:
    scalars = Scalars([Name("a", 1e-6), Name("b"), Name("c", 2.0)])
    event = event_pb2.Event.FromString(scalars.event(1, 2.0, np.array([5e6, math.inf, math.nan], np.float32)))
    read = [value.simple_value for value in event.summary.value]
    assert read[:2] == [5, math.inf]
    assert math.isnan(read[2])
