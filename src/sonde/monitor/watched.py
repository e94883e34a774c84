"""A training that is being watched."""

import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from sonde.alerts.config import AlertsConfig
from sonde.console.terminals import Wanted as Console
from sonde.core.findings import Finding
from sonde.core.records import Ending, Float64
from sonde.core.tags import check_tag
from sonde.monitor import ranks
from sonde.monitor.assembly import Assembly, now
from sonde.monitor.cadences import ON_CPU, ON_GPU, Cadences, with_intervals
from sonde.monitor.desk import Desk, plain
from sonde.monitor.doctor.connections import Where
from sonde.monitor.doctor.host import Host
from sonde.monitor.guard import Guard
from sonde.monitor.notices import Notices
from sonde.monitor.optimizers import Optimised, ParameterReader
from sonde.monitor.outputs import Outputs
from sonde.monitor.pipeline import Pipeline
from sonde.monitor.probing import Probing
from sonde.monitor.schedule import Schedule
from sonde.monitor.sheets import Key, Sheet
from sonde.monitor.stepping import Stepping, share_between_ranks
from sonde.monitor.sweeps import Sweeps
from sonde.monitor.transport import NOTHING, Delivery
from sonde.probes import walks
from sonde.probes.parameters import Watched, parameter_names
from sonde.sinks.sink import Sink
from sonde.store import endings
from sonde.store.writer import Writer
from sonde.streams.logs import logger

_log = logger("sonde.monitor")

T = TypeVar("T")

Micro = Literal["mean", "sum"]

_CHECKPOINT_S = 0.35  # nobody expects a checkpoint to take much longer for our sake
_CLOSE_S = 30.0
_CLOSE_DOCTOR_S = 10.0
_CLOSE_HURRY_S = 2.0
_CLOSE_SERVICES_S = 10.0  # sinks and alerts, whose other side may be gone


class Watch:
    """A training that is being watched (`watch` makes one).

    Use it with `with`, or call `close()`. Whatever goes wrong inside is said once and never raised into the training.
    """

    def __init__(
        self,
        models: Mapping[str, nn.Module],
        optimizers: Mapping[str, Optimizer],
        writer: Writer,
        *,
        config: Mapping[str, Any] | None,
        budget: float,
        cadence: Cadences | None,
        intervals: Mapping[str, int],
        console: Console,
        on_finding: Callable[[Finding], None] | None,
        doctor: Where,
        rules: Mapping[str, Any],
        sinks: Sequence[Sink],
        alerts: AlertsConfig,
        micro: Micro,
        floor_s: float | None,
        length: Mapping[str, int | None],
        console_s: float,
        strict: bool,
        call: ranks.Call,
    ) -> None:
        self._writer, self._models, self._closed = writer, models, False
        self._optimised = {id(optimizer): Optimised(name, optimizer) for name, optimizer in optimizers.items()}
        given = (p for o in optimizers.values() for group in o.param_groups for p in group["params"])
        devices = (p.device for p in given if p.device.type != "meta")
        device = next(devices, torch.device("cpu"))
        cadence = cadence or with_intervals(ON_GPU if device.type == "cuda" else ON_CPU, intervals)
        self._schedule, self._sweeps = Schedule(cadence), Sweeps()
        self._relieve: Callable[[], None] = lambda: None
        self._pipeline: Pipeline[Sheet] = Pipeline(self._consume, strict=strict, gather=lambda: self._relieve())
        self._put: Callable[[Sheet, Delivery], None] = self._pipeline.put
        self._notices = Notices(self._put_event, self._pipeline.fail)
        self._guard = Guard(self._notices.fail, strict=strict)
        self._outputs = Outputs(
            writer,
            config=config,
            sinks=sinks,
            alerts=alerts,
            console=console,
            console_s=console_s,
            length=length,
            doctor=doctor,
            rules=rules,
            on_finding=on_finding,
            on_alarm=self._look_closer,
            problem=self._problem,
        )
        self._assembly = Assembly(
            self._outputs.entrance,
            list(optimizers),
            histogram_steps=cadence.histograms.interval_steps,
            micro=np.sum if micro == "sum" else np.mean,
        )
        try:
            self._begin(optimizers, device, call, share=budget, floor_s=floor_s)
        except BaseException:  # threads and the doctor's process would outlive it
            self._pipeline.close(_CLOSE_HURRY_S)
            self._outputs.close(doctor_s=0.0, services_s=0.0)
            self._outputs.leave()
            raise

    def _begin(
        self,
        optimizers: Mapping[str, Optimizer],
        device: torch.device,
        call: ranks.Call,
        *,
        share: float,
        floor_s: float | None,
    ) -> None:
        on_gpu, optimised, notices = device.type == "cuda", self._optimised, self._notices

        def names() -> dict[int, str]:
            return parameter_names(self._models)  # which are let go of at the end

        reader = ParameterReader(
            self._schedule,
            on_gpu=on_gpu,
            names=names,
            not_measured=notices.not_measured,
        )
        for one in optimised.values():
            reader.refresh(one)
        share_between_ranks(list(optimised.values()), call, self._schedule, notices)
        self._desk = Desk(device, optimised, self._schedule, self._pipeline, notices, share=share, floor_s=floor_s)
        self._put, self._relieve = self._desk.put, self._desk.relieve
        self._stepping = Stepping(optimised, reader, self._desk, self._guard)
        if on_gpu:
            for one in optimised.values():
                reader.warm_up(one)
        make = functools.partial(
            Probing,
            optimizers=optimizers,
            device=device,
            schedule=self._schedule,
            guard=self._guard,
            not_measured=notices.not_measured,
            parameters=self._parameters,
            names=names,
            say=notices.preflight,
            event=self._put_event,
        )
        probing: Probing | None = None
        with self._guard:
            probing = make(self._walkable())
        self._probing = probing or make({})  # whatever is odd about the models: their parameters are watched
        self._stepping.attach(self._probing, self._put_event)
        endings.watch(self)
        self._probing.arm()

    def _walkable(self) -> dict[str, nn.Module]:
        """The models whose modules can be watched; of the others it is said."""
        troubles = {name: walks.trouble(model) for name, model in self._models.items()}
        for name, reason in troubles.items():
            if reason is not None:
                _log.warning("modules of %s are left unwatched: %s", name or "the model", reason)
                for family in ("act", "gain", "attn", "logits", "batch"):
                    self._notices.not_measured(f"{family}/*{f'@{name}.*' if name else ''}", reason)
        return {name: model for name, model in self._models.items() if troubles[name] is None}

    def _consume(self, sheets: Sequence[tuple[Sheet, Float64]]) -> None:
        try:
            self._assembly.consume(sheets)
        except Exception as error:
            self._notices.problem(error)
            raise

    def _problem(self, reason: str) -> None:
        """A sink or a channel does not work; on its own thread."""
        if self._closed:
            self._writer.event("monitor-problem", data={"reason": reason})
        else:
            self._notices.problem(reason)

    def _parameters(self) -> Sequence[Watched]:
        return [watched for optimised in self._optimised.values() for watched in optimised.watched]

    def _look_closer(self) -> None:
        """There is an alarm. Where parameters are split, all ranks must measure the same at each step."""
        if all(optimised.sharing is None for optimised in self._optimised.values()):
            self._sweeps.ask()

    @property
    def _doctor(self) -> Host | None:
        return self._outputs.doctor

    # What the training thread passes through.

    def step(
        self,
        loss: Tensor | float | None = None,
        *,
        parts: Mapping[str, Tensor | float] | None = None,
        samples: int | None = None,
        tokens: int | None = None,
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
        """
        if self._closed:
            return
        if num_steps := self._sweeps.asked(self._schedule.iteration):
            self._schedule.sweep(num_steps)
            self._put_event("sweep", {"num_steps": num_steps})
        desk = self._desk
        counts = {"samples": samples, "tokens": tokens}
        if desk.rests and self._doze(loss, parts, counts):
            return
        is_capturing = desk.is_capturing
        began = time.perf_counter() if is_capturing else desk.budget.begin("step")
        with self._guard:
            self._probing.pause()
        sheet = desk.turn()
        if not is_capturing:
            self._stepping.read_replayed(sheet)
        self._stepping.close_iteration(sheet)
        try:
            with self._guard:
                self._probing.preflight.loss(loss)
            with self._guard:
                desk.note(sheet, Key("loss"), loss)
                for name, part in (parts or {}).items():
                    with self._guard:
                        check_tag(f"loss/part@{name}")
                        desk.note(sheet, Key("part", names=(name,)), part)
            with self._guard:
                desk.close(sheet, counts, self._probing, began, is_capturing=is_capturing)
        finally:
            desk.left()

    def _doze(self, loss: Any, parts: Mapping[str, Any] | None, counts: Mapping[str, int | None]) -> bool:
        """Close an iteration that rests in a hurry, if that can be."""
        desk, dozed = self._desk, False
        with self._guard:
            dozed = desk.doze(loss, parts, counts, self._probing)
        if dozed:
            with self._guard:
                self._stepping.begin_iteration()
                desk.wake()
            desk.left()
        return dozed

    def data(self, batches: Iterable[T]) -> Iterator[T]:
        """The same batches, timed: how long each iteration waits for its data becomes `time/data`.

        `iter` is called once for each pass, as a plain loop would. Samples and tokens are counted, and labels looked at
        now and then, where the batches are made of tensors.
        """
        iterator = iter(batches)
        while True:
            started, worked = time.perf_counter(), time.thread_time()
            try:
                batch = next(iterator)
            except StopIteration:
                self.end_of_data()
                return
            worked_s, waited_s = time.thread_time() - worked, time.perf_counter() - started
            self.batch(batch, waited_s=waited_s, worked_s=worked_s)
            yield batch

    def batch(self, batch: Any, *, waited_s: float = 0.0, worked_s: float = 0.0) -> None:
        """A batch is about to be used; for loops that cannot hand their loader to `data`.

        Args:
            batch: As the loader gave it.
            waited_s: How long the training waited for it, in seconds.
            worked_s: How much of that its own thread made the batch, as it does without workers.
        """
        desk = self._desk
        desk.spent["time/data"] += waited_s
        if worked_s > 0 and not torch.cuda.is_initialized():  # type: ignore[no-untyped-call] # else a GPU is idle
            desk.spent["time/data_work"] += worked_s
        if not self._closed:
            began = desk.begin("data")
            with self._guard:
                self._probing.waited(waited_s)
                self._probing.pause()
                desk.count(self._probing.batch(batch))
            with self._guard:
                self._probing.resume()
            desk.end("data", began)

    def charge(self, own_s: float) -> None:
        """Count so many seconds as watching: what an integration spends beside the calls that it makes here.

        They are part of what the end of the run says the watching took. No cadence can spare them, so none is stretched
        for them.
        """
        self._desk.budget.total_own_s += max(own_s, 0.0)

    def end_of_data(self) -> None:
        """The data have come to an end: what follows before the next step may be an evaluation. `data` calls it."""
        if not self._closed:
            with self._guard:
                self._probing.preflight.boundary()

    def not_measured(self, tag: str, reason: str) -> None:
        """Say, once for a tag or pattern of tags, that it cannot be measured, and why; rules that need it abstain."""
        if not self._closed:
            self._notices.not_measured(tag, reason)

    def evaluate(
        self, *, loss: Tensor | float | None = None, metrics: Mapping[str, Tensor | float] | None = None
    ) -> None:
        """Record an evaluation of the model as it is after the last step.

        Args:
            loss: On the validation set, `val/loss`.
            metrics: Others, by name: `val/<name>`.
        """
        if self._closed:
            return
        with self._guard:
            self._probing.preflight.evaluated()
            desk = self._desk
            found: dict[str, float] = {}
            sheet = Sheet(now(), row=("evaluation", found))
            given = {**({} if loss is None else {"loss": loss}), **(metrics or {})}
            for name, value in given.items():
                with self._guard:
                    check_tag(f"val/{name}")
                    if isinstance(value, Tensor) and value.device == desk.device:  # nobody waits for it
                        sheet.add(Key("value", names=(f"val/{name}",)), value.detach().double().mean())
                    else:
                        found[f"val/{name}"] = plain(value)
            if given:
                desk.put(sheet, desk.send(sheet, is_capturing=desk.is_capturing))

    def epoch(self) -> None:
        """An epoch is over: its number, length and speed become a row of the table `epoch`."""
        if not self._closed:
            with self._guard:
                self._probing.preflight.boundary()
                self._desk.end_epoch()

    def burst(self, num_steps: int) -> None:
        """Measure everything at each of the next steps, whatever the cadences and the budget say.

        Args:
            num_steps: At least 1.
        """
        if num_steps < 1:
            raise ValueError(f"`burst(num_steps=...)` must be at least 1, got {num_steps}.")
        self._schedule.burst(num_steps)
        self._put_event("burst", {"num_steps": num_steps})

    def _put_event(self, kind: str, data: Mapping[str, Any]) -> None:
        if self._pipeline.is_current_thread:  # found in the numbers of a step that is not the last of those that wait
            self._assembly.event(kind, data)
        else:
            self._put(Sheet(now(), event=(kind, dict(data))), NOTHING)

    def findings(self) -> tuple[Finding, ...]:
        """All findings so far, alarms first; those of the last steps come within half a second or so."""
        return self._outputs.findings()

    def _drain(self, timeout_s: float) -> None:
        """Wait until all steps so far are consumed, no longer than this."""
        with self._guard:
            self._desk.flush()
        self._pipeline.drain(timeout_s)

    # Checkpoints.

    def state_dict(self) -> dict[str, Any]:
        """All that a later session needs to go on without a jump, in plain numbers: put it into your checkpoint."""
        self._drain(_CLOSE_S)  # where the device is behind; the training would wait for it as well
        state, known = (None, 0) if self._doctor is None else self._doctor.state(_CHECKPOINT_S)
        return {
            "version": 1,
            "iteration": self._schedule.iteration,
            "epoch": self._desk.epoch.number,
            **self._assembly.state_dict(),
            "doctor": state,
            "doctor_step": known,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint; where the run was ahead of it, a new branch begins."""
        if state.get("version") != 1:
            raise ValueError(f"`load_state_dict` reads version 1 of Sonde's state, got {state.get('version')!r}.")
        self._drain(_CLOSE_S)
        self._desk.restart(int(state.get("epoch", 0)))
        self._schedule.resume(int(state["iteration"]))
        self._assembly.load_state_dict(state)
        self._outputs.relay.branch(self._assembly.step + 1)
        if self._doctor is not None:
            self._doctor.restore(state.get("doctor"), self._assembly.step, known=state.get("doctor_step"))
        self._stepping.resume()

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
        self._closed = True
        self._stepping.leave()
        self._probing.close()
        is_finished = ending is Ending.FINISHED
        patience_s = _CLOSE_S if is_finished else _CLOSE_HURRY_S
        with self._guard:
            self._desk.flush()
        try:
            self._pipeline.close(patience_s)
        finally:
            services_s = _CLOSE_SERVICES_S if is_finished else _CLOSE_HURRY_S
            doctor_s = _CLOSE_DOCTOR_S if is_finished else _CLOSE_HURRY_S
            self._outputs.close(doctor_s=doctor_s, services_s=services_s)
            self._writer.end(ending, reason)
            endings.unwatch(self)
            self._desk.leave()
            self._optimised.clear()
            self._models = {}
            self._outputs.leave(f"Sonde: {self.path}: {self._desk.budget}")

    def forget(self) -> None:
        """After a fork: this process is not the one that trains."""
        self._closed = True
        self._stepping.stop()
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
        self._drain(_CLOSE_HURRY_S)  # the steps that were made before it count
        self._outputs.relay.event("exception", step=self._assembly.step, data={"reason": reason})
        self.end(ending, reason)
