"""Which column of a table a tag is: a file that only grows, searched without being parsed as a whole.

One JSON object a line: `{"first": 2000, "bins": 1, "tags": [...]}` with at most 1,000 tags. A million tags are some 40
MB: a search for one of them is a search for its quoted bytes, and only the line where it stands is parsed.
"""

import json
import mmap
from collections.abc import Callable, Sequence
from pathlib import Path

from sonde.core import strict_json
from sonde.core.errors import FormatError
from sonde.core.json_fields import list_of, member, text, whole
from sonde.core.strict_json import Json
from sonde.store import opening
from sonde.store.breath import breathe
from sonde.store.layout import COLUMNS, IN_TABLE, TABLES, read_lines
from sonde.store.lines import Appender

TAGS_A_LINE = 1000
_MAX_COLUMNS = 10_000_000
_MAX_BINS = 1 << 16
_LINE_BYTES = 8 << 20
_SMALL_BYTES = 64 << 10


def append(folder: Path, tags: Sequence[str], first: int, last: int, bins: int) -> None:
    """Add the columns `first` to `last` (not included) to a table's file, a line at a time.

    Raises:
        OSError: the disk refused. Calling again with the same columns is right: of lines that stand twice, the first
            counts.
    """
    file = Appender(folder / COLUMNS, depth=IN_TABLE)
    try:
        for start in range(first, last, TAGS_A_LINE):
            line = {"first": start, "bins": bins, "tags": tags[start : min(start + TAGS_A_LINE, last)]}
            file.queue((strict_json.dumps(line) + "\n").encode())
            file.drain()
            breathe()
    finally:
        file.close()


def read_tags(folder: Path, problem: Callable[[str], None] | None = None) -> list[str]:
    """All tags of a table in the order of its columns; `problem` is told of what cannot be read."""
    tags: list[str] = []
    for line in read_lines(folder / COLUMNS, depth=IN_TABLE, problem=problem):
        try:
            first, more = _line(line)
        except FormatError as error:
            if problem is not None:
                problem(str(error))
            continue
        if first == len(tags):
            tags.extend(more)
    return tags


def _line(line: Json) -> tuple[int, tuple[str, ...]]:
    """The number of a line's first column, and its tags."""
    first = member(line, "first", whole)
    if not 0 <= first <= _MAX_COLUMNS:
        raise FormatError(f"first: expected 0 to {_MAX_COLUMNS:,}, got {first}.")
    return first, member(line, "tags", list_of(text))


class ColumnIndex:
    """Finds tags in a table's file, which may still be growing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._size = -1
        self._tags: list[str] = []
        self._known: dict[str, int] = {}
        self._bins: int | None = None
        self.problem = ""
        """What could not be read of it, and why."""

    @property
    def bins(self) -> int:
        """Numbers that a tag has in each row."""
        if self._bins is None:
            if self._folder.parent.name == TABLES:
                self._bins = 1
            else:
                first = next(iter(read_lines(self._folder / COLUMNS, depth=IN_TABLE)), None)
                if not isinstance(first, dict):
                    return 1  # nothing was recorded yet
                bins = first.get("bins")
                self._bins = (
                    bins if isinstance(bins, int) and not isinstance(bins, bool) and 0 < bins <= _MAX_BINS else 1
                )
        return self._bins

    def find(self, tag: str) -> int | None:
        """The column of a tag, None where the table has no such tag."""
        if tag in self._known:
            return self._known[tag]
        if self.num_bytes <= _SMALL_BYTES:  # as of nearly all tables: it is read once, and not for each tag again
            tags = self.tags()
            if not self.problem:
                if len(self._known) < len(tags):
                    self._known = {own: column for column, own in reversed(list(enumerate(tags)))}
                return self._known.get(tag)
        column = self._search(tag)
        if column is not None:
            self._known[tag] = column
        return column

    def tags(self) -> list[str]:
        """All tags, in the order of their columns."""
        size = self.num_bytes
        if size != self._size:
            self.problem = ""
            self._tags, self._size = read_tags(self._folder, self._note), size
        return self._tags

    def _note(self, problem: str) -> None:
        self.problem = self.problem or problem

    @property
    def num_bytes(self) -> int:
        """The length of the file; 0 where it is not there."""
        try:
            return (self._folder / COLUMNS).stat(follow_symlinks=False).st_size
        except OSError:
            return 0

    def _search(self, tag: str) -> int | None:
        try:
            with opening.reading(self._folder / COLUMNS, depth=IN_TABLE) as file:
                size = opening.stored_bytes(file.fileno())
                if not size:  # a map of no bytes is one of the whole file
                    return None
                with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data:
                    return _find(data, tag)
        except OSError:  # not there yet, or not to be opened
            return None


def _find(data: mmap.mmap, tag: str) -> int | None:
    quoted = json.dumps(tag).encode()
    place = data.find(quoted)
    while place >= 0:
        start, end = data.rfind(b"\n", 0, place) + 1, data.find(b"\n", place)
        end = len(data) if end < 0 else end  # the last line may be torn
        try:
            if end - start > _LINE_BYTES:
                raise FormatError("the line is too long.")
            first, tags = _line(strict_json.loads(data[start:end]))
            return first + tags.index(tag)
        except ValueError:  # not a line of columns, or not one of its tags
            place = data.find(quoted, end)
    return None
