"""Rows on their way from the training to the disk: preallocated blocks, a bounded amount of them.

The training thread copies a row into the open block of its table; the background takes whole blocks. When the disk does
not keep up, detail is dropped at the door in a stated order: distributions once half of the room is taken, layers once
all of it is, essential rows (loss, learning rate, global norms: a few dozen bytes a step) never.
"""

from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sonde.core.frames import MISSING, Columns, Detail, Float32, Frame
from sonde.store.breath import breathe
from sonde.store.row_log import checksum, row_dtype

_BLOCK_BYTES = 1 << 20
_BLOCK_ROWS = 1024
_SPARE_BLOCKS = 2
_KNOWN_COLUMNS = 256  # somebody may make columns anew for every frame
_ROWS_A_BREATH = 512

# Share of the room from which on rows of this detail are dropped.
DROP_ORDER = {Detail.DISTRIBUTION: 0.5, Detail.LAYER: 1.0, Detail.ESSENTIAL: float("inf")}


class RowBlock:
    """Room for some rows of one width on one branch."""

    __slots__ = (
        "_crc",
        "_raw",
        "_step",
        "_time",
        "_values",
        "branch",
        "capacity",
        "filled",
        "row_bytes",
        "width",
    )

    def __init__(self, width: int, branch: int) -> None:
        dtype = row_dtype(width)
        self.capacity = max(1, min(_BLOCK_ROWS, _BLOCK_BYTES // dtype.itemsize))
        rows = np.empty(self.capacity, dtype)
        self._step, self._time, self._values, self._crc = (
            rows["step"],
            rows["time"],
            rows["values"],
            rows["crc"],
        )
        # The memory of rows that were never written is only promised: a block of a rare table costs what it holds.
        self._raw, self.row_bytes = rows.view(np.uint8).data, dtype.itemsize
        self.width = width
        self.branch = branch
        self.filled = 0

    def add(self, step: int, time: float, values: Float32, place: npt.NDArray[np.intp] | None) -> None:
        """Copy a row in; `place` says where its values go, None for all in order."""
        row = self.filled
        self._step[row], self._time[row] = step, time
        if place is None:
            self._values[row] = values
        else:
            self._values[row] = MISSING
            self._values[row, place] = values
        self.filled = row + 1  # last: a row that an interrupt cut short does not count

    def seal(self, seed: int) -> memoryview:
        """Fill in the checksums; the bytes of all rows."""
        stride = self.row_bytes
        for row in range(self.filled):
            self._crc[row] = checksum(self._raw[row * stride : (row + 1) * stride], seed)
            if row % _ROWS_A_BREATH == 0:
                breathe()
        return self._raw[: self.filled * stride]

    @property
    def filled_bytes(self) -> int:
        """What its rows take."""
        return self.filled * self.row_bytes

    def newest(self, column: int) -> tuple[int, float]:
        """The last row's step and one of its values."""
        return int(self._step[self.filled - 1]), float(self._values[self.filled - 1, column])


class Table:
    """A table's columns and the blocks that wait to be written. Called under the writer's lock."""

    def __init__(self, columns: Columns, tags: Sequence[str] = ()) -> None:
        self.name, self.detail, self.bins = columns.table, columns.detail, columns.bins
        self.tags: tuple[str, ...] = ()
        """The columns. A tuple, shared with the frames' own: the garbage collector visits a list of a million strings
        each time (15 ms, the interpreter lock held), a tuple of strings once."""
        self.loss_column: int | None = None
        """The column of the loss, which lists of runs show."""
        self.floor_step: int | None = None
        """The lowest step that the table's next row may have on this branch."""
        self.dropped = 0
        self._places: dict[Columns, npt.NDArray[np.intp] | None] = {}
        self._index: dict[str, int] | None = None
        self._open: RowBlock | None = None
        self._full: deque[RowBlock] = deque()
        self._spare: list[RowBlock] = []
        self._add(tuple(tags))

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return len(self.tags) * self.bins

    def _add(self, tags: tuple[str, ...]) -> None:
        self.tags += tags
        if self.loss_column is None and self.detail is Detail.ESSENTIAL and "loss" in tags:
            self.loss_column = self.tags.index("loss")

    def places(self, columns: Columns) -> npt.NDArray[np.intp] | None:
        """Where a frame's values go in a row; None where they are the whole row in order. New tags are added."""
        if columns in self._places:
            place = self._places[columns]
            if place is not None or len(columns.tags) == len(self.tags):
                return place
        if columns.bins != self.bins:
            raise ValueError(
                f"table {self.name!r} holds {self.bins} numbers a tag, got columns with {columns.bins}; "
                "use another table."
            )
        if len(self._places) >= _KNOWN_COLUMNS:
            self._places.clear()
        tags = tuple(columns.tags)
        if not self.tags:
            self._add(tags)
        if self._index is None and (tags is self.tags or tags == self.tags):
            self._places[columns] = None
            return None
        index = self._index or {tag: i for i, tag in enumerate(self.tags)}
        self._index = None  # an interrupt from here on costs no more than making it anew
        new = tuple(tag for tag in tags if tag not in index)
        index.update(zip(new, range(len(index), len(index) + len(new)), strict=True))
        self._add(new)
        self._index = index
        at = np.fromiter((index[tag] for tag in tags), np.intp, len(tags))
        if self.bins > 1:
            at = (at[:, None] * self.bins + np.arange(self.bins)).reshape(-1)
        whole = len(at) == self.width and bool((at == np.arange(len(at))).all())
        self._places[columns] = None if whole else at
        return self._places[columns]

    def push(self, frame: Frame, branch: int, room_bytes: float) -> int:
        """Copy a row in; returns the bytes of memory that this took from the room, or −1 where the row was dropped."""
        place = self.places(frame.columns)
        block = self._open
        if block is None or block.filled == block.capacity or block.width != self.width or block.branch != branch:
            block = self._next_block(branch)
        if block.row_bytes > room_bytes:
            self.dropped += 1
            return -1
        block.add(frame.step, frame.time, frame.values, place)
        self.floor_step = frame.step
        return block.row_bytes

    def _next_block(self, branch: int) -> RowBlock:
        if self._spare and self._spare[-1].width == self.width:
            block = self._spare.pop()
            block.branch = branch
        else:
            self._spare.clear()
            block = RowBlock(self.width, branch)
        if self._open is not None and self._open.filled:
            self._full.append(self._open)
        self._open = block
        return block

    @property
    def has_full_block(self) -> bool:
        """Whether a block waits that no row can be added to."""
        return bool(self._full)

    def take(self) -> tuple[tuple[str, ...], list[RowBlock]]:
        """All that waits: the columns that there are by now, and the blocks."""
        blocks = list(self._full)
        self._full.clear()
        if self._open is not None and self._open.filled:
            blocks.append(self._open)
            self._open = None
        return self.tags, blocks

    def give_back(self, block: RowBlock) -> int:
        """Return a written block for reuse; the bytes of room that this frees."""
        freed, block.filled = block.filled_bytes, 0
        if block.width == self.width and len(self._spare) < _SPARE_BLOCKS:
            self._spare.append(block)
        return freed
