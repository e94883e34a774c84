"""The step of which there is least to tell: few gradients, all of them finite, that nothing has changed."""

import math

from sonde.core.records import Float64
from sonde.kernels.columns import NUM_COLUMNS, Column
from sonde.probes.optimizer_numbers import Part, StepNote

_FEW = 32  # tensors, whose norms are worked out faster one by one than as arrays


def plain_norms(note: StepNote, numbers: Float64) -> list[float] | None:
    """The norms of few gradients, all finite and neither clipped nor scaled; None where there is more to a step."""
    if len(note.keys) != 1 or note.clips or note.is_incomplete or note.has_layers or note.infinite:
        return None
    part, names, _ = note.keys[0]
    if part is not Part.GRADIENTS or not 0 < len(names) <= _FEW or len(numbers) != NUM_COLUMNS * len(names):
        return None
    values: list[float] = numbers.tolist()
    counts, nonfinite = values[Column.COUNT :: NUM_COLUMNS], values[Column.NONFINITE :: NUM_COLUMNS]
    if not all(counts) or any(nonfinite):
        return None
    moments = zip(counts, values[Column.MEAN :: NUM_COLUMNS], values[Column.M2 :: NUM_COLUMNS], strict=True)
    squares = [m2 + count * (mean * mean) for count, mean, m2 in moments]
    return list(map(math.sqrt, squares)) if math.isfinite(sum(squares)) else None
