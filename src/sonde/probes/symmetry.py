"""Units of a layer that are equal, and stay so."""

from collections.abc import Mapping
from functools import partial
from typing import final

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from sonde.core.records import Float64
from sonde.probes.apart import apart
from sonde.probes.facts import MOST_PLACES, Say, settle
from sonde.probes.hooks import readable
from sonde.probes.parameters import parameter_names
from sonde.probes.probe import Reading

_MOST_VALUES = 2**22
_ROUNDING = 1e-5


@final
class Symmetry:
    """Says `symmetric-units` where all rows of a weight matrix agree to 1 part in 10⁵ at both of two looks.

    Units that begin alike get the same gradient and stay alike. A zero-initialised output, or the second factor of a
    low-rank adapter, begins so too, but a few updates tell its rows apart. Only matrices that were changed between the
    looks count, those with two rows or more; embeddings do not.
    """

    def __init__(self, models: Mapping[str, nn.Module], say: Say) -> None:
        self._models, self._say = models, say
        self._first: dict[int, tuple[Tensor, int]] = {}

    def begin(self) -> None:
        """The first look, before or soon after the first step."""
        for _, parameter in self._matrices():
            self._first[id(parameter)] = _apartness(parameter), parameter._version

    def end(self) -> list[Reading]:
        """The second look, some ten steps later."""
        first, self._first = self._first, {}
        names, tensors = [], []
        for name, parameter in self._matrices():
            before = first.get(id(parameter))
            if before is not None and before[1] != parameter._version and before[0].device == parameter.device:
                names.append(name)
                tensors += [before[0], _apartness(parameter)]
        if not names or any(tensor.device != tensors[0].device for tensor in tensors):
            return []
        return settle(tensors, partial(self._judge, names))

    def _judge(self, names: list[str], numbers: Float64) -> None:
        alike = [name for name, pair in zip(names, numbers.reshape(-1, 2), strict=True) if (pair <= _ROUNDING).all()]
        if alike:
            self._say(
                "symmetric-units", {"where": alike[:MOST_PLACES], "num": len(alike), "value": len(alike) / len(names)}
            )

    def _matrices(self) -> list[tuple[str, Tensor]]:
        names = parameter_names(self._models)
        tables = {
            id(module.weight)
            for model in self._models.values()
            for module in model.modules()
            if isinstance(module, nn.Embedding | nn.EmbeddingBag)
        }
        found = {id(p): p for model in self._models.values() for p in model.parameters()}
        return [
            (names[key], p)
            for key, p in found.items()
            if key not in tables
            and p.requires_grad
            and not is_lazy(p)
            and p.dim() >= 2
            and p.shape[0] >= 2
            and p.numel() <= _MOST_VALUES
            and readable(p)
        ]


def _apartness(parameter: Tensor) -> Tensor:
    """The largest difference of a row from the first, relative to the largest value; 0 for a matrix of zeros."""
    with apart(parameter.device):
        rows = parameter.detach().flatten(1).float()
        return ((rows - rows[0]).abs().amax() / rows.abs().amax().clamp(min=1e-30)).double()
