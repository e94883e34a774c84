"""A training that is being watched."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from sonde.config.schema import Config
from sonde.core.findings import Finding
from sonde.core.records import Ending
from sonde.monitor import ranks
from sonde.monitor.background import Background
from sonde.monitor.doctor.host import Host
from sonde.monitor.given_losses import of_examples
from sonde.monitor.guard import Guard
from sonde.monitor.logged_names import is_sondes
from sonde.monitor.mailbox import Mailbox
from sonde.monitor.messages import EndMessage
from sonde.monitor.notices import Notices
from sonde.monitor.outputs import Outputs
from sonde.monitor.recording import StepRecording
from sonde.monitor.setup import Shared, listen
from sonde.monitor.sweeps import Sweeps
from sonde.monitor.timed_batches import timed
from sonde.probes import out_of_memory
from sonde.probes.batches import counts_of, shapes_of, targets_of
from sonde.probes.cadences import ON_CPU, ON_GPU, Cadences, with_intervals
from sonde.probes.parameters import device_of
from sonde.probes.schedule import Schedule
from sonde.probes.validation_gradients import gradient_norm
from sonde.sinks.sink import Sink
from sonde.store import endings
from sonde.store.writer import Writer
from sonde.streams.logs import logger

_log = logger("sonde.monitor")

T = TypeVar("T")

_NOTHING = "it is not recorded."

_CHECKPOINT_S = 0.35  # nobody expects a checkpoint to take much longer for our sake
_CLOSE_S = 30.0
_CLOSE_DOCTOR_S = 10.0
_CLOSE_HURRY_S = 2.0
_CLOSE_SERVICES_S = 10.0  # sinks and alerts, whose other side may be gone


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """What a caller of `watch` gives that no configuration can say; its arguments of the same names."""

    config: Mapping[str, Any] | None
    cadence: Cadences | None
    on_finding: Callable[[Finding], None] | None
    sinks: Sequence[Sink]
    strict: bool


class Watch:
    """A training that is being watched (`watch` makes one).

    Use it with `with`, or call `close()`. Whatever goes wrong inside is said once and never raised into the training.
    """

    def __init__(
        self,
        models: Mapping[str, nn.Module],
        optimizers: Mapping[str, Optimizer],
        writer: Writer,
        settings: Config,
        given: Given,
        call: ranks.Call,
    ) -> None:
        self._writer, self._closed, self._is_strict = writer, False, given.strict
        self._is_closing_said = False
        self._models, self._optimizers = dict(models), dict(optimizers)
        self._batch_shapes: dict[str, list[int]] = {}
        self._error: BaseException | None = None
        on_gpu = device_of(optimizers).type == "cuda"
        self._schedule = Schedule(given.cadence or with_intervals(ON_GPU if on_gpu else ON_CPU, settings.cadence.given))
        self._sweeps, self._mailbox = Sweeps(), Mailbox()
        self._notices = Notices(self._mailbox)
        self._guard = Guard(self._notices.fail, strict=given.strict)
        self._outputs = Outputs(
            writer,
            config=given.config,
            sinks=given.sinks,
            alerts=settings.alerts,
            console=settings.console,
            console_s=settings.console_s,
            length={"total_steps": settings.total_steps, "total_epochs": settings.total_epochs},
            doctor=settings.doctor,
            rules=settings.rules,
            on_finding=given.on_finding,
            on_alarm=self._sweeps.ask,
            problem=self._problem,
        )
        self._recording = StepRecording(
            self._outputs.entrance,
            micro=np.sum if settings.loss.micro == "sum" else np.mean,
            loss=settings.loss,
            world_size=ranks.world_size(),
        )
        self._background = Background(self._mailbox, self._recording, self._notices.fail)
        try:
            self._listening = listen(
                self._models,
                self._optimizers,
                Shared(self._schedule, self._mailbox, self._notices, self._guard),
                settings,
                call,
                writer.describe,
            )
            # Where parameters are split, all ranks must measure the same at each step.
            self._sweeps.are_allowed = all(one.sharing is None for one in self._listening.watched)
            _, self._events, self._iteration, self._hooks, self._probes = self._listening
            endings.watch(self)
            self._probes.arm()
        except BaseException:  # threads and the doctor's process would outlive it
            self._background.close(_CLOSE_HURRY_S)
            self._outputs.close(doctor_s=0.0, services_s=0.0)
            self._outputs.leave()
            raise

    def _problem(self, reason: str) -> None:
        """A sink or a channel does not work; on its own thread."""
        if self._closed:
            self._writer.event("monitor-problem", data={"reason": reason})
        else:
            self._notices.problem(reason)

    @property
    def _doctor(self) -> Host | None:
        return self._outputs.doctor

    def _say_closed(self, method: str) -> None:
        if not self._is_closing_said:
            self._is_closing_said = True
            _log.warning("%s is closed: `watch.%s` and what else comes is not recorded.", self.path, method)

    # What the training thread passes through.

    def step(
        self,
        loss: Tensor | float | None = None,
        *,
        parts: Mapping[str, Tensor | float] | None = None,
        samples: int | None = None,
        tokens: int | None = None,
        again: Callable[[], Tensor] | None = None,
    ) -> None:
        """Close an iteration of the loop. Never waits for the device.

        An iteration in which an optimiser made a step is a step; one without is a micro-step of accumulation, or was
        skipped by a gradient scaler. The loss of an accumulated step is the mean of its micro-losses, which are kept
        as `loss/micro`.

        Args:
            loss: Of this iteration, as a tensor or a number.
            parts: Components of the loss, by name.
            samples: Examples in the batch, for the throughput; found out where `data` is used.
            tokens: Tokens in the batch, likewise.
            again: Computes the loss of the same batch once more (`lambda: criterion(model(x), y)`): called at some
                steps, for `grad/predictiveness`. Random numbers and buffers are left as they were.
        """
        if self._closed:
            self._say_closed("step")
            return
        if self._sweeps.is_wanted and (num_steps := self._sweeps.asked(self._schedule.iteration)):
            self._schedule.sweep(num_steps)
            self._mailbox.event("sweep", {"num_steps": num_steps})
        iteration, events = self._iteration, self._events
        began = iteration.begin("step")
        events.mark("monitor")
        if iteration.on_gpu and not iteration.is_capturing:
            self._hooks.read_replayed()
        steps = self._hooks.close_iteration()
        try:
            events.tell(events.loss, loss)
            if again is not None:
                events.tell(events.again, again)
            with self._guard:
                counts = {} if samples is None else {"samples": samples}
                if tokens is not None:
                    counts["tokens"] = tokens
                iteration.close(loss, parts or {}, counts, steps, self._probes, began)
            events.mark("begin" if steps.applied or steps.skipped else "monitor-done")
        finally:
            iteration.left()

    def data(self, batches: Iterable[T]) -> Iterator[T]:
        """The same batches, timed: how long each iteration waits for its data becomes `time/data`.

        `iter` is called once for each pass, as a plain loop would. Samples and tokens are counted, and labels looked at
        now and then, where the batches are made of tensors.
        """
        return timed(batches, self.batch, self.end_of_data)

    def batch(self, batch: Any, *, waited_s: float = 0.0, worked_s: float = 0.0) -> None:
        """A batch is about to be used; for loops that cannot hand their loader to `data`.

        Args:
            batch: As the loader gave it.
            waited_s: How long the training waited for it, in seconds.
            worked_s: How much of that its own thread made the batch, as it does without workers.
        """
        spent = self._iteration.spent
        spent["time/data"] += waited_s
        if worked_s > 0 and not torch.cuda.is_initialized():  # type: ignore[no-untyped-call] # else a GPU is idle
            spent["time/data_work"] += worked_s
        if not self._closed:
            events = self._events
            began = self._iteration.begin("data")
            events.tell(events.waited, waited_s)
            events.mark("monitor")
            with self._guard:
                self._batch_shapes = shapes_of(batch)
                found = dict(zip(("samples", "tokens"), counts_of(batch), strict=True))
                self._iteration.count({quantity: count for quantity, count in found.items() if count is not None})
                events.tell(events.batch, batch, targets_of(batch))
            events.mark("monitor-done")
            self._iteration.end("data", began)

    def charge(self, own_s: float) -> None:
        """Count so many seconds as watching: what an integration spends beside the calls that it makes here.

        They are part of what the end of the run says the watching took. No cadence can spare them, so none is stretched
        for them.
        """
        self._iteration.budget.total_own_s += max(own_s, 0.0)

    def end_of_data(self) -> None:
        """The data have come to an end: what follows before the next step may be an evaluation. `data` calls it."""
        if not self._closed:
            self._events.tell(self._events.boundary)

    def not_measured(self, tag: str, reason: str) -> None:
        """Say, once for a tag or pattern of tags, that it cannot be measured, and why; rules that need it abstain."""
        if not self._closed:
            self._notices.not_measured(tag, reason)

    def log(self, values: Mapping[str, Tensor | float]) -> None:
        """Record numbers of your own, by name: `watch.log({"accuracy": 0.9})`.

        They belong to the last step that was closed: call it behind `step` for what the iteration has just measured. A
        step may be logged to several times. Names are tags: words joined by `/`. Names under which the watching itself
        records a series (`loss`, `grad/norm`) are left out and said once, since a rule could not tell the two apart.

        Args:
            values: Numbers, or tensors of one, which are not waited for.
        """
        if self._closed:
            self._say_closed("log")
            return
        given: Any = values
        if not isinstance(given, Mapping):
            self._notices.misused(f"`watch.log` takes numbers by name, got the {type(given).__name__}; {_NOTHING}")
            return
        own: dict[str, Tensor | float] = {}
        for name, value in given.items():
            if is_sondes(name):
                self._notices.misused(
                    f"`watch.log`: `{name}` is a name of Sonde's own; {_NOTHING} Call it `my/{name}`."
                )
            elif isinstance(name, str):
                own[name] = value
            else:
                self._notices.misused(f"`watch.log` takes numbers by name, got the name {name!r}; {_NOTHING}")
        with self._guard:
            self._iteration.put_row("log", own)

    def evaluate(
        self,
        *,
        loss: Tensor | float | None = None,
        metrics: Mapping[str, Tensor | float] | None = None,
        losses: Tensor | Sequence[float] | npt.NDArray[Any] | None = None,
        gradient_of: Callable[[], Tensor] | None = None,
    ) -> None:
        """Record what you have evaluated. It evaluates nothing itself: neither the model nor a loader is touched.

        The numbers belong to the model as it is after the last step. `validation` is another name for it.

        Args:
            loss: On the validation set, `val/loss`.
            metrics: Others, by name: `val/<name>`.
            losses: Of each example of the validation set, in its order, 2 to 1,048,576 of them: kept as they are, for
                `Run.example_losses`. Where `loss` is left out, their mean is `val/loss`. Those on a GPU are waited for.
            gradient_of: Gives the loss of a validation batch: the norm of its gradient becomes `val/grad_norm`, and
                `val/grad_norm_ratio` against the last step's. It costs a forward and a backward, which leave the
                `grad` of parameters, buffers and random numbers as they were.
        """
        if self._closed:
            self._say_closed("evaluate")
            return
        self._events.tell(self._events.evaluated)
        if losses is not None:
            with self._guard:
                each = of_examples(losses)
                self._iteration.put_examples(each)
                loss = float(each.mean(dtype=np.float64)) if loss is None else loss
        given = {**({} if loss is None else {"loss": loss}), **(metrics or {})}
        if gradient_of is not None:
            with self._guard:
                self._probes.pass_over()
                given["grad_norm"] = gradient_norm(gradient_of, self._models.values())
        with self._guard:
            self._iteration.put_row("evaluation", {f"val/{name}": value for name, value in given.items()})

    validation = evaluate

    def epoch(self) -> None:
        """An epoch is over: its number, length and speed become a row of the table `epoch`."""
        if not self._closed:
            self._events.tell(self._events.boundary)
            with self._guard:
                self._iteration.end_epoch()

    def burst(self, num_steps: int) -> None:
        """Measure everything at each of the next steps, whatever the cadences and the budget say.

        Args:
            num_steps: At least 1.
        """
        if num_steps < 1:
            raise ValueError(f"`burst(num_steps=...)` must be at least 1, got {num_steps}.")
        self._schedule.burst(num_steps)
        self._mailbox.event("burst", {"num_steps": num_steps})

    def profile(self, num_steps: int = 3) -> None:
        """Have torch's profiler time the operators of the next steps: the shares of each kind become `operator/*`.

        The steps themselves are slower than others; what they compute is the same.

        Args:
            num_steps: At least 1.
        """
        if num_steps < 1:
            raise ValueError(f"`profile(num_steps=...)` must be at least 1, got {num_steps}.")
        self._probes.profile(num_steps)

    def findings(self) -> tuple[Finding, ...]:
        """All findings so far, alarms first; those of the last steps come within half a second or so."""
        return self._outputs.findings()

    # Checkpoints.

    def state_dict(self) -> dict[str, Any]:
        """All that a later session needs to go on without a jump, in plain numbers: put it into your checkpoint."""
        self._background.drain(_CLOSE_S)  # where the device is behind; the training would wait for it as well
        state, known = (None, 0) if self._doctor is None else self._doctor.state(_CHECKPOINT_S)
        return {
            "version": 1,
            "iteration": self._schedule.iteration,
            "epoch": self._iteration.epoch.number,
            **self._recording.state_dict(),
            **self._probes.state_dict(),
            "doctor": state,
            "doctor_step": known,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint; where the run was ahead of it, a new branch begins."""
        if state.get("version") != 1:
            raise ValueError(f"`load_state_dict` reads version 1 of Sonde's state, got {state.get('version')!r}.")
        self._background.drain(_CLOSE_S)
        self._iteration.restart(int(state.get("epoch", 0)))
        self._schedule.resume(int(state["iteration"]))
        self._recording.load_state_dict(state)
        self._probes.load_state_dict(state)
        self._outputs.relay.branch(self._recording.last_step + 1)
        if self._doctor is not None:
            self._doctor.restore(state.get("doctor"), self._recording.last_step, known=state.get("doctor_step"))
        self._hooks.resume()

    # The end.

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self._writer.path

    def close(self) -> None:
        """Write what is left and let go of everything; a second call does nothing."""
        self.end(Ending.FINISHED, "")

    def end(self, ending: Ending, reason: str) -> None:
        """Close and say how the run ended."""
        if self._closed:
            return
        if ending is Ending.CRASHED:
            with self._guard:
                # One that nobody caught is kept by the interpreter.
                failed = out_of_memory.origin(self._error or getattr(sys, "last_value", None))
                if failed is not None:
                    held = out_of_memory.held_at(failed, self._models, self._optimizers, self._batch_shapes)
                    self._mailbox.event("out-of-memory", held)
        self._closed = True
        self._listening.leave()
        self._mailbox.put(EndMessage(time.time()))
        is_finished = ending is Ending.FINISHED
        patience_s = _CLOSE_S if is_finished else _CLOSE_HURRY_S
        try:
            self._background.close(patience_s)
        finally:
            services_s = _CLOSE_SERVICES_S if is_finished else _CLOSE_HURRY_S
            doctor_s = _CLOSE_DOCTOR_S if is_finished else _CLOSE_HURRY_S
            self._outputs.close(doctor_s=doctor_s, services_s=services_s)
            self._writer.end(ending, reason)
            endings.unwatch(self)
            self._iteration.leave()
            self._models.clear()
            self._optimizers.clear()
            self._outputs.leave(f"Sonde: {self.path}: {self._iteration.budget}")
        if self._is_strict and self._notices.first_fault is not None:
            raise self._notices.first_fault

    def forget(self) -> None:
        """After a fork: this process is not the one that trains."""
        self._closed = self._is_closing_said = True
        self._hooks.stop()
        self._outputs.forget()

    def __enter__(self) -> "Watch":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
            return
        ending, reason = endings.describe(kind, value)
        self._error = value
        self._background.drain(_CLOSE_HURRY_S)  # the steps that were made before it count
        self._outputs.relay.event("exception", step=self._recording.last_step, data={"reason": reason})
        self.end(ending, reason)
