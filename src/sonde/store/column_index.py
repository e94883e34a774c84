"""Which column of a table a tag is: a file that only grows, searched without being parsed as a whole.

One JSON object a line: `{"first": 2000, "bins": 1, "tags": [...]}` with at most 1,000 tags. A million tags are some 40
MB: a search for one of them is a search for its quoted bytes, and only the line where it stands is parsed.
"""

import json
import mmap
from collections.abc import Sequence
from pathlib import Path

from sonde.core import strict_json
from sonde.core.errors import FormatError
from sonde.store.breath import breathe
from sonde.store.layout import COLUMNS, TABLES, read_lines
from sonde.store.lines import Appender

TAGS_A_LINE = 1000


def append(folder: Path, tags: Sequence[str], first: int, last: int, bins: int) -> None:
    """Add the columns `first` to `last` (not included) to a table's file, a line at a time.

    Raises:
        OSError: the disk refused. Calling again with the same columns is right: of lines that stand twice, the first
            counts.
    """
    file = Appender(folder / COLUMNS)
    try:
        for start in range(first, last, TAGS_A_LINE):
            line = {"first": start, "bins": bins, "tags": tags[start : min(start + TAGS_A_LINE, last)]}
            file.queue((strict_json.dumps(line) + "\n").encode())
            file.drain()
            breathe()
    finally:
        file.close()


def read_tags(folder: Path) -> list[str]:
    """All tags of a table in the order of its columns."""
    tags: list[str] = []
    for line in read_lines(folder / COLUMNS):
        if isinstance(line, dict) and line.get("first") == len(tags) and isinstance(line.get("tags"), list):
            tags.extend(line["tags"])
    return tags


class ColumnIndex:
    """Finds tags in a table's file, which may still be growing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._size = -1
        self._tags: list[str] = []
        self._known: dict[str, int] = {}
        self._bins: int | None = None

    @property
    def bins(self) -> int:
        """Numbers that a tag has in each row."""
        if self._bins is None:
            if self._folder.parent.name == TABLES:
                self._bins = 1
            else:
                first = next(iter(read_lines(self._folder / COLUMNS)), None)
                if not isinstance(first, dict):
                    return 1  # nothing was recorded yet
                bins = first.get("bins")
                self._bins = bins if isinstance(bins, int) and bins > 0 else 1
        return self._bins

    def find(self, tag: str) -> int | None:
        """The column of a tag, None where the table has no such tag."""
        if tag in self._known:
            return self._known[tag]
        column = self._search(tag)
        if column is not None:
            self._known[tag] = column
        return column

    def tags(self) -> list[str]:
        """All tags, in the order of their columns."""
        size = self._file_size()
        if size != self._size:
            self._tags, self._size = read_tags(self._folder), size
        return self._tags

    def _file_size(self) -> int:
        try:
            return (self._folder / COLUMNS).stat().st_size
        except OSError:
            return 0

    def _search(self, tag: str) -> int | None:
        try:
            with (
                (self._folder / COLUMNS).open("rb") as file,
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
            ):
                quoted = json.dumps(tag).encode()
                place = data.find(quoted)
                while place >= 0:
                    start, end = data.rfind(b"\n", 0, place) + 1, data.find(b"\n", place)
                    end = len(data) if end < 0 else end  # the last line may be torn
                    try:
                        line = strict_json.loads(data[start:end])
                        return int(line["first"]) + int(line["tags"].index(tag))
                    except (FormatError, ValueError, KeyError, TypeError, AttributeError):
                        place = data.find(quoted, end)
        except (OSError, ValueError):  # not there yet, or still empty
            return None
        return None
