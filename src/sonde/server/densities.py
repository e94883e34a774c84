"""Histograms over time as one matrix."""

from typing import Any

import numpy as np

from sonde.core.errors import TagNotFound
from sonde.server import binary
from sonde.sinks import bins
from sonde.store.reader import Run


def histograms(run: Run, tag: str, *, start: int | None, end: int | None, rows: int) -> bytes:
    """The histograms of a tag, a row a time, a column a bin; bins that are empty in all rows are cut at both ends.

    Args:
        run: The run.
        tag: Of the histogram.
        start: First step wanted.
        end: Last step wanted, included.
        rows: The most rows: of more, so many are taken evenly, the newest among them.
    """
    header: dict[str, Any] = {
        "schema": 1,
        "tag": tag,
        "rows": 0,
        "columns": 0,
        "steps": [],
        "edges": None,
        "offset": 0,
    }
    try:
        step, counts, _ = run.histogram(tag, start=start, end=end)
    except TagNotFound as error:
        return binary.packed({**header, "reason": str(error)}, [])
    if not len(step):
        return binary.packed({**header, "reason": "nothing was measured there"}, [])
    if len(step) > rows:
        at = np.unique(np.linspace(len(step) - 1, 0, rows).round().astype(np.intp))
        step, counts = step[at], counts[at]
    used = np.flatnonzero(counts.any(axis=0))
    first, last = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 0)
    edges = bins.EDGES[first : last + 1].tolist() if counts.shape[1] == bins.NUM_BINS and len(used) else None
    counts = counts[:, first:last]
    header |= {"rows": len(step), "columns": counts.shape[1], "steps": step.tolist(), "edges": edges}
    return binary.packed(header, [binary.float32(counts)])
