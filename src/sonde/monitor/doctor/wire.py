"""The messages to the doctor's process: frames as bytes, everything else as JSON.

A message is a letter, its length and its body. Names of columns are sent once; a frame then is 20 bytes and its values.
"""

import struct
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from sonde.core import strict_json
from sonde.core.frames import Columns, Frame

_HEAD = struct.Struct("<cI")
_FRAME = struct.Struct("<Iqd")
_MOST_COLUMNS = 1024

FRAME, COLUMNS, EVENT, START, PLACE, MODEL, SAVE, RESTORE, END = (letter.encode() for letter in "FCESPMVRZ")


Answer = dict[str, Any]
"""What the doctor gives back (`session.Session` lists the keys), a line of JSON each."""


class Message(NamedTuple):
    """One message."""

    kind: bytes
    body: Any
    """A `Frame`; for the other kinds anything that JSON can say."""


class Packer:
    """Makes bytes out of messages, for one reader."""

    def __init__(self) -> None:
        self._numbers: dict[Columns, int] = {}

    def pack(self, message: Message) -> bytes:
        """The bytes of a message; the first frame of its columns brings their names along."""
        kind, frame = message
        if kind != FRAME:
            return _packed(kind, strict_json.dumps(frame).encode())
        names, number = b"", self._numbers.get(frame.columns)
        if number is None:
            if len(self._numbers) >= _MOST_COLUMNS:
                self._numbers.clear()  # the reader takes a number's newest names
            number = self._numbers[frame.columns] = len(self._numbers)
            columns = {"id": number, "table": frame.columns.table, "tags": list(frame.columns.tags)}
            names = self.pack(Message(COLUMNS, columns))
        values = np.ascontiguousarray(frame.values, np.float32).tobytes()
        return names + _packed(FRAME, _FRAME.pack(number, frame.step, frame.time) + values)


def _packed(kind: bytes, body: bytes) -> bytes:
    return _HEAD.pack(kind, len(body)) + body


def messages(stream: BinaryIO) -> Iterator[Message]:
    """All messages of a stream until it ends; one that is torn by the sender's death is dropped."""
    known: dict[int, Columns] = {}
    while len(head := stream.read(_HEAD.size)) == _HEAD.size:
        kind, size = _HEAD.unpack(head)
        body = stream.read(size)
        if len(body) < size:
            return
        if kind == FRAME:
            number, step, time = _FRAME.unpack_from(body)
            yield Message(kind, Frame(known[number], step, time, np.frombuffer(body, np.float32, offset=_FRAME.size)))
            continue
        said = strict_json.loads(body)
        if kind == COLUMNS:
            known[said["id"]] = Columns(said["table"], said["tags"])
        else:
            yield Message(kind, said)
