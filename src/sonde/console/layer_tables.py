"""The verbose form: tables of every parameter's gradient, as its rows come."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, final

from sonde.core import printable
from sonde.core.frames import Columns, Detail, Frame, is_missing
from sonde.core.quantities import number

GRADIENTS_STEPS, DISTRIBUTIONS_STEPS = 100, 1000
"""Steps between two tables of each kind."""
LEAST_RATIO, LARGEST_RATIO = 1e-7, 0.1
"""Of an update to its weight, whatever the phase: beyond them the learning rate hardly fits (SPEC D6)."""

_GRADIENTS = {"norm": "grad/norm", "mean": "grad/mean", "std": "grad/std", "update ratio": "update/ratio"}
_DISTRIBUTIONS = {
    "min": "grad/min",
    "p25": "grad/p25",
    "median": "grad/p50",
    "p75": "grad/p75",
    "p95": "grad/p95",
    "max": "grad/max",
}
_SHOWN = frozenset({*_GRADIENTS.values(), *_DISTRIBUTIONS.values()})
_MOST_ROWS = 256  # parameters that have their turns apart have columns apart


class _Measured(NamedTuple):
    step: int
    value: float


@final
class LayerTables:
    """Told rows as they are recorded; says a table after each hundredth and each thousandth step.

    A number is the newest there is, and beside it stands the step it is of: parameters are measured in turns.

    Args:
        say: Given each table, in lines.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._rows: dict[Columns, Frame] = {}
        self._newest: dict[str, dict[str, _Measured]] = {path: {} for path in _SHOWN}
        self._step: int | None = None
        self._is_due = False

    def take(self, frame: Frame) -> None:
        """A row, on the thread that records it; the row of a step comes before all others of that step."""
        columns = frame.columns
        if columns.table == "step":
            self.rest()
            last = frame.step - 1 if self._step is None else self._step
            self._is_due = frame.step // GRADIENTS_STEPS > last // GRADIENTS_STEPS
            self._step = frame.step
        elif columns.detail is Detail.LAYER and columns.table.startswith(("gradients", "updates", "percentiles")):
            if len(self._rows) >= _MOST_ROWS and columns not in self._rows:
                self._note_rows()
            self._rows[columns] = frame

    def rest(self) -> None:
        """Say the table that is due, at the end too."""
        if not self._is_due or self._step is None:
            return
        self._is_due = False
        self._note_rows()
        self._tell("gradients", _GRADIENTS, self._step)
        self._warn(self._step)
        if self._step % DISTRIBUTIONS_STEPS < GRADIENTS_STEPS:
            self._tell("distribution of gradients", _DISTRIBUTIONS, self._step)

    def _note_rows(self) -> None:
        for frame in sorted(self._rows.values(), key=lambda frame: frame.step):
            there = (~is_missing(frame.values)).tolist()
            for tag, value, is_there in zip(frame.columns.tags, frame.values.tolist(), there, strict=True):
                path, _, where = tag.partition("@")
                if is_there and path in _SHOWN:
                    self._newest[path][where] = _Measured(frame.step, value)
        self._rows.clear()

    def _tell(self, what: str, columns: Mapping[str, str], step: int) -> None:
        found = [self._newest[path] for path in columns.values()]
        names = list(dict.fromkeys(name for some in found for name in some))
        if names:
            rows = [("", *columns, "measured at"), *(self._row(name, found) for name in names)]
            self._say("\n".join([f"Sonde: {what}, step {step:,}", *_aligned(rows)]))

    def _row(self, name: str, found: Sequence[Mapping[str, _Measured]]) -> tuple[str, ...]:
        measured = [some.get(name) for some in found]
        steps = sorted({point.step for point in measured if point is not None})
        when = f"{steps[0]:,}" if len(steps) == 1 else f"{steps[0]:,}-{steps[-1]:,}"
        return printable.one_line(name), *("–" if point is None else number(point.value) for point in measured), when

    def _warn(self, step: int) -> None:
        """Name the parameters whose update is out of all proportion, the largest first."""
        ratios = {name: point.value for name, point in self._newest["update/ratio"].items()}
        outside = {name: ratio for name, ratio in ratios.items() if not LEAST_RATIO <= ratio <= LARGEST_RATIO}
        if outside:
            named = sorted(outside, key=lambda name: -outside[name])
            said = ", ".join(f"{printable.one_line(name)} {number(outside[name])}" for name in named)
            usual = f"{number(LEAST_RATIO)} to {number(LARGEST_RATIO)}"
            self._say(f"Sonde: ! update ratio outside {usual}, step {step:,}: {said}")


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Names to the left, numbers to the right."""
    first, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    for name, *numbers in rows:
        cells = (text.rjust(width) for text, width in zip(numbers, others, strict=True))
        yield "  ".join([f"  {name.ljust(first)}", *cells])
