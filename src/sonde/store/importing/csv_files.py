"""A CSV file as a log: a row a step or an epoch, a column a series."""

import csv
import io
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from sonde.core.errors import FormatError, RunNotFound
from sonde.store import opening
from sonde.store.importing.foreign import Log, Logged, moment, number
from sonde.store.importing.foreign import step as whole
from sonde.store.importing.steps import is_epoch, step_columns, time_columns

_SAMPLE_CHARS = 65_536
_LINE_CHARS = 16 << 20


def read(source: str, run: str | None = None) -> Log:
    """The columns of a file that hold numbers.

    The step is the column called `step`, `global_step`, `iteration` and the like, else `epoch`; where there is none, or
    it does not tell rows apart (the number of a batch begins anew in every epoch, several rows of an epoch), rows are
    counted. An empty field was not measured. Text is left out. The separator is `,`, `;` or a tab.

    Raises:
        RunNotFound: there is no such file.
        FormatError: it has no header, no numbers, or is not text.
    """
    path = Path(source)
    if run is not None:
        raise FormatError("a CSV file holds one run; leave --run out.")
    if not path.is_file():
        raise RunNotFound(f"{path} does not exist or is not a file; name a CSV file with a header.")
    try:
        plan = _plan(path)
    except (UnicodeDecodeError, csv.Error) as error:
        raise FormatError(f"{path} is not a CSV file in UTF-8: {error}.") from error
    notes = []
    if plan.step is None:
        notes.append(f"no column tells the rows apart by step, so rows are counted from {_FIRST_ROW}")
    elif is_epoch(plan.step):
        notes.append(f"a step is an epoch: the column '{plan.step}'")
    return Log(name=path.stem, entries=_entries(path, plan), time=path.stat().st_mtime, notes=notes)


_FIRST_ROW = 1


@dataclass(frozen=True, slots=True)
class _Plan:
    separator: str
    step: str | None
    time: str | None
    is_newest_first: bool


def _plan(path: Path) -> _Plan:
    """What a first look at the whole file tells."""
    with _opened(path) as file:
        head = file.readline(_SAMPLE_CHARS)
        separator = max(",;\t", key=head.count)
        file.seek(0)
        rows = _rows(file, separator)
        first = next(rows, None)
        if first is None:
            raise FormatError(f"{path} has no row of numbers below its header.")
        names = list(first)
        if all(number(name) is not None for name in names):
            raise FormatError(f"{path} has no header; put the names of its columns into the first line.")
        looks = [_Look(name, names) for name in step_columns(names)]
        when = [name for name in time_columns(names) if name not in (look.name for look in looks)]
        for row in itertools.chain([first], rows):
            for look in looks:
                look.take(row)
            when = [name for name in when if not row[name] or moment(row[name]) is not None]
    best = next((look for look in looks if look.is_good), None)
    return _Plan(
        separator, best.name if best else None, when[0] if when else None, best is not None and best.is_newest_first
    )


class _Look:
    """Whether a column can say the step."""

    def __init__(self, name: str, names: list[str]) -> None:
        self.name = name
        self._epoch = next((other for other in names if is_epoch(other) and other != name), None)
        self._last: int | None = None
        self._last_epoch: float | None = None
        self._filled: set[str] = set()
        self._num_up = self._num_down = 0
        self._is_whole = True
        self._is_repeated = False
        self._num_with_epoch = 0

    def take(self, row: dict[str, str]) -> None:
        """Look at one more row."""
        step = whole(row[self.name])
        if step is None:
            self._is_whole = False
            return
        epoch = number(row[self._epoch]) if self._epoch else None
        filled = {name for name, value in row.items() if value and name not in (self.name, self._epoch)}
        if self._last is not None:
            self._num_up += step > self._last
            self._num_down += step < self._last
            if step < self._last and epoch is not None and self._last_epoch is not None and epoch > self._last_epoch:
                self._num_with_epoch += 1
            if step == self._last:
                # One step in several rows is fine where each has other columns, as Lightning writes them.
                self._is_repeated |= bool(self._filled & filled)
                filled |= self._filled
        self._last, self._filled = step, filled
        self._last_epoch = epoch if epoch is not None else self._last_epoch

    @property
    def is_good(self) -> bool:
        """Whole numbers that do not begin anew in every epoch, no number of one step twice."""
        return self._is_whole and not self._is_repeated and not self._num_with_epoch

    @property
    def is_newest_first(self) -> bool:
        return self._num_down > 1 and not self._num_up


def _entries(path: Path, plan: _Plan) -> Iterator[Logged]:
    with _opened(path) as file:
        rows: Iterator[dict[str, str]] = _rows(file, plan.separator)
        if plan.is_newest_first:
            rows = reversed(list(rows))
        for count, row in enumerate(rows, start=_FIRST_ROW):
            step = count if plan.step is None else whole(row[plan.step])
            assert step is not None
            time = moment(row[plan.time]) if plan.time else None
            for name, text in row.items():
                if name in (plan.time, plan.step) and not (plan.step and name == plan.step and is_epoch(name)):
                    continue
                value = number(text)
                if value is not None:
                    yield Logged(name, step, value, time)


def _opened(path: Path) -> TextIO:
    return io.TextIOWrapper(opening.reading_below(path, path), encoding="utf-8-sig", newline="")


def _lines(file: TextIO) -> Iterator[str]:
    while line := file.readline(_LINE_CHARS):
        if len(line) == _LINE_CHARS:
            raise FormatError(f"a line has more than {_LINE_CHARS:,} characters; it is no CSV file.")
        yield line


def _rows(file: TextIO, separator: str) -> Iterator[dict[str, str]]:
    """Each row by its columns, empty where it is shorter than the header; what is longer is cut."""
    reader = csv.reader(_lines(file), delimiter=separator)
    header = [name.strip() for name in next(reader, [])]
    for row in reader:
        if any(field.strip() for field in row):
            padded = (*row, *[""] * (len(header) - len(row)))
            yield {name: field.strip() for name, field in zip(header, padded, strict=False) if name}
