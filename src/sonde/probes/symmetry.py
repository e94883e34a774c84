"""Units of a layer that are equal, and stay so."""

from collections.abc import Mapping
from functools import partial
from typing import final

from torch import Tensor, nn

from sonde.core.records import Float64
from sonde.probes.apart import apart
from sonde.probes.facts import Facts
from sonde.probes.hooks import readable
from sonde.probes.parameters import embedding_tables, of_models, parameter_names

_MOST_VALUES = 2**22
_ROUNDING = 1e-5


@final
class Symmetry:
    """Says `symmetric-units` where all rows of a weight matrix agree to 1 part in 10⁵ at both of two looks.

    Units that begin alike get the same gradient and stay alike. A zero-initialised output, or the second factor of a
    low-rank adapter, begins so too, but a few updates tell its rows apart. Only matrices that were changed between the
    looks count, those with two rows or more; embeddings do not.
    """

    def __init__(self, models: Mapping[str, nn.Module], facts: Facts) -> None:
        self._models, self._facts = models, facts
        self._first: dict[int, tuple[Tensor, int]] = {}

    def begin(self) -> None:
        """The first look, before or soon after the first step."""
        self._first = {id(p): (_apartness(p), p._version) for p in self._matrices()}

    def end(self) -> None:
        """The second look, some ten steps later."""
        first, self._first = self._first, {}
        names = parameter_names(self._models)
        changed: list[str] = []
        tensors: list[Tensor] = []
        for parameter in self._matrices():
            before, version = first.get(id(parameter), (None, 0))
            if before is not None and version != parameter._version and before.device == parameter.device:
                changed.append(names[id(parameter)])
                tensors += [before, _apartness(parameter)]
        if changed and len({tensor.device for tensor in tensors}) == 1:
            self._facts.judge(tensors, partial(self._judge, changed))

    def _judge(self, names: list[str], numbers: Float64) -> None:
        alike = [name for name, pair in zip(names, numbers.reshape(-1, 2), strict=True) if (pair <= _ROUNDING).all()]
        if alike:
            self._facts.say("symmetric-units", alike, num=len(alike), value=len(alike) / len(names))

    def _matrices(self) -> list[Tensor]:
        tables = embedding_tables(self._models)
        some = [p for p in of_models(self._models) if p.requires_grad and id(p) not in tables and readable(p)]
        return [p for p in some if p.dim() >= 2 and p.shape[0] >= 2 and p.numel() <= _MOST_VALUES]


def _apartness(parameter: Tensor) -> Tensor:
    """The largest difference of a row from the first, relative to the largest value; 0 for a matrix of zeros."""
    with apart(parameter.device):
        rows = parameter.detach().flatten(1).float()
        return ((rows - rows[0]).abs().amax() / rows.abs().amax().clamp(min=1e-30)).double()
