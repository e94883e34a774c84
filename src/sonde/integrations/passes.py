"""Passes over loaders: which of them the training makes, and when an epoch is over."""

import weakref
from dataclasses import dataclass
from typing import Any, final

_KNOWN = ("torch.utils.data.", "lightning.", "pytorch_lightning.")


@dataclass(eq=False, slots=True)
class Pass:
    """One iteration over a loader."""

    loader: "weakref.ref[Any]"
    num_batches: int = 0
    is_over: bool = False
    """Whether there was no batch left."""

    length: int | None = None
    """How many batches there are, where that can be asked without a side effect."""
    says: str | None = None
    """What the loader's names in the script say about its data, once anybody asked."""
    rows: tuple[int, int] = (0, 0)
    """What the loader reads, as the `id` of its data set and of the sampler that chooses some rows of it: a loader may
    be gone before them."""

    def reads_like(self, other: "Pass") -> bool:
        """Whether both are over the same rows of the same data set."""
        return self.rows != (0, 0) and self.rows == other.rows


@final
class Passes:
    """Counts epochs: passes over the loader whose batches are trained on.

    An epoch is over when that loader is iterated anew and trained on again, having been exhausted or having given at
    least two batches (a loop that calls `next(iter(loader))` for each step makes no epochs); also when it was exhausted
    and another loader takes its place (a script may make a new one for each epoch). Exhausted is a loader that has no
    batch left, or gave as many as it has: some trainers never ask for one more. Of several loaders that are read side
    by side the first counts.

    Example:
        >>> passes, loader, over = Passes(), {1, 2}, []
        >>> for epoch in range(2):
        ...     iterator = {epoch}
        ...     passes.opened(loader, iterator)
        ...     for batch in range(2):
        ...         passes.fetched(iterator)
        ...         over.append(passes.trained())
        ...     _ = passes.ended(iterator)
        >>> over, passes.is_epoch_over
        ([False, False, True, False], True)
    """

    def __init__(self) -> None:
        self._iterators: list[tuple[weakref.ref[Any], Pass]] = []
        self.current: Pass | None = None
        """The one that gave the last batch."""
        self.training: Pass | None = None
        """The one that gives the batches that are trained on."""

    def opened(self, loader: Any, iterator: Any) -> None:
        """A pass begins; the iterator may be one that was used before."""
        self._iterators = [(ref, one) for ref, one in self._iterators if ref() is not None and ref() is not iterator]
        data, sampler = getattr(loader, "dataset", None), getattr(loader, "sampler", None)
        chosen = id(sampler) if hasattr(sampler, "indices") else 0  # folds of one data set
        rows = (0, 0) if data is None else (id(data), chosen)
        begun = Pass(weakref.ref(loader), length=_length(loader), rows=rows)
        self._iterators.append((weakref.ref(iterator), begun))

    def fetched(self, iterator: Any) -> None:
        """It gave a batch."""
        found = self._find(iterator)
        if found is not None:
            found.num_batches += 1
            self.current = found

    def ended(self, iterator: Any) -> bool:
        """It has no batch left; whether it is the one that is trained on."""
        found = self._find(iterator)
        if found is not None:
            found.is_over = True
        return found is not None and found is self.training

    def trained(self) -> bool:
        """An optimiser makes a step; whether an epoch has ended before it."""
        now, before = self.current, self.training
        if now is not None and now.num_batches == now.length:
            now.is_over = True
        if now is None or now is before:
            return False
        if before is None:
            self.training = now
            return False
        if now.loader() is before.loader():
            self.training = now
            return before.is_over or before.num_batches > 1
        if before.is_over:
            self.training = now
            return True
        return False

    @property
    def is_epoch_over(self) -> bool:
        """Whether the pass that was trained on last came to its end."""
        return self.training is not None and self.training.is_over

    def _find(self, iterator: Any) -> Pass | None:
        return next((one for ref, one in self._iterators if ref() is iterator), None)


def _length(loader: Any) -> int | None:
    """How many batches a loader has. A script's own sampler may draw random numbers to tell: it is not asked."""
    samplers = getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None)
    if any(not type(sampler).__module__.startswith(_KNOWN) for sampler in samplers):
        return None
    try:
        return len(loader)
    except (TypeError, NotImplementedError):  # a stream
        return None
