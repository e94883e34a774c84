"""`sonde.watch`: one line in any training loop."""

import logging
import math
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from sonde.alerts.config import AlertsConfig
from sonde.config import ARGUMENT, Effective, effective
from sonde.console.terminals import Wanted as Console
from sonde.core.findings import Finding
from sonde.core.records import Ending, Float64
from sonde.core.tags import check_tag
from sonde.kernels.columns import NUM_COLUMNS
from sonde.kernels.histograms import NUM_BINS
from sonde.monitor import live, ranks
from sonde.monitor.alerting import Alarms
from sonde.monitor.assembly import Assembly, now
from sonde.monitor.budget import Budget
from sonde.monitor.cadences import ON_CPU, ON_GPU, Cadences, intervals_of, with_intervals
from sonde.monitor.epochs import Epoch
from sonde.monitor.guard import Guard
from sonde.monitor.live import Where
from sonde.monitor.notices import Notices
from sonde.monitor.optimizers import Optimised, ParameterReader
from sonde.monitor.pipeline import Pipeline
from sonde.monitor.probing import Probing
from sonde.monitor.schedule import Schedule
from sonde.monitor.sharing import Sharing
from sonde.monitor.sheets import Key, Sheet
from sonde.monitor.showing import Showing
from sonde.monitor.starvation import Starvation
from sonde.monitor.sweeps import Sweeps
from sonde.monitor.transport import NOTHING, AtOnce, Delivery, PinnedRing, Transport
from sonde.probes.hooks import take_off
from sonde.probes.parameters import Watched, parameter_names
from sonde.probes.seams import CLIP_BY_NORM, CLIP_BY_VALUE, MAKE_GRAPHS, SCALER_STEP, Clip, ScalerStep
from sonde.sinks.choices import Choice
from sonde.sinks.choices import read as read_sinks
from sonde.sinks.relay import Relay
from sonde.sinks.sink import Sink
from sonde.store import endings
from sonde.store.writer import Writer

_log = logging.getLogger("sonde.monitor")

T = TypeVar("T")

Micro = Literal["mean", "sum"]

_CLOSE_S = 30.0
_CLOSE_HURRY_S = 2.0
_CLOSE_SERVICES_S = 10.0  # sinks and alerts, whose other side may be gone
_ROOM_FOR_PROBES = 16_384  # numbers a step


def watch(
    model: nn.Module | Mapping[str, nn.Module],
    optimizer: Optimizer | Mapping[str, Optimizer],
    *,
    run: str | os.PathLike[str] | None = None,
    config: Mapping[str, Any] | None = None,
    budget: float | None = None,
    cadence: Cadences | None = None,
    console: Console | None = None,
    on_finding: Callable[[Finding], None] | None = None,
    doctor: Where | None = None,
    rules: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    sinks: Sequence[Sink | str] | None = None,
    micro: Micro = "mean",
    floor_s: float | None = None,
    total_steps: int | None = None,
    total_epochs: int | None = None,
    console_s: float = 30.0,
    strict: bool = False,
    settings: Effective | None = None,
) -> "Watch":
    """Record a training: the loss, and the gradients, weights and updates of every parameter.

    The training is left exactly as it is: losses and weights are bit-identical with and without.

    What is left out is as the configuration says: the environment, `sonde.toml`, `pyproject.toml` (see `sonde config`).
    Alerts are configured there alone.

    Args:
        model: The model, or several by name (`{"G": g, "D": d}`); names prefix the tags.
        optimizer: The optimiser, or several by name.
        run: Folder of the run; `runs/<model>-<time>` where left out. An existing run is continued. Of several processes
            that train together the first records there, the others into `ranks/<rank>` inside, each a run of its own.
        config: Anything JSON can say about the run.
        budget: Share of the step time that the watching may take, by default 0.01; cadences are stretched to keep it.
            With `math.inf` they are kept as they are, whatever it costs.
        cadence: How often to measure; by default every step on a GPU, every tenth on a CPU.
        console: What is shown, on stderr: `"live"` a view at the bottom of the terminal, `"lines"` a line now and then,
            `"quiet"` nothing. `"auto"`, the default, is live on a terminal and lines elsewhere: in a file, in CI, in
            notebooks, under `torchrun`. But for `"quiet"`, each alarm is printed when it is found, and at the end where
            the run is and what watching it took.
        on_finding: Called with each finding that is new or has got worse, information included, soon after the step
            that showed it; not on the training's thread.
        doctor: Where rows are judged: in a small `"process"` of its own, which takes no time from the training; on a
            background `"thread"` of this one; or `"off"`, and `sonde diagnose` judges later. By default a process.
            Ranks but the first have none.
        rules: Settings of rules by name: `{"GRD001.growth": 50, "overfitting": False}` (`sonde explain` lists them), or
            the file of a profile that `sonde calibrate` wrote.
        sinks: Loggers that are sent the run as well, by name or made by you: `["tensorboard", WandB("project")]`; fed
            in the background, on the first rank. At the end they have ten seconds.
        micro: What the loss of an accumulated step is of its micro-losses: their `"mean"`, or their `"sum"` where they
            are given as they are differentiated.
        floor_s: Seconds a step that the watching may always take, whatever the share, above 0; smaller means that tiny
            steps are watched in less detail. 2 ms on a CPU and 0.2 ms on a GPU where left out.
        total_steps: How many steps there will be, for the time that is left; nothing else depends on it.
        total_epochs: How many epochs there will be, likewise: where `epoch` is called at the end of each, the steps are
            known after the first.
        console_s: Seconds between two of the console's lines, above 0.
        strict: Whether a fault of Sonde's own is raised (for tests) instead of being said once.
        settings: The configuration, where it was looked for before (`sonde.config.effective`); by default that of the
            working directory.

    Raises:
        RunNotWritable, RunBusy, RunUnreadable: the run cannot be recorded there.
        SettingError, FormatError: the configuration is wrong; the message says where, and what is allowed.
        MissingExtra: a sink's package is not installed.
    """
    models = model if isinstance(model, Mapping) else {"": model}
    optimizers = optimizer if isinstance(optimizer, Mapping) else {"": optimizer}
    for kind, things, wanted in (("model", models, nn.Module), ("optimizer", optimizers, Optimizer)):
        for name, thing in things.items():
            if not isinstance(thing, wanted):
                label = f"{kind}[{name!r}]" if name else kind
                raise TypeError(f"`watch({label})` must be a {wanted.__name__}, got {type(thing).__name__}.")
    if micro not in get_args(Micro):
        raise ValueError(f"`watch(micro=...)` must be one of {', '.join(get_args(Micro))}, got {micro!r}.")
    overrides = {"profile": os.fspath(rules)} if isinstance(rules, str | os.PathLike) else {"rules": rules}
    found = (settings or effective()).over({"budget": budget, "console": console, "doctor": doctor, **overrides})
    chosen = found.config
    if floor_s is not None and not 0 < floor_s < math.inf:
        raise ValueError(f"`watch(floor_s=...)` must be above 0 and finite, got {floor_s}.")
    if not console_s > 0:
        raise ValueError(f"`watch(console_s=...)` must be above 0 seconds, got {console_s}.")
    for name, length in (("total_steps", total_steps), ("total_epochs", total_epochs)):
        if length is not None and length < 1:
            raise ValueError(f"`watch({name}=...)` must be at least 1, or None where it is not known, got {length}.")
    call = ranks.Call()
    folder = Path(run) if run is not None else Path(call.folder(str(_default_folder(models, chosen.runs))))
    if rank := ranks.rank():
        folder = folder / "ranks" / str(rank)
    given: Sequence[Sink | Choice | str] | None = [sinks] if isinstance(sinks, str) else sinks
    asked = [] if rank else chosen.sinks if given is None else given
    made = [_sink(sink) for sink in asked]  # what is not installed is said before anything is recorded
    writer = Writer(folder, config=config, settings=_stored(found, cadence, None if sinks is None else made))
    try:
        return Watch(
            models,
            optimizers,
            writer,
            config=config,
            budget=chosen.budget,
            cadence=cadence,
            intervals=chosen.cadence.given,
            console=chosen.console,
            on_finding=on_finding,
            doctor=chosen.doctor,
            rules=chosen.rules,
            sinks=made,
            alerts=chosen.alerts,
            micro=micro,
            floor_s=floor_s,
            length={"total_steps": total_steps, "total_epochs": total_epochs},
            console_s=console_s,
            strict=strict,
            call=call,
        )
    except BaseException as error:
        writer.end(*endings.describe(type(error), error))
        raise


def _sink(sink: Sink | Choice | str) -> Sink:
    if isinstance(sink, str):
        (sink,) = read_sinks("sinks", [sink])
    return sink.make() if isinstance(sink, Choice) else sink


def _stored(found: Effective, cadence: Cadences | None, sinks: Sequence[Sink] | None) -> dict[str, Any]:
    """Settings for the run, objects that were given instead of settings among them."""
    stored = found.to_json()
    said = {f"cadence.{name}": steps for name, steps in (intervals_of(cadence) if cadence else {}).items()}
    for key, value in {**said, **({} if sinks is None else {"sinks": [sink.name for sink in sinks]})}.items():
        stored[key] = {"value": value, "from": ARGUMENT}
    return stored


def _default_folder(models: Mapping[str, nn.Module], runs: str) -> Path:
    name = type(next(iter(models.values()))).__name__.lower()
    return Path(runs) / f"{name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"


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
        self._writer, self._strict = writer, strict
        self._closed = False
        self._models = models
        self._optimised = {id(optimizer): Optimised(name, optimizer) for name, optimizer in optimizers.items()}
        first = next((p for o in optimizers.values() for group in o.param_groups for p in group["params"]), None)
        self._device = first.device if first is not None else torch.device("cpu")
        on_gpu = self._device.type == "cuda"
        cadence = cadence or with_intervals(ON_GPU if on_gpu else ON_CPU, intervals)
        self._schedule = Schedule(cadence)
        self._sweeps, self._on_finding = Sweeps(), on_finding
        self._pipeline: Pipeline[Sheet] = Pipeline(self._consume, strict=strict)
        self._notices = Notices(self._put_event, self._pipeline.fail)
        self._relay = Relay(writer, sinks, run=str(writer.path.absolute()), config=config, on_problem=self._problem)
        may_tell = doctor != "off" and not ranks.rank()
        for channel, secret in alerts.lacking.items() if may_tell else ():
            _log.warning("alerts: %s is not told anything: its secret, %s, is not set", channel, secret)
        is_told = bool(alerts.channels) and may_tell
        self._alarms = Alarms(alerts, writer.path, self._alarm_problem) if is_told else None
        if any(length.values()):
            writer.event("length", data=length)
        self._showing = Showing(
            console,
            writer.path,
            lambda: None if doctor == "off" else self.findings(),
            interval_s=console_s,
            total_steps=length["total_steps"],
            total_epochs=length["total_epochs"],
        )
        self._live = live.start(
            self._relay, doctor, rules, self._found, self._over, self._showing.say, str(writer.path)
        )
        self._assembly = Assembly(
            self._showing.before(self._relay if self._live is None else self._live),
            list(optimizers),
            histogram_steps=cadence.histograms.interval_steps,
            micro=np.sum if micro == "sum" else np.mean,
        )
        self._guard = Guard(self._notices.fail, strict=strict)
        self._share, self._floor_s = budget, floor_s
        try:
            self._begin(models, optimizers, call)
        except BaseException:  # threads and the doctor's process would outlive it
            self._pipeline.close(_CLOSE_HURRY_S)
            if self._live is not None:
                self._live.close(0.0)
            self._close_services(0.0)
            self._showing.close()
            raise

    def _begin(self, models: Mapping[str, nn.Module], optimizers: Mapping[str, Optimizer], call: ranks.Call) -> None:
        on_gpu = self._device.type == "cuda"
        self._reader = ParameterReader(
            self._schedule,
            on_gpu=on_gpu,
            names=lambda: parameter_names(self._models),
            not_measured=self._notices.not_measured,
        )
        for optimised in self._optimised.values():
            self._reader.refresh(optimised)
        self._share_between_ranks(call)
        self._move_to(self._device)
        self._sheet = Sheet(now())
        self._spent: defaultdict[str, float] = defaultdict(float)  # seconds, samples and tokens since the last step
        self._counted: dict[str, int] = {}
        """Samples and tokens of the batches of this iteration."""
        self._epoch = Epoch()
        self._starvation = Starvation()
        self._last_end = time.perf_counter()
        self._resumed = False
        self._undo: list[Callable[[], None]] = []
        if on_gpu:
            for optimised in self._optimised.values():
                self._reader.warm_up(optimised)
        self._probing = Probing(
            models,
            optimizers,
            self._device,
            self._schedule,
            self._guard,
            self._notices.not_measured,
            self._parameters,
            say=self._notices.preflight,
            event=self._put_event,
        )
        self._attach()
        endings.watch(self)
        self._probing.arm()

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

    def _alarm_problem(self, reason: str) -> None:
        _log.warning("%s", reason)
        self._problem(reason)

    def _close_services(self, timeout_s: float) -> None:
        """What goes elsewhere: all of it within this time and a little."""
        self._relay.stop(timeout_s)
        if self._alarms is not None:
            self._alarms.close(timeout_s)
        self._relay.finish(timeout_s)

    def _parameters(self) -> Sequence[Watched]:
        return [watched for optimised in self._optimised.values() for watched in optimised.watched]

    def _share_between_ranks(self, call: ranks.Call) -> None:
        """Where parameters are split, all ranks must watch, or those that do would wait for the others for ever."""
        split = [optimised for optimised in self._optimised.values() if Sharing.needed(optimised.watched)]
        if not split:
            return
        if call.all_ranks():
            for optimised in split:
                optimised.sharing = Sharing(optimised.watched, self._schedule.cadences)
                self._notices.not_measured(
                    "grad/cosine*", "sketches of parameters that are split over ranks do not add up"
                )
                self._notices.not_measured(
                    "update/cosine*", "sketches of parameters that are split over ranks do not add up"
                )
            return
        reason = "its parameters are split over ranks, not all of which called `sonde.watch`"
        _log.warning("gradients, weights and updates are not measured: %s; call it on every rank", reason)
        for optimised in split:
            where = f"@{optimised.name}" if optimised.name else ""
            for family in ("grad", "weight", "update"):
                self._notices.not_measured(f"{family}/*{where}", reason)
            optimised.is_blind = True

    def _move_to(self, device: torch.device) -> None:
        """The parameters are on this device, or were moved to it."""
        self._device = device
        self._budget = Budget(self._share, device, floor_s=self._floor_s)
        self._transport: Transport = PinnedRing(device, self._most_values()) if device.type == "cuda" else AtOnce()

    def _most_values(self) -> int:
        tensors = sum(len(o.watched) for o in self._optimised.values())
        rotating = -(-tensors // self._schedule.cadences.rotating.interval_steps) + len(self._optimised)
        return 4096 + _ROOM_FOR_PROBES + tensors * (2 * NUM_COLUMNS + 6) + rotating * (NUM_COLUMNS + 3 * NUM_BINS)

    def _attach(self) -> None:
        # Not to be traced into a compiled optimiser step.
        pre: Any = torch.compiler.disable(self._pre)  # type: ignore[no-untyped-call]
        post: Any = torch.compiler.disable(self._post)  # type: ignore[no-untyped-call]
        self._pre_hook = pre
        for optimised in self._optimised.values():
            self._put_last(optimised)
            self._undo.append(optimised.leave)
            self._undo.append(optimised.optimizer.register_step_post_hook(post).remove)
            self._undo.append(optimised.optimizer.register_load_state_dict_post_hook(self._on_load).remove)
        self._undo.append(CLIP_BY_NORM.listen(self._on_clip))
        self._undo.append(CLIP_BY_VALUE.listen(self._on_clip))
        self._undo.append(SCALER_STEP.listen(self._on_scaler))
        self._undo.append(MAKE_GRAPHS.listen(self._on_graphs))

    def _put_last(self, optimised: Optimised) -> None:
        """Have our hook run after all others, which may change gradients."""
        if not optimised.is_last():
            optimised.leave()
            optimised.handle = optimised.optimizer.register_step_pre_hook(self._pre_hook)

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
        capturing = self._capturing()
        began = time.perf_counter() if capturing else self._budget.begin("step")
        sheet, self._sheet = self._sheet, Sheet(now())
        if not capturing:
            self._read_replayed(sheet)
        for optimised in self._optimised.values():
            if optimised.applied:
                sheet.applied.add(optimised.name)
            optimised.begin()
            self._put_last(optimised)
        try:
            with self._guard:
                self._probing.preflight.loss(loss)
            with self._guard:
                self._note_losses(sheet, loss, parts or {})
            with self._guard:
                self._close_sheet(sheet, {"samples": samples, "tokens": tokens}, began, capturing=capturing)
        finally:
            self._last_end = time.perf_counter()

    def _read_replayed(self, sheet: Sheet) -> None:
        """A step inside a replayed CUDA graph calls no hook: its gradients and weights are still where they were."""
        for optimised in self._optimised.values():
            if optimised.captured and not optimised.applied:
                with self._guard, torch.no_grad():
                    self._reader.gradients(sheet, optimised)
                    self._reader.weights(sheet, optimised)
                    self._note_settings(sheet, optimised)
                optimised.applied = True

    def _note_losses(self, sheet: Sheet, loss: Tensor | float | None, parts: Mapping[str, Tensor | float]) -> None:
        self._note_number(sheet, Key("loss"), loss)
        for name, part in parts.items():
            with self._guard:
                check_tag(f"loss/part@{name}")
                self._note_number(sheet, Key("part", names=(name,)), part)

    def _close_sheet(self, sheet: Sheet, counts: Mapping[str, int | None], began: float, *, capturing: bool) -> None:
        sheet.time = now()
        spent = self._spent
        spent["time/step"] += began - self._last_end
        for quantity, given in counts.items():
            count = self._counted.get(quantity) if given is None else given
            if count is not None:
                spent[quantity] += count
        self._counted = {}
        over = bool(sheet.applied or sheet.skipped)  # else a micro-step, whose time is the step's
        if over:
            sheet.readings = self._probing.collect()
        delivery = self._send(sheet, capturing=capturing)
        with_norms = self._schedule.norms_due()
        if sheet.applied:
            self._schedule.iteration += 1
        if over:
            if self._probing.arm():
                self._budget.prepares_next()
            self._spent = defaultdict(float)
        self._budget.end("step", began)
        self._budget.took("hooks", self._probing.clock.take(), like="pre")
        if sheet.applied:
            self._note_times(sheet, spent, with_norms=with_norms)
        self._pipeline.put(sheet, delivery, self._transport.patience)

    def _send(self, sheet: Sheet, *, capturing: bool) -> Delivery:
        """Have a sheet's numbers on their way; what there is no room for is left behind, detail first."""
        delivery = None
        if not capturing:
            tensors = sheet.send_off()
            delivery = self._transport.send(tensors) if tensors else NOTHING
            if delivery is None:
                sheet.drop_detail()
                delivery = self._transport.send(sheet.send_off(), essential=True)
                sheet.host["monitor/dropped"] = 1.0
        if delivery is None:
            sheet.tensors, sheet.sizes, sheet.clips, sheet.readings = {}, [], {}, []  # the step still counts
            delivery = NOTHING
        sheet.let_go()
        return delivery

    def _note_times(self, sheet: Sheet, spent: defaultdict[str, float], *, with_norms: bool) -> None:
        elapsed = spent["time/step"]
        self._schedule.stretch, cost = self._budget.step(elapsed, with_norms=with_norms)
        self._schedule.norm_steps = self._budget.norm_steps
        if self._budget.norm_steps > 1:
            self._notices.not_measured("grad/norm", "reading all gradients takes more than the budget: only some steps")
        for optimised in self._optimised.values():
            if optimised.sharing is not None:
                optimised.sharing.wish(self._schedule.stretch)
        for quantity in ("samples", "tokens"):
            if (count := spent.pop(quantity, None)) is not None and elapsed > 0:
                sheet.host[f"throughput/{quantity}_per_s"] = count / elapsed
                self._epoch.count(quantity, count)
        self._epoch.count("steps", 1)
        if (starved := self._starvation.take()) is not None:
            spent["time/starved"] = starved
        sheet.host.update(spent)
        sheet.host.update(cost)

    def _note_number(self, sheet: Sheet, key: Key, value: Tensor | float | None) -> None:
        if value is None:
            return
        if isinstance(value, Tensor) and value.device == self._device:
            sheet.add(key, value.detach().double().mean() if value.numel() != 1 else value)
        elif key.kind == "loss":
            sheet.loss = _plain(value)
        else:
            sheet.host[f"loss/part@{key.names[0]}"] = _plain(value)

    def _note_settings(self, sheet: Sheet, optimised: Optimised) -> None:
        at = f"@{optimised.name}" if optimised.name else ""
        groups = optimised.optimizer.param_groups
        if len(groups) != len(optimised.lr_tags):
            # The first group's rate is the run's, so that a group added later does not cut the series.
            of_groups = [(f"lr{at}.{i}" if at else f"lr@{i}",) for i in range(len(groups))] if len(groups) > 1 else [()]
            optimised.lr_tags = [(f"lr{at}", *of_groups[0]), *of_groups[1:]]
        for group, tags in zip(groups, optimised.lr_tags, strict=True):
            lr = group.get("lr")
            if isinstance(lr, Tensor) and lr.device.type != "cpu":
                sheet.add(Key("lr", optimised.name, tags), lr.detach().clone())  # schedulers change it in place
            elif lr is not None:
                sheet.host.update(dict.fromkeys(tags, float(lr)))

    def _pre(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        optimised = self._optimised.get(id(optimizer))
        if optimised is None or self._closed:
            return
        optimised.depth += 1
        if optimised.depth > 1:  # a subclass that calls super().step()
            return
        if self._capturing():
            optimised.captured = True
            return
        began = self._budget.begin("pre")
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        optimised.has_closure = closure is not None
        with self._guard:
            if self._resumed:
                self._say_resumed()
            self._probing.before_optimizer(optimizer, has_closure=optimised.has_closure)
        with self._guard, torch.no_grad():
            self._refresh(optimised)
            self._note_settings(self._sheet, optimised)  # now: a scheduler may act before the iteration is closed
            if optimised.sharing is not None:
                optimised.sharing.begin()
            if not optimised.is_blind:
                if not optimised.has_closure:
                    self._reader.gradients(self._sheet, optimised)
                self._reader.copy_weights(optimised)
        with self._guard:
            self._probing.at_optimizer()
        self._budget.end("pre", began)
        optimised.entered = time.perf_counter()

    def _post(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        optimised = self._optimised.get(id(optimizer))
        if optimised is None or self._closed:
            return
        optimised.depth -= 1
        if optimised.depth > 0 or self._capturing():
            return
        self._spent["time/optimizer"] += time.perf_counter() - optimised.entered
        began = self._budget.begin("post")
        optimised.applied, optimised.captured = True, False
        with self._guard:
            self._probing.after_optimizer(optimizer, has_closure=optimised.has_closure)
        try:
            with self._guard, torch.no_grad():
                if not optimised.is_blind:
                    if optimised.has_closure:  # its gradients came into being inside of the step, and are still there
                        self._reader.gradients(self._sheet, optimised)
                    self._reader.updates(self._sheet, optimised)
                    self._reader.weights(self._sheet, optimised)
        finally:
            if optimised.sharing is not None:  # the other ranks wait for us, whatever went wrong
                with self._guard:
                    optimised.sharing.finish(self._sheet, optimised.name)
        self._budget.end("post", began)

    def _refresh(self, optimised: Optimised) -> None:
        if self._reader.refresh(optimised) and optimised.kind is not None and optimised.kind[1] != self._device:
            self._move_to(optimised.kind[1])

    def _on_clip(self, clip: Clip) -> None:
        if self._closed or not clip.parameters or self._capturing():
            return
        began = self._budget.begin("clip")
        with self._guard, torch.no_grad():
            self._probing.preflight.clipped(clip)
            for optimised in self._optimised.values():
                self._refresh(optimised)
                if not optimised.is_blind:
                    self._reader.clip(self._sheet, optimised, clip)
        self._budget.end("clip", began)

    def _on_scaler(self, event: ScalerStep) -> None:
        optimised = self._optimised.get(id(event.optimizer))
        if optimised is None or self._closed:
            return
        with self._guard:
            self._probing.preflight.scaler_step(event)
            if not optimised.applied:
                self._sheet.skipped.add(optimised.name)
            if event.scale is not None:
                scale = event.scale.detach().clone()
                self._sheet.add(Key("scale", optimised.name), scale)
                if event.unscaled_here:
                    self._sheet.add(Key("clip_scale", optimised.name), scale)

    def _on_graphs(self, callables: Sequence[Any]) -> None:
        """Modules with hooks cannot be made graphs: ours go."""
        with self._guard:
            take_off(part for module in callables if isinstance(module, nn.Module) for part in module.modules())

    def _on_load(self, optimizer: Optimizer) -> None:
        with self._guard:
            if not self._closed:
                self._probing.settings.restored(optimizer)

    def _say_resumed(self) -> None:
        """Now that a step is made, whatever the checkpoint has of the optimisers is loaded."""
        self._resumed = False
        optimizers = [
            {
                "optimizer": type(optimised.optimizer).__name__,
                **({"name": optimised.name} if optimised.name else {}),
                "num_with_state": len(optimised.optimizer.state),
            }
            for optimised in self._optimised.values()
        ]
        self._put_event("resumed", {"optimizers": optimizers})

    def data(self, batches: Iterable[T]) -> Iterator[T]:
        """The same batches, timed: how long each iteration waits for its data becomes `time/data`.

        `iter` is called once for each pass, as a plain loop would. Samples and tokens are counted, and labels looked at
        now and then, where the batches are made of tensors.
        """
        iterator = iter(batches)
        while True:
            started = time.perf_counter()
            try:
                batch = next(iterator)
            except StopIteration:
                self.end_of_data()
                return
            self.batch(batch, waited_s=time.perf_counter() - started)
            yield batch

    def batch(self, batch: Any, *, waited_s: float = 0.0) -> None:
        """A batch is about to be used; for loops that cannot hand their loader to `data`.

        Args:
            batch: As the loader gave it.
            waited_s: How long the training waited for it, in seconds.
        """
        self._spent["time/data"] += waited_s
        if not self._closed:
            capturing = self._capturing()
            began = time.perf_counter() if capturing else self._budget.begin("data")
            with self._guard:
                for quantity, count in self._probing.batch(batch).items():
                    self._counted[quantity] = self._counted.get(quantity, 0) + count
            self._budget.end("data", began)

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
            found: dict[str, float] = {}
            sheet = Sheet(now(), row=("evaluation", found))
            given = {**({} if loss is None else {"loss": loss}), **(metrics or {})}
            for name, value in given.items():
                with self._guard:
                    check_tag(f"val/{name}")
                    if isinstance(value, Tensor) and value.device == self._device:  # nobody waits for it
                        sheet.add(Key("value", names=(f"val/{name}",)), value.detach().double().mean())
                    else:
                        found[f"val/{name}"] = _plain(value)
            if given:
                self._pipeline.put(sheet, self._send(sheet, capturing=self._capturing()))

    def epoch(self) -> None:
        """An epoch is over: its number, length and speed become a row of the table `epoch`."""
        if not self._closed:
            with self._guard:
                self._probing.preflight.boundary()
                self._put_row("epoch", self._epoch.close())

    def burst(self, num_steps: int) -> None:
        """Measure everything at each of the next steps, whatever the cadences and the budget say.

        Args:
            num_steps: At least 1.
        """
        if num_steps < 1:
            raise ValueError(f"`burst(num_steps=...)` must be at least 1, got {num_steps}.")
        self._schedule.burst(num_steps)
        self._put_event("burst", {"num_steps": num_steps})

    def _put_row(self, table: str, row: dict[str, float]) -> None:
        if row:
            self._pipeline.put(Sheet(now(), row=(table, row)), NOTHING)

    def _put_event(self, kind: str, data: Mapping[str, Any]) -> None:
        if self._pipeline.is_current_thread:  # found in the numbers of a step that is not the last of those that wait
            self._assembly.event(kind, data)
        else:
            self._pipeline.put(Sheet(now(), event=(kind, dict(data))), NOTHING)

    def findings(self) -> tuple[Finding, ...]:
        """All findings so far, alarms first; those of the last steps come within half a second or so."""
        return () if self._live is None else self._live.findings

    def _found(self, finding: Finding) -> None:
        """On the doctor's thread."""
        if finding.severity.is_alarm:
            if not self._is_split:
                self._sweeps.ask()
            self._showing.say(f"\n{finding}\n")
        if self._alarms is not None:
            self._alarms.found(finding)
        if self._on_finding is not None:
            self._on_finding(finding)

    def _over(self, finding: Finding) -> None:
        """On the doctor's thread."""
        if self._alarms is not None:
            self._alarms.closed(finding)

    @property
    def _is_split(self) -> bool:
        """Whether all ranks must measure the same at each step."""
        return any(optimised.sharing is not None for optimised in self._optimised.values())

    def state_dict(self) -> dict[str, Any]:
        """All that a later session needs to go on without a jump, in plain numbers: put it into your checkpoint."""
        self._pipeline.drain(_CLOSE_S)
        return {
            "version": 1,
            "iteration": self._schedule.iteration,
            "epoch": self._epoch.number,
            **self._assembly.state_dict(),
            "doctor": None if self._live is None else self._live.state(_CLOSE_S),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint; where the run was ahead of it, a new branch begins."""
        if state.get("version") != 1:
            raise ValueError(f"`load_state_dict` reads version 1 of Sonde's state, got {state.get('version')!r}.")
        self._pipeline.drain(_CLOSE_S)
        self._sheet, self._spent = Sheet(now()), defaultdict(float)
        self._schedule.resume(int(state["iteration"]))
        self._epoch = Epoch(int(state.get("epoch", 0)))
        self._assembly.load_state_dict(state)
        self._relay.branch(self._assembly.step + 1)
        if self._live is not None:
            self._live.restore(state.get("doctor"), self._assembly.step)
        self._resumed = True

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
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()
        for optimised in self._optimised.values():
            if optimised.sharing is not None:
                optimised.sharing.leave(optimised.optimizer, optimised.depth)
        self._probing.close()
        try:
            self._pipeline.close(_CLOSE_S if ending is Ending.FINISHED else _CLOSE_HURRY_S)
        finally:
            if self._live is not None:
                self._live.close(_CLOSE_S if ending is Ending.FINISHED else _CLOSE_HURRY_S)
            self._close_services(_CLOSE_SERVICES_S if ending is Ending.FINISHED else _CLOSE_HURRY_S)
            self._writer.end(ending, reason)
            endings.unwatch(self)
            self._transport.close()
            self._starvation.close()
            self._optimised.clear()
            self._models = {}
            self._showing.close(f"Sonde: {self.path}: {self._budget}")

    def forget(self) -> None:
        """After a fork: this process is not the one that trains."""
        self._closed = True
        if self._live is not None:
            self._live.forget()
        if self._alarms is not None:
            self._alarms.forget()
        self._relay.forget()
        self._showing.forget()

    def __enter__(self) -> "Watch":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
            return
        ending, reason = endings.describe(kind, value)
        self._pipeline.drain(_CLOSE_HURRY_S)  # the steps that were made before it count
        self._relay.event("exception", step=self._assembly.step, data={"reason": reason})
        self.end(ending, reason)

    def _capturing(self) -> bool:
        """Whether the user is recording a CUDA graph: then nothing of ours may get into it."""
        return self._device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def _plain(value: Tensor | float) -> float:
    return value.detach().double().mean().item() if isinstance(value, Tensor) else float(value)
