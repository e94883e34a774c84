"""The validation loss of a script that does not say it: the loss of the training, called without gradients."""

from typing import Any, final

import torch
from torch import Tensor

from sonde.integrations.losses import Call

_NOT_VALIDATION = ("train", "training", "train_set", "trainset")


@final
class Evaluations:
    """Averages, over each evaluation, what the loss of the training gives there.

    Each call counts by its rows, so that the last and smaller batch counts less; whether an evaluation takes means or
    sums (`reduction="sum"`, divided by the size of the set afterwards) makes no difference. Sums stay on the device.

    Example:
        >>> evaluations = Evaluations()
        >>> evaluations.add("a loader", Call("mse_loss", "mean", 3), torch.tensor(1.0))
        >>> evaluations.add("a loader", Call("mse_loss", "sum", 1), torch.tensor(5.0))
        >>> evaluations.take(Call("mse_loss", "mean", 8), 1.0)
        {'loss': tensor(2., dtype=torch.float64)}
    """

    def __init__(self) -> None:
        self._sums: dict[tuple[Any, str], tuple[Tensor, int]] = {}
        """By evaluation and what computes the loss: the sum of its values, and over how many rows."""

    def add(self, where: Any, call: Call, value: Tensor) -> None:
        """A loss was computed in the evaluation `where`: anything that tells evaluations apart."""
        with torch.no_grad():
            number = value.detach().double().mean()
            if call.reduction == "mean":
                number = number * call.rows
            key = where, call.source
            if key in self._sums:
                total, rows = self._sums[key]
                self._sums[key] = total.to(number.device) + number, rows + call.rows
            else:
                self._sums[key] = number, call.rows

    def __len__(self) -> int:
        return len(self._sums)

    def take(self, training: Call, factor: float) -> dict[str, Tensor]:
        """All evaluations so far, in the unit of the training's loss: the first is `loss`, others are numbered.

        Args:
            training: How the training computes its loss.
            factor: What it multiplies the result by, in all calls of a step together.
        """
        scale = factor * (training.rows if training.reduction == "sum" else 1)
        sums, self._sums = self._sums, {}
        found = [total / rows * scale for (_, source), (total, rows) in sums.items() if source == training.source]
        return {f"loss_{i}" if i > 1 else "loss": value for i, value in enumerate(found, 1)}


def split_in(variables: dict[str, Any]) -> str:
    """Which part of the data a function works on, where a variable of it says so by one of the usual words.

    Example:
        >>> split_in({"batch": 3, "split": "val"})
        'val'
    """
    words = ("train", "training", "val", "valid", "validation", "dev", "eval", "test")
    return next((v for v in list(variables.values()) if type(v) is str and v in words), "")


def is_training_data(split: str) -> bool:
    """Whether an evaluation on this part is none of validation."""
    return split in _NOT_VALIDATION
