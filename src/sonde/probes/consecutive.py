"""Cosines between steps that follow each other, from sketches alone."""

from collections.abc import Callable

import torch
from torch import Tensor

from sonde.kernels.sketch_products import sketch_products


class Consecutive:
    """Compares the sketches of the same tensors at two steps in a row, without keeping the tensors.

    Args:
        compare: What is asked of (now, before); by default the three inner products of `sketch_products`.
    """

    def __init__(self, compare: Callable[[Tensor, Tensor], Tensor] = sketch_products) -> None:
        self._compare = compare
        self._last: tuple[int, tuple[str, ...], Tensor] | None = None

    def take(self, iteration: int, names: tuple[str, ...], sketch: Tensor) -> Tensor | None:
        """The comparison with the iteration before; None where that had no sketch of the same tensors."""
        last, self._last = self._last, (iteration, names, sketch)
        if last is None or last[0] != iteration - 1 or last[1] != names:
            return None
        return self._compare(sketch, last[2])


class ConsecutiveChanges:
    """The same for changes: a sketch is linear, so the change's is the difference of two sketches.

    Sketches are in float32: of a change below 1e-6 of the tensor's norm, rounding is a fifth.
    """

    def __init__(self) -> None:
        self._changes = Consecutive(torch.sub)
        self._cosines = Consecutive()

    def take(self, iteration: int, names: tuple[str, ...], sketch: Tensor) -> Tensor | None:
        """The comparison of the last change with the one before it."""
        change = self._changes.take(iteration, names, sketch)
        return None if change is None else self._cosines.take(iteration, names, change)
