"""Sinks for tests: one that keeps what it is told, and may be down, deaf or choosy."""

import math
import threading
from collections.abc import Callable, Sequence

import numpy as np

from sonde.core.findings import Evidence, Finding, Severity
from sonde.core.frames import Columns, Frame
from sonde.sinks.selections import Selection
from sonde.sinks.sink import Item

EVERYTHING = Selection(layers=("*",), histograms=("*",), layer_rows=1, rows_per_s=math.inf)


class Service:
    """Keeps batches.

    Args:
        answer: Called with each batch before it is taken; whatever it raises is the service's fault.
    """

    name = "service"

    def __init__(
        self, answer: Callable[[Sequence[Item]], None] = lambda batch: None, selection: Selection = EVERYTHING
    ) -> None:
        self.selection = selection
        self.batches: list[list[Item]] = []
        self.num_attempts = 0
        self.is_closed = threading.Event()
        self._answer = answer
        self._asked = threading.Condition()

    def write(self, batch: Sequence[Item]) -> None:
        with self._asked:
            self.num_attempts += 1
            self._asked.notify_all()
        self._answer(batch)
        with self._asked:
            self.batches.append(list(batch))
            self._asked.notify_all()

    def wait_for(self, happened: Callable[[], bool]) -> None:
        with self._asked:
            assert self._asked.wait_for(happened, 60)

    def close(self, timeout_s: float) -> None:
        self.is_closed.set()

    @property
    def items(self) -> list[Item]:
        return [item for batch in self.batches for item in batch]

    @property
    def steps(self) -> list[int]:
        return [item.step for item in self.items if isinstance(item, Frame)]


def row(columns: Columns, step: int, *values: float, time: float = 1.0) -> Frame:
    return Frame(columns, step, time, np.array(values, np.float32))


def found(step: int = 7, **changes: object) -> Finding:
    plain = {
        "code": "GRD001",
        "name": "exploding-gradients",
        "severity": Severity.CRITICAL,
        "first_step": step - 2,
        "last_step": step,
        "open": True,
        "where": ("blocks.1.weight",),
        "message": "global gradient norm 417 | 38 deviations above",
        "evidence": (Evidence(tag="grad/norm", step=step, value=float("inf"), expected=2.0),),
    }
    return Finding(**{**plain, **changes})  # type: ignore[arg-type]
