"""Cutting a training into iterations: calls of `backward`, and steps of optimisers for them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, final

from torch import Tensor

from sonde.integrations.parts import Part, by_line, total


@dataclass
class Iteration:
    """What happened since the last one was closed."""

    parts: list[Part] = field(default_factory=list)
    """That no optimiser has made a step for yet."""
    handed: list[Part] = field(default_factory=list)
    """What only the gradients were asked of, by `torch.autograd.grad` …"""
    is_nested: bool = False
    """… and whether some of those were asked of others: which is the loss, nobody knows."""
    cleared: list[Part] = field(default_factory=list)
    """What `zero_grad` was called after."""
    owned: dict[int, list[Part]] = field(default_factory=dict)
    """By the optimiser, as its `id`, that made a step for them."""
    stepped: list[int] = field(default_factory=list)
    """Optimisers that made a step, or were kept from it by a gradient scaler."""
    num_backwards: int = 0


class Losses(NamedTuple):
    """What an iteration, or a micro-step of it, was differentiated for."""

    whole: Tensor | float | None
    parts: dict[str, Tensor | float]


@final
class Iterations:
    """The iteration that is under way.

    Several calls of `backward` to a step are added up: from one line of the script they are micro-steps, from several
    lines parts of the loss, named by the variables they are called on. Where several optimisers have losses of their
    own each has a part by its name, the sum of all calls since the last step of any; the loss of the whole is the sum
    of those, in iterations in which all optimisers made a step: what is summed is the same in each.

    Example:
        >>> import torch
        >>> real, fake, fooled = (torch.tensor(x) for x in (0.5, 0.25, 2.0))
        >>> iterations = Iterations()
        >>> iterations.add(Part(("gan.py", 1), "real", real))
        >>> iterations.add(Part(("gan.py", 2), "fake", fake))
        >>> iterations.step(1)
        >>> iterations.add(Part(("gan.py", 4), "fooled", fooled))
        >>> iterations.step(2)
        >>> losses = iterations.close({1: "D", 2: "G"})
        >>> losses.whole, {name: float(loss) for name, loss in losses.parts.items()}
        (2.75, {'real': 0.5, 'fake': 0.25, 'D': 0.75, 'G': 2.0})
    """

    def __init__(self) -> None:
        self._now = Iteration()
        self.num_micro, self.num_closed = 1, 0

    @property
    def has_parts(self) -> bool:
        """Whether `backward` was called on something that no optimiser has made a step for yet."""
        return bool(self._now.parts)

    @property
    def stepped(self) -> Collection[int]:
        """The optimisers, as their `id`, that made a step in it."""
        return self._now.stepped

    def is_repeated(self, part: Part) -> bool:
        """Whether `backward` was called from this line already, and no step was made since."""
        return part.site in [other.site for other in self._now.parts]

    def add(self, part: Part) -> None:
        """`backward` is called."""
        self._now.parts.append(part)
        self._now.num_backwards += 1

    def hand_over(self, part: Part) -> None:
        """Gradients of a loss are asked for: the script may put them where the optimiser finds them."""
        self._now.handed.append(part)

    def nest(self) -> None:
        """Gradients are asked for that are differentiated in turn."""
        self._now.is_nested = True

    def clear(self) -> None:
        """Gradients are set to zero: what was differentiated belongs to no step, unless nothing else is until then."""
        if self._now.parts:
            self._now.num_backwards -= len(self._now.parts)
            self._now.cleared, self._now.parts = self._now.parts, []

    def set_aside(self) -> Part | None:
        """The last call of `backward` was for something else, unless nothing else is differentiated until a step.

        Returns:
            What was set aside before it, from the same line.
        """
        if not self._now.parts:
            return None
        before = [part for part in self._now.cleared[-1:] if part.site == self._now.parts[-1].site]
        self._now.num_backwards -= 1
        self._now.cleared = [self._now.parts.pop()]
        return before[0] if before else None

    def drop(self) -> None:
        """What was differentiated and led to no step does not belong to one."""
        self._now.num_backwards -= len(self._now.parts)
        self._now.parts, self._now.handed, self._now.cleared = [], [], []

    def step(self, optimizer: int) -> None:
        """An optimiser, as its `id`, has made a step, or was kept from it."""
        self._now.stepped.append(optimizer)
        if not self._now.parts:
            self._now.parts = [] if self._now.is_nested else self._now.handed or self._now.cleared
            self._now.num_backwards += len(self._now.parts)
        if self._now.parts:
            self._now.owned[optimizer] = self._now.parts
        self._now.parts, self._now.handed, self._now.cleared = [], [], []

    def micro_step(self) -> Losses:
        """The same line again, and no step in between: gradients are accumulated, and this much is over."""
        parts, self._now.parts = self._now.parts, []
        return Losses(total(parts), by_line(parts))

    def close(self, names: Mapping[int, str]) -> Losses:
        """It is over; what no step was made for belongs to the next.

        Args:
            names: Of the optimisers, by their `id`.
        """
        now, later = self._now, self._now.parts
        self._now = Iteration(parts=later, num_backwards=len(later))
        self.num_closed += 1
        self.num_micro = max(now.num_backwards - len(later), self.num_micro)  # the last of an epoch may have fewer
        owned = list(now.owned.items())
        if len(names) == 1 or (len(owned) == 1 and len(now.stepped) > 1):  # one loss for all
            parts = [part for _, some in owned for part in some]
            return Losses(total(parts), by_line(parts))
        parts_of: dict[str, Tensor | float] = {}
        for key, some in owned:
            parts_of.update(by_line(some))
            if (loss := total(some)) is not None:
                parts_of[names[key]] = loss
        is_whole = now.owned.keys() == names.keys()
        return Losses(total([part for some in now.owned.values() for part in some]) if is_whole else None, parts_of)

    def begin_anew(self) -> None:
        """Another training begins, with the last call of `backward`."""
        parts = (self._now.parts or self._now.handed or self._now.cleared)[-1:]
        self._now = Iteration(parts=parts, num_backwards=len(parts))
        self.num_micro, self.num_closed = 1, 0
