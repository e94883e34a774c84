"""The series that processes which train together have in common."""

from collections.abc import Sequence

import numpy as np

from sonde.core.errors import TagNotFound
from sonde.core.records import Float64, Int64
from sonde.store.reader import Run


def between_ranks(run: Run, tags: Sequence[str]) -> dict[str, dict[int, tuple[Int64, Float64]]]:
    """Steps and values of each rank, by tag; nothing where there was only one.

    Of ranks that hold different parameters, as the stages of a pipeline do, only times can be compared.

    Args:
        run: That of the first rank.
        tags: The series; a rank that did not record one has no values in it.
    """
    ranks = run.ranks()
    if len(ranks) < 2:
        return {}
    parameters = {tuple(one.tags("weight/norm@*")) for one in ranks.values()}
    comparable = [tag for tag in tags if len(parameters) == 1 or tag.startswith("time/")]
    return {tag: {rank: _points(one, tag) for rank, one in ranks.items()} for tag in comparable}


def _points(run: Run, tag: str) -> tuple[Int64, Float64]:
    try:
        series = run.series(tag)
    except TagNotFound:
        return np.empty(0, np.int64), np.empty(0)
    return series.step, series.value.astype(np.float64)
