"""Series of several tables side by side, a row a step."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from sonde.core.frames import is_missing
from sonde.store.segments import column_names
from sonde.store.table_reader import Rows


def outer_join(tags: Sequence[str], pieces: Sequence[tuple[Sequence[int], Rows]]) -> pa.Table:
    """One Arrow table of `step`, `time` and the tags, with all steps of all pieces.

    Args:
        tags: The columns, in order.
        pieces: For each table that has some of them: their places in `tags`, and their rows.
    """
    steps = np.unique(np.concatenate([np.empty(0, np.int64), *(rows.step for _, rows in pieces)]))
    times = np.full(len(steps), np.nan)
    values = np.zeros((len(tags), len(steps)), np.float32)
    empty = np.ones((len(tags), len(steps)), bool)
    for places, rows in pieces:
        at = np.searchsorted(steps, rows.step)
        times[at[::-1]] = rows.time[::-1]  # the first row of a step says when it was
        for i, place in enumerate(places):
            measured = ~is_missing(rows.values[i])
            values[place, at[measured]] = rows.values[i][measured]
            empty[place, at[measured]] = False
    columns = [pa.array(values[i], mask=empty[i]) for i in range(len(tags))]
    names = ["step", "time", *column_names(tags)]
    return pa.Table.from_arrays([pa.array(steps), pa.array(times), *columns], names=names)
