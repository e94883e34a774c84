"""What `backward` is called on, where nobody hands the loss over."""

import threading
from typing import final

import torch
from torch import Tensor

from sonde.integrations.entries import SCALE, Scaled
from sonde.probes.seams import BACKWARD, Backward


@final
class Differentiated:
    """The losses of this thread, added up from one `take` to the next.

    A loss that a gradient scaler has multiplied is taken as it was before. What is no single number is no loss, and a
    `backward` within another (activation checkpointing) is a part of it. Listens until `close`.

    Example:
        >>> losses, x = Differentiated(), torch.tensor(3.0, requires_grad=True)
        >>> (x * 2).backward()
        >>> (x * 5).backward()
        >>> losses.take()
        tensor(21.)
        >>> losses.take() is None
        True
        >>> losses.close()
    """

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._depth = 0
        self._taken: list[Tensor] = []
        self._scaled: Scaled | None = None
        self._undo = [BACKWARD.listen(self._on_backward), SCALE.listen(self._on_scale)]

    def _on_scale(self, event: Scaled) -> None:
        if threading.get_ident() == self._thread:
            self._scaled = event

    def _on_backward(self, event: Backward) -> None:
        if event.done:
            self._depth -= 1
            return
        self._depth += 1
        if self._depth > 1 or threading.get_ident() != self._thread:
            return
        given = event.tensors
        loss = given[0] if isinstance(given, list | tuple) and len(given) == 1 else given
        if isinstance(loss, Tensor) and loss.numel() == 1:
            scaled, self._scaled = self._scaled, None
            loss = scaled.loss if scaled is not None and scaled.scaled is loss else loss
            self._taken.append(loss.detach() if event.retained else loss)

    def take(self) -> Tensor | None:
        """Their sum, on their device; None where there was none. A single one comes with its graph."""
        taken, self._taken = self._taken, []
        if len(taken) < 2:
            return taken[0] if taken else None
        with torch.no_grad():
            total = taken[0].detach()
            for loss in taken[1:]:
                total = total + loss.detach().to(total.device)
        return total

    def close(self) -> None:
        """Listen no more."""
        for undo in self._undo:
            undo()
        self._undo, self._taken, self._scaled = [], [], None
