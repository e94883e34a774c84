"""The loss of each example of an evaluation: how such rows are told apart from histograms, beside which they lie."""

from typing import NamedTuple

from sonde.core.frames import Columns, Detail, Float32

TAG = "val/losses"
MOST = 1 << 20
"""Examples whose losses are kept of one evaluation: 4 MB."""

_TABLES = "examples-"


class ExampleLosses(NamedTuple):
    """What each example of an evaluation cost, in the order of the validation set."""

    step: int
    value: Float32
    time: float
    """UTC, seconds since 1970."""


def columns_of(num_examples: int) -> Columns:
    """The table for evaluations of so many examples, at least 2: each number of them has a table of its own.

    Example:
        >>> columns_of(500).table, columns_of(500).bins, is_of_examples("examples-500")
        ('examples-500', 500, True)
    """
    return Columns(f"{_TABLES}{num_examples}", (TAG,), Detail.LAYER, num_examples)


def is_of_examples(table: str) -> bool:
    """Whether a table holds losses of examples, not histograms."""
    return table.startswith(_TABLES)
