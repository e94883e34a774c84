"""The losses of single examples, as a caller of `watch.evaluate` gives them."""

from typing import Any

import numpy as np
from torch import Tensor

from sonde.core.example_losses import MOST
from sonde.core.frames import Float32
from sonde.monitor.misuse import Misuse


def of_examples(losses: Any) -> Float32:
    """As float32, a copy; waits for the device where they are on one.

    Raises:
        Misuse: they are no numbers, or are too few or too many.

    Example:
        >>> of_examples([0.5, 2]).tolist()
        [0.5, 2.0]
    """
    kept = "they are not recorded."
    try:
        if isinstance(losses, Tensor):
            losses = losses.detach().cpu().double().numpy()
        with np.errstate(over="ignore"):
            values = np.array(losses, np.float64).reshape(-1).astype(np.float32)
    except (TypeError, ValueError) as error:
        raise Misuse(f"`watch.evaluate(losses=...)` must be a number an example: {error}; {kept}") from error
    if not 2 <= len(values) <= MOST:
        raise Misuse(f"`watch.evaluate(losses=...)` must be of 2 to {MOST:,} examples, got {len(values):,}; {kept}")
    return values
