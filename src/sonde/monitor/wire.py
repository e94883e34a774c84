"""What goes to the doctor's process and what comes back: frames as bytes, everything else as lines of JSON.

A message is a letter, its length and its body. Names of columns travel once; a frame then is 20 bytes and its values.
"""

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

from sonde.core import strict_json
from sonde.core.frames import Columns, Frame

_HEAD = struct.Struct("<cI")
_FRAME = struct.Struct("<Iqd")

FRAME, COLUMNS, EVENT, SETTINGS, PLACE, RANKS, SAVE, RESTORE, END, MODEL = (letter.encode() for letter in "FCESPKVRZM")


class Source(Protocol):
    """Where bytes come from."""

    def read(self, size: int, /) -> bytes:
        """So many bytes; fewer where it ends."""


class Message(NamedTuple):
    """One message, read."""

    kind: bytes
    body: Any
    """A `Frame`; for the others what JSON said."""


class Packer:
    """Makes bytes out of messages, for one reader."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Columns, int]] = {}
        self._num = 0

    def frame(self, frame: Frame) -> bytes:
        """A row; the first of its columns brings their names along."""
        known = self._known.get(id(frame.columns))
        names = b""
        if known is None or known[0] is not frame.columns:  # an id may have been another's
            if len(self._known) >= 1024:
                self._known.clear()
            known = self._known[id(frame.columns)] = frame.columns, self._num
            self._num += 1
            names = pack(COLUMNS, {"id": known[1], "table": frame.columns.table, "tags": list(frame.columns.tags)})
        values = np.ascontiguousarray(frame.values, np.float32).tobytes()
        head = _HEAD.pack(FRAME, _FRAME.size + len(values))
        return names + head + _FRAME.pack(known[1], frame.step, frame.time) + values


def pack(kind: bytes, body: Any) -> bytes:
    """A message of any other kind."""
    text = strict_json.dumps(body).encode()
    return _HEAD.pack(kind, len(text)) + text


def messages(stream: Source) -> Iterator[Message]:
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
        said = strict_json.loads(body.decode())
        if kind == COLUMNS:
            known[said["id"]] = Columns(said["table"], said["tags"])
        else:
            yield Message(kind, said)
