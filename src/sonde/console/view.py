"""What is shown of a training: plain numbers, gathered by somebody else."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from sonde.core.findings import Finding


class Value(NamedTuple):
    """A number; its name is empty where there is only one of its kind."""

    name: str
    value: float


class Memory(NamedTuple):
    """Bytes in use."""

    of: str
    """"GPU", or "process" for that of the host."""
    used: float
    total: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Layers:
    """The modules that have parameters, in the order of the model.

    Args:
        names: Of the modules.
        values: Their gradient, by `what`; NaN where one of their gradients is not finite, None where none was measured.
        marks: The severity of the worst open alarm that names them, empty where none does.
        what: Which statistic of the gradient.
    """

    names: tuple[str, ...] = ()
    values: tuple[float | None, ...] = ()
    marks: tuple[str, ...] = ()
    what: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """A training at one moment. Whatever is not known is None or empty.

    Args:
        run: Its name or folder.
        ending: "live" while it is recorded; else how it ended.
        step: The last one.
        total_steps: How many there will be.
        epoch: How many are over.
        total_epochs: How many there will be.
        elapsed_s: Since it began.
        silent_s: Since its last step.
        steps_per_s: Over the last minute or so, pauses for evaluations included.
        samples_per_s: While it trains.
        tokens_per_s: Likewise.
        losses: The last ones; several where there is no single one.
        loss_ema: The loss, smoothed.
        validation: The last loss on the validation set.
        curve: The first of `losses` from the beginning until now, in some columns; NaN where one of a column's was not
            finite.
        learning_rates: The last ones, of each optimiser.
        gradient_norms: The last ones, of each optimiser, before clipping.
        memory: The last reading.
        layers: And their health.
        findings: Those that are open, the worst first; None where nobody looks for any.
    """

    run: str
    ending: str = "live"
    step: int = 0
    total_steps: int | None = None
    epoch: int | None = None
    total_epochs: int | None = None
    elapsed_s: float = 0.0
    silent_s: float = 0.0
    steps_per_s: float | None = None
    samples_per_s: float | None = None
    tokens_per_s: float | None = None
    losses: tuple[Value, ...] = ()
    loss_ema: float | None = None
    validation: float | None = None
    curve: tuple[float, ...] = ()
    learning_rates: tuple[Value, ...] = ()
    gradient_norms: tuple[Value, ...] = ()
    memory: Memory | None = None
    layers: Layers = Layers()
    findings: tuple[Finding, ...] | None = ()

    @property
    def share(self) -> float | None:
        """How much of it is done, from 0 to 1; None where its length is not known."""
        return min(1.0, self.step / self.total_steps) if self.total_steps else None

    @property
    def left_s(self) -> float | None:
        """How long it still takes at this pace; None where that cannot be said."""
        if self.ending != "live" or self.is_silent or self.total_steps is None or not self.steps_per_s:
            return None
        return max(0, self.total_steps - self.step) / self.steps_per_s

    @property
    def is_silent(self) -> bool:
        """Whether the next step is long overdue."""
        usual_s = 1 / self.steps_per_s if self.steps_per_s else math.inf
        return self.ending == "live" and self.silent_s > max(15.0, 10 * min(usual_s, 60.0))
