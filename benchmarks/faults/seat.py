"""Sonde's seat in a training, with nobody or somebody else in it."""

from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self


class Seat:
    """The methods of `sonde.Watch` that the trainings call.

    Args:
        on_step: Called at the end of each iteration with its loss, the sum of the parts where they come apart.
        on_evaluate: Called after each evaluation with what it found.
        on_close: Called when the training is over.
    """

    def __init__(
        self,
        on_step: Callable[[Any], None] | None = None,
        *,
        on_evaluate: Callable[[Mapping[str, Any]], None] | None = None,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self._on_step, self._on_evaluate, self._on_close = on_step, on_evaluate, on_close

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._on_close is not None:
            self._on_close()

    def data(self, batches: Iterable[Any]) -> Iterable[Any]:
        """The batches themselves."""
        return batches

    def step(self, loss: Any = None, *, parts: Mapping[str, Any] | None = None, **further: Any) -> None:
        """One iteration is over."""
        if self._on_step is not None:
            self._on_step(sum((parts or {}).values()) if loss is None else loss)

    def evaluate(self, **found: Any) -> None:
        """An evaluation is over."""
        if self._on_evaluate is not None:
            self._on_evaluate(found)

    def epoch(self) -> None:
        """A pass over the data is over."""

    def state_dict(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up `state_dict`."""


def unwatched(model: Any, optimizer: Any, **settings: Any) -> Seat:
    """Nobody, in place of `sonde.watch`."""
    return Seat()


class Oracle:
    """Finds out by brute force which parameters became non-finite first.

    Attributes:
        nonfinite_parameters: Those that were non-finite after the first iteration in which any was.
    """

    def __init__(self, model: Any) -> None:
        models = model if isinstance(model, dict) else {"": model}
        self._parameters = {
            f"{prefix}.{name}" if prefix else name: parameter
            for prefix, module in models.items()
            for name, parameter in module.named_parameters()
        }
        self.nonfinite_parameters: list[str] = []

    def look(self, loss: Any) -> None:
        """Look at all parameters, after an iteration."""
        if not self.nonfinite_parameters:
            self.nonfinite_parameters = [
                name for name, parameter in self._parameters.items() if not parameter.isfinite().all()
            ]
