"""From messages to frames, in the background and in order: counts steps, follows the loss, writes rows."""

import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np

from sonde.config.schema import LossConfig
from sonde.core import late_rows
from sonde.core.example_losses import columns_of
from sonde.core.frames import Columns, Float32, Frame
from sonde.core.records import Float64, Recorder
from sonde.monitor.loss_series import LossSeries
from sonde.monitor.messages import StepMessage
from sonde.probes.probe import STEP, Row, Stamp

_MOST_STAMPS = 16  # one at a time is waited for
_MOST_VALUES = 65_536  # of rows that wait for company
_MOST_COLUMNS = 256  # what is in the row of a step may change at every step
# Rows of tiny steps take some 0.05 ms: handing the interpreter over after each costs the training more than they do.
_HELD_S = 5e-4


@final
class StepRecording:
    """Writes a watched training into a recorder.

    Args:
        recorder: Where frames and events go.
        micro: Makes the loss of an accumulated step out of its micro-losses.
        loss: How the loss is smoothed.
        world_size: How many processes train together.
    """

    def __init__(
        self,
        recorder: Recorder,
        *,
        micro: Callable[[Sequence[float]], Any] = np.mean,
        loss: LossConfig = LossConfig(),  # noqa: B008  # frozen
        world_size: int = 1,
    ) -> None:
        self._recorder, self._micro, self._world_size = recorder, micro, world_size
        self.last_step = 0
        self._micro_losses: list[float] = []
        self._num_micro = self._num_skipped = 0
        self._losses = LossSeries(loss)
        self._stamps: deque[Stamp] = deque(maxlen=_MOST_STAMPS)
        """The last ones that were given a step."""
        self._columns: dict[Any, Columns] = {}
        self._rows: list[tuple[Columns, int, float, Sequence[float] | Float64 | Float32]] = []
        """Those that were not handed on yet, each with its step and time."""
        self._num_values = 0
        """In them."""
        self._grad_norm = 0.0
        """Of the last step; 0 where it is not known."""
        self._yielded_s = 0.0
        """What this thread had worked when it last let the training have the interpreter."""

    def state_dict(self) -> dict[str, Any]:
        """All that the next session needs to go on without a jump."""
        return {
            "step": self.last_step,
            "micro": self._num_micro,
            "skipped": self._num_skipped,
            **self._losses.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another session stopped."""
        self.last_step, self._num_micro, self._num_skipped = state["step"], state["micro"], state["skipped"]
        self._losses.load_state_dict(state)
        self._micro_losses = []
        for stamp in self._stamps:
            stamp.step = None
        self._stamps.clear()

    def step(self, message: StepMessage, numbers: Float64) -> None:
        """Take an iteration of the loop."""
        self._micro_losses += message.losses(numbers)
        withheld = message.withheld(numbers)  # a fused optimiser is called on an overflow as well, and does nothing
        is_step = bool(message.applied - withheld)
        if message.skipped or withheld:
            if not is_step:
                self._num_skipped += 1
                self._micro_losses = []  # they belong to a step that never was
            by = sorted(filter(None, message.skipped | withheld))
            self.event("skipped-step", {"total": self._num_skipped, **({"optimizers": by} if by else {})})
        elif not is_step:
            self._num_micro += 1
        self.last_step += is_step
        for reading in message.readings:  # where the step was withheld, the weights are those of the last one
            if reading.stamp is not None:
                reading.stamp.step = self.last_step
                self._stamps.append(reading.stamp)
        if is_step:
            self._record(message, numbers, withheld)

    def _record(self, message: StepMessage, numbers: Float64, withheld: set[str]) -> None:
        losses, self._micro_losses = self._micro_losses, []
        of_step = {**self._of_losses(losses), **message.host}
        rows: list[Row] = []
        problem: Exception | None = None
        for reading, own in message.reports(numbers):
            if reading.optimizer not in withheld:
                try:
                    for found in reading.report(own):
                        if found.columns.table == STEP:
                            of_step.update(zip(found.columns.tags, found.values.tolist(), strict=True))
                        else:
                            rows.append(found)
                except Exception as error:  # the other probes are not to blame
                    problem = problem or error
        self._grad_norm = of_step.get("grad/norm", 0.0)
        if (samples := _num_samples(message, rows)) is not None:
            of_step["batch/effective"] = samples * self._world_size
        self.row(STEP, of_step, message.time)
        if phase := self._losses.phase(self.last_step, of_step):
            self.row("phase", phase, message.time)
        for loss in losses if len(losses) > 1 else ():
            self.row("micro", {"loss/micro": loss}, message.time)
        for row in rows:
            self._write_row(row, message.time)
        self._yield()
        if problem is not None:
            raise problem

    def _of_losses(self, losses: Sequence[float]) -> dict[str, float]:
        """The loss of a step and what is known of it, out of its micro-losses."""
        if not losses:
            return {}
        loss = losses[0] if len(losses) == 1 else float(self._micro(losses))
        return {**self._losses.step(loss), "loss/num_micro": float(len(losses))}

    def event(self, kind: str, data: Mapping[str, Any]) -> None:
        """Take an event that happened after the last step."""
        self.rest()
        self._recorder.event(kind, step=self.last_step, data=data)

    def row(self, table: str, values: Mapping[str, float], when: float) -> None:
        """Take a row that belongs to the last step."""
        if "val/grad_norm" in values and self._grad_norm > 0:
            values = {**values, "val/grad_norm_ratio": values["val/grad_norm"] / self._grad_norm}
        if table == "epoch":
            values = {**values, **self._losses.end_epoch()}
        names = tuple(values)
        columns = self._columns_of((table, names), lambda: Columns(table, names))
        self._write(columns, self.last_step, when, list(values.values()))

    def examples(self, losses: Float32, when: float) -> None:
        """Take the losses of the examples of an evaluation."""
        self.rest()
        columns = self._columns_of(("examples", len(losses)), lambda: columns_of(len(losses)))
        self._recorder.append(Frame(columns, self.last_step, when, losses))

    def end(self, when: float) -> None:
        """Take that the session ends: the phase of the learning rate that is under way has a row, too."""
        if phase := self._losses.phase_under_way():
            self.row("phase", phase, when)

    def _write_row(self, row: Row, when: float) -> None:
        if row.stamp is None:
            self._write(row.columns, self.last_step, when, row.values)
        elif row.stamp.step is not None and row.stamp.step > 0:
            of = row.columns
            columns = self._columns_of(of, lambda: Columns(of.table, [*of.tags, late_rows.LAG], of.detail))
            lag = self.last_step - row.stamp.step
            self._write(columns, row.stamp.step, when, np.append(row.values, lag))

    def _columns_of(self, key: Any, make: Callable[[], Columns]) -> Columns:
        columns = self._columns.get(key)
        if columns is None:
            if len(self._columns) >= _MOST_COLUMNS:
                self._columns.clear()
            columns = self._columns[key] = make()
        return columns

    def _write(self, columns: Columns, step: int, when: float, numbers: Sequence[float] | Float64 | Float32) -> None:
        """Have a row wait for others: together they cost less."""
        if len(numbers) != columns.width:
            raise ValueError(f"a row of {columns.table!r} has {len(numbers)} values for {columns.width} columns.")
        self._rows.append((columns, step, when, numbers))
        self._num_values += len(numbers)
        if self._num_values > _MOST_VALUES:
            self.rest()

    def rest(self) -> None:
        """Hand on the rows that wait."""
        rows, self._rows, self._num_values = self._rows, [], 0
        alike: defaultdict[Columns, list[Any]] = defaultdict(list)
        for columns, _, _, numbers in rows:
            alike[columns].append(numbers)
        with np.errstate(over="ignore"):
            values = {columns: iter(np.array(some).astype(np.float32, copy=False)) for columns, some in alike.items()}
        for columns, step, when, _ in rows:
            self._recorder.append(Frame(columns, step, when, next(values[columns])))
            self._yield()

    def _yield(self) -> None:
        if abs(time.thread_time() - self._yielded_s) > _HELD_S:  # of another thread it may be less
            time.sleep(0)  # the training gets the interpreter now, not when it has waited for it for 5 ms
            self._yielded_s = time.thread_time()


def _num_samples(message: StepMessage, rows: Sequence[Row]) -> float | None:
    """Samples of a step on this rank, of all its micro-batches: as counted, else as the model was given them."""
    if message.samples is not None:
        return message.samples
    for row in rows:
        if row.columns.table == "batches" and "batch/samples" in row.columns.tags:
            return float(row.values[row.columns.tags.index("batch/samples")])
    return None
