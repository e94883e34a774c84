"""Iterations that rest, on a CPU: noted down with next to nothing, and handed to the background many at a time.

A short step leaves the caches full of the training's own data, so that each line of ours that runs in it costs several
times what it does in a loop of its own. What can wait is done for all of them together.
"""

import functools
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor, nn

from sonde.core.tags import check_tag

_MOST = 16
_MOST_S = 0.25
_PLAIN = frozenset({Tensor, nn.Parameter})


class Taken(NamedTuple):
    """What an iteration has taken since the step before: seconds, and samples and tokens of its batches."""

    spent: dict[str, float]
    own_s: float
    """Of that, ours."""


@dataclass(slots=True)
class Nap:
    """An iteration in which nothing was looked at."""

    time: float
    loss: float | None
    host: dict[str, float]
    """Plain numbers of the step, by tag."""
    taken: Taken | None = None
    """None for a micro-step."""


class Naps:
    """Those that wait to be handed over, in order. The training adds and takes them, the background takes them."""

    def __init__(self) -> None:
        self._waiting: deque[Nap] = deque()

    def add(self, nap: Nap) -> None:
        """One more, complete: it may be taken at once."""
        self._waiting.append(nap)

    @property
    def are_old(self) -> bool:
        """Whether the first has waited for long: the training makes no steps, or slow ones."""
        try:
            return abs(time.time() - self._waiting[0].time) > _MOST_S
        except IndexError:
            return False

    @property
    def are_enough(self) -> bool:
        """Whether they should not wait any longer."""
        waiting = self._waiting
        try:
            return len(waiting) >= _MOST or waiting[-1].time - waiting[0].time > _MOST_S
        except IndexError:  # the background has them
            return False

    def take(self) -> list[Nap]:
        """All of them; none is left."""
        waiting = self._waiting
        taken: list[Nap] = []
        while waiting:
            taken.append(waiting.popleft())
        return taken


def as_number(value: Any) -> float | None:
    """A loss as a number, where that is there without waiting or converting.

    Example:
        >>> import torch
        >>> as_number(torch.tensor([0.5])), as_number(2.0), as_number(torch.ones(3))
        (0.5, 2.0, None)
    """
    if type(value) is float:
        return value
    is_there = type(value) in _PLAIN and value.numel() == 1 and value.is_cpu and value.is_floating_point()
    return float(value.item()) if is_there else None


def as_parts(values: Mapping[str, Any]) -> dict[str, float] | None:
    """Parts of a loss as numbers, by tag; None where one is not there, or its name makes no tag."""
    found: dict[str, float] = {}
    for name, value in values.items():
        number, tag = as_number(value), _part_tag(name)
        if number is None or tag is None:
            return None
        found[tag] = number
    return found


@functools.lru_cache(maxsize=256)
def _part_tag(name: str) -> str | None:
    tag = f"loss/part@{name}"
    try:
        check_tag(tag)
    except ValueError:
        return None
    return tag
