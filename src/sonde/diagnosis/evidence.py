"""The table of causes and signs: what speaks for which cause, and how strongly.

A sign is a finding's code. A weight is a log-likelihood ratio: how much more often the sign is seen under the cause
than under others, as a natural logarithm (1.1 three times, 2.3 ten times); a cost is the same for its absence.
"""

from collections.abc import Sequence
from typing import NamedTuple

from sonde.core.causes import Cause


class Row(NamedTuple):
    """One cell of the table."""

    cause: Cause
    sign: str
    weight: float
    cost: float = 0.0
    why: str = ""


class Table:
    """The rows, by cause."""

    def __init__(self, rows: Sequence[Row], priors: dict[Cause, float]) -> None:
        self._rows: dict[Cause, list[Row]] = {}
        for row in rows:
            self._rows.setdefault(row.cause, []).append(row)
        self._priors = priors

    def prior(self, cause: Cause) -> float:
        """Log-odds before anything was seen."""
        return self._priors.get(cause, -1.0)

    def rows(self, cause: Cause) -> Sequence[Row]:
        """What speaks for or against a cause."""
        return self._rows.get(cause, ())


ROWS: tuple[Row, ...] = ()
PRIORS: dict[Cause, float] = {}
TABLE = Table(ROWS, PRIORS)
