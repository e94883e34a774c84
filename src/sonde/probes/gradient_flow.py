"""How the size of gradients changes from block to block."""

import itertools
from collections.abc import Iterator, Sequence
from typing import final

import numpy as np

from sonde.core.frames import MISSING, Columns, Detail
from sonde.core.records import Float64, Int64
from sonde.probes.probe import Row

_MOST_COLUMNS = 256  # which parameters have a gradient may change at every step (experts)


@final
class GradientFlow:
    """The flow ratio ‖g_l‖/‖g_l+1‖ of each block: the norm of all its gradients over that of the next block's.

    The next is the next that has gradients at this step. It is about all optimisers together, since the parameters of a
    block may be shared out among several. Missing where the next block's gradients are all zero.

    Args:
        blocks: For each model the names of its blocks in the order of depth (`sonde.probes.blocks`).
    """

    def __init__(self, blocks: Sequence[Sequence[str]]) -> None:
        self._blocks = [list(some) for some in blocks if len(some) > 1]
        self._names: tuple[str, ...] = ()
        self._norms: list[Float64] = []
        self._plans: dict[tuple[str, ...], tuple[Int64, Int64, Int64, Columns] | None] = {}

    def note(self, names: tuple[str, ...], norms: Float64) -> None:
        """An optimiser's gradients at this step, before clipping."""
        if self._blocks:
            self._names += names
            self._norms.append(norms)

    def __call__(self, _numbers: Float64) -> Iterator[Row]:
        """The row of the step whose gradients were noted."""
        names, norms, self._names, self._norms = self._names, self._norms, (), []
        if not norms:
            return
        if names not in self._plans:
            if len(self._plans) >= _MOST_COLUMNS:
                self._plans.clear()
            self._plans[names] = self._plan(names)
        plan = self._plans[names]
        if plan is None:
            return
        block, here, following, columns = plan
        values = np.concatenate(norms)
        largest = np.max(values)
        with np.errstate(divide="ignore", invalid="ignore"):
            scaled = values / largest if 0 < largest < np.inf else values  # squares stay in range
            squares = np.bincount(block, scaled * scaled)
            ratios = np.sqrt(squares[here] / squares[following])
        yield Row(columns, np.where(squares[following] == 0, MISSING, ratios))

    def _plan(self, names: tuple[str, ...]) -> tuple[Int64, Int64, Int64, Columns] | None:
        """The number of each parameter's block, 0 for none; those of blocks that have a next, and of their next."""
        numbers: dict[str, int] = {}
        for some in self._blocks:
            numbers.update({block: len(numbers) + place for place, block in enumerate(some, 1)})
        of_parameters = [next((numbers[part] for part in _outer(name) if part in numbers), 0) for name in names]
        present = set(of_parameters)
        pairs = []
        for some in self._blocks:
            there = [block for block in some if numbers[block] in present]
            pairs += list(itertools.pairwise(there))
        if not pairs:
            return None
        here, following = (np.array([numbers[block] for block in blocks]) for blocks in zip(*pairs, strict=True))
        columns = Columns("gradient-flow", [f"grad/flow@{block}" for block, _ in pairs], Detail.LAYER)
        return np.array(of_parameters), here, following, columns


def _outer(name: str) -> Iterator[str]:
    """The modules that a parameter lies in, the innermost first."""
    while "." in name:
        name = name.rpartition(".")[0]
        yield name
