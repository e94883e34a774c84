"""Facts about a training: small plain dictionaries, said when their numbers are known."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor

from sonde.core.records import Float64
from sonde.probes.probe import Reading

Say = Callable[[str, Mapping[str, Any]], None]
"""Called with the name of a check and what it found; from the training thread or from the background."""

_MOST_PLACES = 16


@final
class Facts:
    """What the checks of a training have to say, and the numbers that they have not judged yet.

    Args:
        say: Told each fact, as plain values.
    """

    def __init__(self, say: Say) -> None:
        self._say = say
        self._said: set[tuple[str, str]] = set()
        self._pending: list[Reading] = []

    def say(self, check: str, where: Iterable[str] = (), **fact: Any) -> None:
        """Say what a check has found, and at which places, 16 at most; what is None or not finite is left out."""
        plain = {key: _plain(value) for key, value in fact.items() if value is not None}
        known = {key: value for key, value in plain.items() if value is not None}
        self._say(check, {"where": [*filter(None, where)][:_MOST_PLACES], **known})

    def say_once(self, check: str, where: Iterable[str] = (), *, about: str = "", **fact: Any) -> None:
        """The same, unless the check has said something `about` the same thing before."""
        if not self.is_said(check, about):
            self._said.add((check, about))
            self.say(check, where, **fact)

    def is_said(self, check: str, about: str = "") -> bool:
        """Whether `say_once` would say no more."""
        return (check, about) in self._said

    def judge(self, tensors: Sequence[Tensor], judge: Callable[[Float64], None]) -> None:
        """Have numbers judged: at once where they lie on the CPU, else in the background when they have come home.

        Args:
            tensors: Small ones that nothing changes any more, all on one device.
            judge: Called once with all of them in one vector.
        """
        if all(tensor.is_cpu for tensor in tensors):
            none = torch.empty(0, dtype=torch.float64)
            judge(torch.cat([none, *(tensor.detach().double().reshape(-1) for tensor in tensors)]).numpy())
        else:
            self._pending.append(judged_later(judge, tensors))

    def collect(self) -> list[Reading]:
        """The numbers that are still on their way."""
        pending, self._pending = self._pending, []
        return pending


def judged_later(judge: Callable[[Float64], None], tensors: Sequence[Tensor] = ()) -> Reading:
    """A reading of which no rows come: its numbers are judged."""

    def report(numbers: Float64) -> Sequence[Any]:
        judge(numbers)
        return ()

    return Reading(tensors, report)


def _plain(value: Any) -> Any:
    if isinstance(value, bool | int | str | list):
        return value
    number = float(value)
    return number if math.isfinite(number) else None
