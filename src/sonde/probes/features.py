"""How the features of what a model is given differ in scale."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from sonde.core.records import Float64
from sonde.probes.batches import inputs_of, is_state
from sonde.probes.inputs import FEATURES
from sonde.probes.probe import Reading, Row, columns_at
from sonde.probes.roots import Roots
from sonde.probes.stopwatch import Stopwatch

_YIELDS = {
    "batch/scale_spread@": "largest standard deviation of a feature over the smallest that is not zero",
    "batch/feature_std_max@": "largest standard deviation of a feature",
    "batch/feature_mean_absmax@": "largest magnitude of a feature's mean",
}


@final
class Features:
    """Measures the features of the floating-point inputs of each model's first grad-enabled forward in an iteration.

    Inputs and their names are those of `Batches`. Features are the last dimension of a 2-D or 3-D input, and dimension
    1 of inputs of more (images); their statistics are of samples spread evenly over the batch, about 260,000 values.
    With x_ij the finite values of feature j,

        scale_spread = max_j std_j / min_{j: std_j > 0} std_j

    and `MISSING` where all features are constant. A vector has none.

    Args:
        models: By name.
    """

    yields = _YIELDS

    def __init__(self, models: Mapping[str, nn.Module], *, clock: Stopwatch | None = None) -> None:
        self._roots = Roots(models, clock)
        self._seen: set[str] = set()
        self._found: dict[str, Tensor] = {}
        self._others: dict[str, torch.Size] = {}
        """Shapes of the inputs of the present forward but the first."""

    @property
    def num_slots(self) -> int:
        """All is measured together."""
        return 1 if len(self._roots) else 0

    def arm(self, slots: Sequence[int]) -> None:
        """Look at what the models are given in this iteration."""
        self._seen, self._found = set(), {}
        self._roots.attach(self._given, self._gave)

    def collect(self) -> Sequence[Reading]:
        """What was found, in one row."""
        found, self._found = self._found, {}
        self._roots.release()
        if not found:
            return []
        # What lies on the CPU is read here, as in `Batches`.
        here = {place: numbers.numpy() for place, numbers in found.items() if numbers.is_cpu}
        away = [numbers for numbers in found.values() if not numbers.is_cpu]
        return [Reading(away, partial(self._report, tuple(found), here))]

    def not_measured(self) -> Mapping[str, str]:
        """Nothing of its own: inputs that cannot be seen are named by `Batches`."""
        return {}

    def close(self) -> None:
        """Let go of the models and of what was found."""
        self._found = {}
        self._roots.close()

    def _given(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if name in self._seen:
            return
        self._seen.add(name)
        self._others = {}
        for i, (place, tensor) in enumerate(inputs_of(args, kwargs)):
            if tensor.is_floating_point() and tensor.dim() > 1:
                with torch.no_grad():
                    # A subclass of tensors may give operations another meaning.
                    numbers = FEATURES.take(tensor.detach().as_subclass(Tensor))
                where = ".".join(filter(None, (name, place)))
                self._found[where] = numbers
                if i:
                    self._others[where] = tensor.shape

    def _gave(self, _name: str, output: Any) -> None:
        others, self._others = self._others, {}
        for where, shape in others.items():
            if is_state(shape, output):
                self._found.pop(where, None)

    def _report(self, places: tuple[str, ...], here: Mapping[str, Float64], numbers: Float64) -> Iterable[Row]:
        arrived = iter(numbers.reshape(-1, len(_YIELDS)))
        values = [FEATURES.values(here[place] if place in here else next(arrived)) for place in places]
        names = [tag.removeprefix("batch/").removesuffix("@") for tag in _YIELDS]
        ordered = np.array([one[name] for one in values for name in names], np.float64)
        return [Row(columns_at("features", tuple(_YIELDS), places), ordered)]
