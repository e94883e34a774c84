"""What goes to the doctor's process arrives as it was sent."""

import io

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sonde.core.frames import MISSING, Columns, Frame
from sonde.monitor.doctor import wire
from sonde.monitor.doctor.wire import Message, Packer


def packed(frame: Frame) -> bytes:
    return Packer().pack(Message(wire.FRAME, frame))


def frames_of(sent: bytes) -> list[Frame]:
    return [message.body for message in wire.messages(io.BytesIO(sent)) if message.kind == wire.FRAME]


def test_a_frame_arrives_bit_by_bit() -> None:
    values = np.array([1.5, np.nan, np.inf, MISSING, 1e-42], np.float32)
    sent = Frame(Columns("step", ("a", "b", "c", "d", "e")), 2**40, 1.25, values)
    (got,) = frames_of(packed(sent))
    assert (got.columns.table, got.columns.tags, got.step, got.time) == ("step", ("a", "b", "c", "d", "e"), 2**40, 1.25)
    np.testing.assert_array_equal(got.values.view(np.uint32), values.view(np.uint32))


def test_names_travel_once() -> None:
    packer, columns = Packer(), Columns("step", ("loss",))
    frames = [Frame(columns, step, 0.0, np.zeros(1, np.float32)) for step in (1, 2)]
    one, two = (packer.pack(Message(wire.FRAME, frame)) for frame in frames)
    assert len(two) < len(one)
    first, second = frames_of(one + two)
    assert first.columns is second.columns


def test_columns_that_change_at_every_step_are_told_apart() -> None:
    packer = Packer()
    frames = [Frame(Columns("step", (f"loss/{i}",)), i, 0.0, np.full(1, i, np.float32)) for i in range(3000)]
    got = frames_of(b"".join(packer.pack(Message(wire.FRAME, frame)) for frame in frames))
    assert [frame.columns.tags for frame in got] == [frame.columns.tags for frame in frames]


@given(st.lists(st.tuples(st.sampled_from([b"E", b"V", b"Z"]), st.dictionaries(st.text(), st.integers()))))
def test_messages_come_in_order(sent: list[tuple[bytes, dict[str, int]]]) -> None:
    packer = Packer()
    stream = io.BytesIO(b"".join(packer.pack(Message(kind, body)) for kind, body in sent))
    assert [(kind, body) for kind, body in wire.messages(stream)] == sent


def test_a_torn_message_is_dropped() -> None:
    whole = Packer().pack(Message(wire.EVENT, {"kind": "note", "data": {"nan": float("nan")}}))
    for cut in range(1, len(whole)):
        (message,) = wire.messages(io.BytesIO(whole + whole[:cut]))
        assert message.body["data"] == {"nan": "NaN"}
