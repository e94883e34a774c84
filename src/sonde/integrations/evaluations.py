"""The validation loss of a script that does not say it: the loss of the training, called without gradients."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from sonde.integrations.losses import Call
from sonde.integrations.splits import Place


@dataclass
class Sums:
    """Of one evaluation, on the device."""

    loss: Tensor
    size: int | Tensor
    values: int
    rows: int

    def add(self, other: "Sums") -> None:
        """One more call."""
        self.loss = self.loss.to(other.loss.device) + other.loss
        size = self.size.to(other.loss.device) if isinstance(self.size, Tensor) else self.size
        self.size, self.values, self.rows = size + other.size, self.values + other.values, self.rows + other.rows

    def mean(self, reduction: str) -> Tensor:
        """As a loss with this reduction would give it for all calls at once; `sum` and `share` as `mean`."""
        return self.loss / {"none": self.values, "batchmean": self.rows}.get(reduction, self.size)


@final
class Evaluations:
    """Averages, over each evaluation, what the loss of the training gives there.

    Each call counts by what it was the mean of: the last and smaller batch counts less, targets that are ignored do not
    count, others by the weights of their classes, as if all were one batch. Whether an evaluation takes means or sums
    (`reduction="sum"`, divided by the size of the set afterwards) makes no difference. Sums stay on the device.

    Evaluations of which nothing says on which data they are can be one between two steps: of several nobody knows which
    is the validation, and all are left out.

    Example:
        >>> evaluations, place = Evaluations(), Place("a loader", is_known=True)
        >>> evaluations.add(place, Call("mse_loss", "mean", 3, 3), torch.tensor(1.0))
        >>> evaluations.add(place, Call("mse_loss", "sum", 1, 1), torch.tensor(5.0))
        >>> evaluations.take(Call("mse_loss", "mean", 8, 8), 1.0)
        {'loss': tensor(2., dtype=torch.float64)}
    """

    def __init__(self) -> None:
        self._sums: dict[tuple[Place, str], Sums] = {}
        """By evaluation and what computes the loss."""
        self.num_ambiguous = 0
        """Of those that were taken: how many were left out."""

    def add(self, place: Place, call: Call, value: Tensor) -> None:
        """A loss was computed in an evaluation."""
        with torch.no_grad():
            number, size = value.detach().double(), call.size
            if call.reduction == "none":
                number = number.sum()
            elif call.reduction == "batchmean":
                number = number * call.rows
            elif call.reduction != "sum":
                number = number.reshape(()) * size
                if isinstance(size, Tensor):  # the mean of nothing is NaN, and counts nothing
                    number = number.where(size > 0, 0.0)
            sums = Sums(number.reshape(()), size, call.values, call.rows)
            key = place, call.source
            if key in self._sums:
                self._sums[key].add(sums)
            else:
                self._sums[key] = sums

    def drop(self, is_none: Callable[[Any], bool]) -> None:
        """Forget evaluations, by what tells them apart."""
        self._sums = {key: sums for key, sums in self._sums.items() if not is_none(key[0].what)}

    def __len__(self) -> int:
        return len(self._sums)

    def take(self, training: Call, factor: float) -> dict[str, Tensor]:
        """All evaluations so far, in the unit of the training's loss: the first is `loss`, others are numbered.

        Args:
            training: How the training computes its loss.
            factor: What it multiplies the result by, in all calls of a step together.
        """
        sums, self._sums = self._sums, {}
        mine = {place: one for (place, source), one in sums.items() if source == training.source}
        unknown = [place for place in mine if not place.is_known]
        if len(unknown) > 1:
            self.num_ambiguous += len(unknown)
            mine = {place: one for place, one in mine.items() if place.is_known}
        found = []
        for one in mine.values():
            value = one.mean(training.reduction) * factor
            if training.reduction == "sum":
                size = training.size
                value = value * (size.to(value.device) if isinstance(size, Tensor) else size)
            found.append(value)
        return {f"loss_{i}" if i > 1 else "loss": value for i, value in enumerate(found, 1)}
