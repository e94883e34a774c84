"""A frame: what one table learned at one step.

It is the unit that travels from the probes to the rules, the store and the sinks.
"""

import enum
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sonde.core.tags import check_tag

Float32 = npt.NDArray[np.float32]

_TABLE = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")

# "Not measured" inside a row. A NaN with a payload of its own, so that a NaN that *was* measured stays a
# NaN: told apart by their bits (`is_missing`), both survive a copy and become null and NaN in Parquet.
MISSING_BITS = np.uint32(0x7FC50DE0)
MISSING = np.array(MISSING_BITS).view(np.float32)[()]


class Detail(enum.IntEnum):
    """How much detail a table holds.

    When the disk cannot keep up, the highest number is dropped first, `ESSENTIAL` never.
    """

    ESSENTIAL = 0
    """The loss, the learning rate, global norms."""
    LAYER = 1
    """Statistics of each parameter or module."""
    DISTRIBUTION = 2
    """Histograms and sketches."""


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """The table that frames go to and the tags of their values, in order.

    Make it once and share it between frames.

    Args:
        table: Name of the table: lower-case letters, digits, `_` and `-`. One a cadence and family.
        tags: One a value (see `sonde.core.tags`); no tag twice.
        detail: What may be dropped when the disk is slow.
        bins: Numbers a tag has in each frame: 1 for plain series, more for histograms.

    Example:
        >>> Columns("step", ("loss", "lr")).tags
        ('loss', 'lr')
    """

    table: str
    tags: Sequence[str]
    detail: Detail = Detail.ESSENTIAL
    bins: int = 1
    width: int = field(init=False)

    def __post_init__(self) -> None:
        if not _TABLE.fullmatch(self.table):
            raise ValueError(
                f"`Columns(table=...)` must be 1-64 lower-case letters, digits, '_' or '-', got {self.table!r}."
            )
        if self.bins < 1:
            raise ValueError(f"`Columns(bins=...)` must be at least 1, got {self.bins}.")
        tags = tuple(self.tags)
        if len(set(tags)) != len(tags):
            twice = Counter(tags).most_common(1)[0][0]  # one pass: a large model has a million tags
            raise ValueError(f"`Columns(tags=...)` has {twice!r} twice; each tag may stand once.")
        for tag in tags:
            check_tag(tag)
        object.__setattr__(self, "tags", tags)
        object.__setattr__(self, "width", len(tags) * self.bins)


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One row: the values of `columns` at a step.

    Args:
        columns: What the values are.
        step: The step that they belong to.
        time: UTC, seconds since 1970.
        values: float32, `columns.width` of them; `MISSING` where something was not measured, NaN where NaN
            was measured.
    """

    columns: Columns
    step: int
    time: float
    values: Float32


def is_missing(values: Float32) -> npt.NDArray[np.bool_]:
    """Where a row was not measured (a measured NaN is not missing).

    Example:
        >>> is_missing(np.array([1, MISSING, np.nan], dtype=np.float32)).tolist()
        [False, True, False]
    """
    missing: npt.NDArray[np.bool_] = np.ascontiguousarray(values).view(np.uint32) == MISSING_BITS
    return missing
