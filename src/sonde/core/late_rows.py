"""Rows that are known only some steps after the step that they belong to."""

from dataclasses import replace

from sonde.core.frames import Frame, is_missing

LAG = "spectrum/lag_steps"
"""The tag that says how many steps later."""
TABLES = "spectra"
"""How the names of their tables begin."""


def as_known(frame: Frame) -> Frame:
    """A row at the step at which it was known: rules judge it there, live and in a replay alike.

    Example:
        >>> import numpy as np
        >>> from sonde.core.frames import Columns
        >>> columns = Columns("spectra-0", ("spectrum/largest@w", LAG))
        >>> as_known(Frame(columns, 100, 0.0, np.array([2.0, 7.0], np.float32))).step
        107
    """
    if not frame.columns.table.startswith(TABLES) or LAG not in frame.columns.tags:
        return frame
    lag = frame.values[frame.columns.tags.index(LAG)]
    return frame if is_missing(lag) else replace(frame, step=frame.step + int(lag))
