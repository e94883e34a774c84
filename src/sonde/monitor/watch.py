"""`sonde.watch`: one line in any training loop."""

import contextlib
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from sonde.core.cadences import Adaptive, Rotation, stretched
from sonde.core.records import Ending
from sonde.core.tags import check_tag
from sonde.kernels import TensorStats
from sonde.kernels.columns import NUM_COLUMNS
from sonde.kernels.histograms import NUM_BINS
from sonde.monitor.assembly import Assembly, now
from sonde.monitor.cadences import ON_CPU, ON_GPU, Cadences
from sonde.monitor.pipeline import Pipeline
from sonde.monitor.sheets import ClipNote, Key, Sheet
from sonde.monitor.transport import AtOnce, Delivery, PinnedRing, Transport
from sonde.probes.norms import tensor_norms
from sonde.probes.parameters import Watched, num_parameters, of_optimizer, parameter_names
from sonde.probes.seams import CLIP_BY_NORM, CLIP_BY_VALUE, SCALER_STEP, Clip, ScalerStep
from sonde.store import endings
from sonde.store.writer import Writer

T = TypeVar("T")

_CLOSE_S = 30.0
_CLOSE_HURRY_S = 2.0
# Which parameters have a gradient may change at every step (experts); what was prepared for them must not pile up.
_MOST_STATS = 256


def watch(
    model: nn.Module | Mapping[str, nn.Module],
    optimizer: Optimizer | Mapping[str, Optimizer],
    *,
    run: str | os.PathLike[str] | None = None,
    config: Mapping[str, Any] | None = None,
    budget: float = 0.01,
    cadence: Cadences | None = None,
    strict: bool = False,
) -> "Watch":
    """Record a training: the loss, and the gradients, weights and updates of every parameter.

    The training is left exactly as it is: losses and weights are bit-identical with and without.

    Args:
        model: The model, or several by name (`{"G": g, "D": d}`); names prefix the tags.
        optimizer: The optimiser, or several by name.
        run: Folder of the run; `runs/<model>-<time>` where left out. An existing run is continued. Of several processes
            that train together the first records there, the others into `ranks/<rank>` inside, each a run of its own.
        config: Anything JSON can say about the run.
        budget: Share of the step time that the watching may take; cadences are stretched to keep it.
        cadence: How often to measure; by default every step on a GPU, every tenth on a CPU.
        strict: Whether a fault of Sonde's own is raised (for tests) instead of being said once.

    Raises:
        RunNotWritable, RunBusy, RunUnreadable: the run cannot be recorded there.
    """
    models = model if isinstance(model, Mapping) else {"": model}
    optimizers = optimizer if isinstance(optimizer, Mapping) else {"": optimizer}
    for kind, things, wanted in (("model", models, nn.Module), ("optimizer", optimizers, Optimizer)):
        for name, thing in things.items():
            if not isinstance(thing, wanted):
                label = f"{kind}[{name!r}]" if name else kind
                raise TypeError(f"`watch({label})` must be a {wanted.__name__}, got {type(thing).__name__}.")
    if not 0 < budget <= 1:
        raise ValueError(f"`watch(budget=...)` must be in (0, 1], got {budget}.")
    folder = Path(run) if run is not None else _default_folder(models)
    if rank := _rank():
        folder = folder / "ranks" / str(rank)
    writer = Writer(folder, config=config)
    try:
        return Watch(models, optimizers, writer, budget=budget, cadence=cadence, strict=strict)
    except BaseException as error:
        writer.end(*endings.describe(type(error), error))
        raise


def _rank() -> int:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    rank = os.environ.get("RANK", "")  # set by torchrun before anything is initialised
    return int(rank) if rank.isdigit() else 0


def _default_folder(models: Mapping[str, nn.Module]) -> Path:
    name = type(next(iter(models.values()))).__name__.lower()
    return Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"


@dataclass(slots=True)
class _Optimised:
    """What the training thread knows of one optimiser."""

    name: str
    optimizer: Optimizer
    watched: list[Watched] = field(default_factory=list)
    ids: set[int] = field(default_factory=set)
    num: int = -1
    """Parameters of the optimiser when it was last looked at, those that cannot be watched among them."""
    dtype: torch.dtype | None = None
    handle: RemovableHandle | None = None
    depth: int = 0
    applied: bool = False
    entered: float = 0.0
    has_closure: bool = False
    stats: dict[Any, TensorStats] = field(default_factory=dict)
    before: list[tuple[int, list[Watched], list[Tensor]]] = field(default_factory=list)
    """Of the slots that have their turn: their parameters, and copies of them from before the step."""

    def leave(self) -> None:
        """Take our hook off, where it is."""
        if self.handle is not None:
            self.handle.remove()


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
        budget: float,
        cadence: Cadences | None,
        strict: bool,
    ) -> None:
        self._writer, self._strict = writer, strict
        self._models = models
        self._unmeasured: set[str] = set()
        self._assembly = Assembly(writer, list(optimizers))
        self._optimised = {id(optimizer): _Optimised(name, optimizer) for name, optimizer in optimizers.items()}
        for optimised in self._optimised.values():
            self._refresh(optimised)
        first = next((w.parameter for o in self._optimised.values() for w in o.watched), None)
        self._device = first.device if first is not None else torch.device("cpu")
        self._on_gpu = on_gpu = self._device.type == "cuda"
        self._cadence = cadence or (ON_GPU if on_gpu else ON_CPU)
        self._num_slots = self._cadence.rotating.interval_steps
        self._adaptive = Adaptive(budget=budget, floor_s=2e-4 if on_gpu else 2e-3)
        self._adaptive_state = self._adaptive.init()
        self._stretch = 1.0
        self._transport: Transport = PinnedRing(self._device, self._most_values()) if on_gpu else AtOnce()
        self._pipeline: Pipeline[Sheet] = Pipeline(self._assembly.consume, strict=strict)
        self._iteration = 0  # iterations in which an optimiser stepped, as far as the host knows
        self._sheet = Sheet(now())
        self._spent: defaultdict[str, float] = defaultdict(float)  # seconds, samples and tokens since the last step
        self._last_end = time.perf_counter()
        self._closed = False
        self._undo: list[Callable[[], None]] = []
        if on_gpu:
            self._warm_up()
        self._attach()
        endings.watch(self)

    def _most_values(self) -> int:
        tensors = sum(len(o.watched) for o in self._optimised.values())
        rotating = -(-tensors // self._num_slots) + len(self._optimised)
        return 4096 + NUM_COLUMNS * (2 * tensors + 2 * rotating) + NUM_BINS * rotating

    def _attach(self) -> None:
        # Not to be traced into a compiled optimiser step.
        pre: Any = torch.compiler.disable(self._pre)  # type: ignore[no-untyped-call]
        post: Any = torch.compiler.disable(self._post)  # type: ignore[no-untyped-call]
        self._pre_hook = pre
        for optimised in self._optimised.values():
            self._put_last(optimised)
            self._undo.append(optimised.leave)
            self._undo.append(optimised.optimizer.register_step_post_hook(post).remove)
        self._undo.append(CLIP_BY_NORM.listen(self._on_clip))
        self._undo.append(CLIP_BY_VALUE.listen(self._on_clip))
        self._undo.append(SCALER_STEP.listen(self._on_scaler))

    def _put_last(self, optimised: _Optimised) -> None:
        """Have our hook run after all others, which may change gradients."""
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
        skipped by a gradient scaler. The loss of an accumulated step is the mean of its micro-losses.

        Args:
            loss: Of this iteration, as a tensor or a number.
            parts: Components of the loss, by name.
            samples: Examples in the batch, for the throughput.
            tokens: Tokens in the batch, for the throughput.
        """
        if self._closed:
            return
        started = time.perf_counter()
        sheet, self._sheet = self._sheet, Sheet(now())
        for optimised in self._optimised.values():
            if optimised.applied:
                sheet.applied.add(optimised.name)
            optimised.applied, optimised.depth = False, 0
            self._put_last(optimised)
        try:
            with self._guard():
                self._note_losses(sheet, loss, parts or {})
            with self._guard():
                self._close_sheet(sheet, {"samples": samples, "tokens": tokens}, started)
        finally:
            self._last_end = time.perf_counter()

    def _note_losses(self, sheet: Sheet, loss: Tensor | float | None, parts: Mapping[str, Tensor | float]) -> None:
        self._note_number(sheet, Key("loss"), loss)
        for name, part in parts.items():
            with self._guard():
                check_tag(f"loss/part@{name}")
                self._note_number(sheet, Key("part", names=(name,)), part)

    def _close_sheet(self, sheet: Sheet, counts: Mapping[str, int | None], started: float) -> None:
        sheet.time = now()
        spent = self._spent
        spent["time/step"] += started - self._last_end
        for quantity, count in counts.items():
            if count is not None:
                spent[quantity] += count
        delivery = self._send(sheet)
        if sheet.applied:
            self._iteration += 1
            self._note_times(sheet, spent, started)
        if sheet.applied or sheet.skipped:  # else a micro-step, whose time is the step's
            self._spent = defaultdict(float)
        else:
            spent["monitor/time"] += time.perf_counter() - started
        self._pipeline.put(sheet, delivery)

    def _send(self, sheet: Sheet) -> Delivery:
        """Have a sheet's numbers on their way; what there is no room for is left behind, detail first."""
        if not self._capturing():
            tensors = sheet.send_off()
            delivery = (self._transport if tensors else AtOnce()).send(tensors)
            if delivery is None:
                sheet.drop_detail()
                delivery = self._transport.send(sheet.send_off(), essential=True)
                sheet.host["monitor/dropped"] = 1.0
            sheet.tensors = {}
            if delivery is not None:
                return delivery
        sheet.tensors, sheet.sizes, sheet.clips = {}, [], {}  # the step still counts
        nothing = AtOnce().send([])
        assert nothing is not None
        return nothing

    def _note_times(self, sheet: Sheet, spent: defaultdict[str, float], started: float) -> None:
        elapsed = spent["time/step"]
        spent["monitor/time"] += time.perf_counter() - started
        self._adaptive_state, self._stretch = self._adaptive.step(self._adaptive_state, spent["monitor/time"], elapsed)
        for quantity in ("samples", "tokens"):
            if (count := spent.pop(quantity, None)) is not None and elapsed > 0:
                sheet.host[f"throughput/{quantity}_per_s"] = count / elapsed
        sheet.host.update(spent)
        sheet.host["monitor/stretch"] = self._stretch

    def _note_number(self, sheet: Sheet, key: Key, value: Tensor | float | None) -> None:
        if value is None:
            return
        if isinstance(value, Tensor) and value.device == self._device:
            sheet.add(key, value.detach().double().mean() if value.numel() != 1 else value)
        elif key.kind == "loss":
            sheet.loss = _plain(value)
        else:
            sheet.host[f"loss/part@{key.names[0]}"] = _plain(value)

    def _note_settings(self, sheet: Sheet, optimised: _Optimised) -> None:
        at = f"@{optimised.name}" if optimised.name else ""
        groups = optimised.optimizer.param_groups
        for i, group in enumerate(groups):
            lr = group.get("lr")
            where = at if len(groups) == 1 else f"{at}.{i}" if at else f"@{i}"
            if isinstance(lr, Tensor) and lr.device.type != "cpu":
                sheet.add(Key("lr", optimised.name, (where,)), lr.detach().clone())  # schedulers change it in place
            elif lr is not None:
                sheet.host[f"lr{where}"] = float(lr)

    def _pre(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        optimised = self._optimised.get(id(optimizer))
        if optimised is None or self._closed:
            return
        optimised.depth += 1
        if optimised.depth > 1:  # a subclass that calls super().step()
            return
        started = time.perf_counter()
        with self._guard():
            if not self._capturing():
                self._refresh(optimised)
                self._note_settings(self._sheet, optimised)  # now: a scheduler may act before the iteration is closed
                closure = args[1] if len(args) > 1 else kwargs.get("closure")
                optimised.has_closure = closure is not None
                if not optimised.has_closure:
                    self._read_gradients(optimised)
                self._copy_weights(optimised)
        optimised.entered = time.perf_counter()
        self._spent["monitor/time"] += optimised.entered - started

    def _post(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        optimised = self._optimised.get(id(optimizer))
        if optimised is None or self._closed:
            return
        optimised.depth -= 1
        if optimised.depth > 0:
            return
        started = time.perf_counter()
        optimised.applied = True
        with self._guard():
            if not self._capturing():
                if optimised.has_closure:  # its gradients came into being inside of the step, and are still there
                    self._read_gradients(optimised)
                self._read_weights(optimised)
                self._read_updates(optimised)
        self._spent["time/optimizer"] += started - optimised.entered
        self._spent["monitor/time"] += time.perf_counter() - started

    def _refresh(self, optimised: _Optimised) -> None:
        """Notice parameters that were added since, or changed their type."""
        num = num_parameters(optimised.optimizer)
        kind = optimised.watched[0].parameter.dtype if optimised.watched else None
        if num != optimised.num or kind != optimised.dtype:
            optimised.num = num
            optimised.watched = of_optimizer(optimised.optimizer, parameter_names(self._models), optimised.name)
            optimised.ids = {id(w.parameter) for w in optimised.watched}
            optimised.dtype = optimised.watched[0].parameter.dtype if optimised.watched else None
            optimised.stats.clear()
            if len(optimised.watched) < num:
                where = f"@{optimised.name}" if optimised.name else ""
                missing = f"{num - len(optimised.watched)} parameters have no floating-point values in plain memory"
                self._not_measured(f"weight/*{where}", missing)

    def _slots(self) -> Sequence[int]:
        rotation = Rotation(stretched(self._cadence.rotating, self._stretch), self._num_slots)
        return rotation.due(self._iteration)

    def _layers_due(self) -> bool:
        return stretched(self._cadence.layers, self._stretch).due(self._iteration)

    @torch.no_grad()
    def _read_gradients(self, optimised: _Optimised) -> None:
        sheet, name = self._sheet, optimised.name
        for attribute in ("grad_scale", "found_inf"):  # set on fused optimisers by a gradient scaler
            value = getattr(optimised.optimizer, attribute, None)
            if isinstance(value, Tensor):
                sheet.add(Key(attribute, name), value.detach().clone())  # the scaler changes it in place
        found = [(w.name, w.parameter.grad) for w in optimised.watched]
        sparse = [parameter for parameter, g in found if g is not None and g.layout is not torch.strided]
        if sparse:
            sheet.incomplete.add(name)
            self._not_measured(f"grad/*@{sparse[0]}", "its gradient is sparse; global norms need all gradients")
        if self._on_gpu or self._layers_due():  # one pass over all costs no more there than the norms alone
            self._read(Key("grad", name), optimised, found)
        elif dense := [(parameter, g) for parameter, g in found if g is not None and g.layout is torch.strided]:
            names = tuple(parameter for parameter, _ in dense)
            sheet.add(Key("norm", name, names), tensor_norms([g for _, g in dense]))
        for slot in self._slots():
            self._read(Key("histogram", name, slot=slot), optimised, found[slot :: self._num_slots])

    @torch.no_grad()
    def _read_weights(self, optimised: _Optimised) -> None:
        if self._layers_due():
            self._read(Key("weight", optimised.name), optimised, [(w.name, w.parameter) for w in optimised.watched])

    def _read(self, key: Key, optimised: _Optimised, found: Sequence[tuple[str, Tensor | None]]) -> None:
        tensors = [tensor for _, tensor in found if tensor is not None and tensor.layout is torch.strided]
        if not tensors:
            return
        names = tuple(name for name, tensor in found if tensor is not None and tensor.layout is torch.strided)
        stats = self._stats(optimised, (key.kind, key.slot, names), tensors)
        if key.kind == "histogram":
            result = stats(tensors, histogram=True).histogram
            assert result is not None
        else:
            result = stats(tensors).rows
        self._sheet.add(key._replace(names=names), result)

    def _stats(self, optimised: _Optimised, key: Any, tensors: Sequence[Tensor]) -> TensorStats:
        if key not in optimised.stats:
            if len(optimised.stats) >= _MOST_STATS:
                optimised.stats.clear()
            optimised.stats[key] = TensorStats(tensors)
        return optimised.stats[key]

    @torch.no_grad()
    def _copy_weights(self, optimised: _Optimised) -> None:
        optimised.before = []
        for slot in self._slots():
            if members := optimised.watched[slot :: self._num_slots]:
                copies = [torch.empty_like(w.parameter, requires_grad=False) for w in members]
                torch._foreach_copy_(copies, [w.parameter for w in members])
                optimised.before.append((slot, members, copies))

    @torch.no_grad()
    def _read_updates(self, optimised: _Optimised) -> None:
        for slot, members, old in optimised.before:
            names, new = tuple(w.name for w in members), [w.parameter for w in members]
            stats = self._stats(optimised, ("update", slot, names), new)
            self._sheet.add(Key("before", optimised.name, names, slot), stats(old).rows)
            self._sheet.add(Key("update", optimised.name, names, slot), stats.of_difference(new, old).rows)
        optimised.before = []

    @torch.no_grad()
    def _warm_up(self) -> None:
        """Have the kernels compiled before the training begins, so that its first steps are not charged for it."""
        for optimised in self._optimised.values():
            if some := [w.parameter for w in optimised.watched[: self._num_slots]]:
                stats = TensorStats(some)
                stats(some)
                stats(some, histogram=True)
                stats.of_difference(some, some)

    def _on_clip(self, clip: Clip) -> None:
        if self._closed or not clip.parameters:
            return
        with self._guard():
            clipped = {id(parameter) for parameter in clip.parameters}
            for optimised in self._optimised.values():
                self._refresh(optimised)
                ours = optimised.ids & clipped
                if ours:
                    whole = len(ours) == len(optimised.ids)
                    names = None if whole else frozenset(w.name for w in optimised.watched if id(w.parameter) in ours)
                    notes = self._sheet.clips.setdefault(optimised.name, [])
                    self._sheet.add(Key("clip", optimised.name, slot=len(notes)), clip.norm.detach())
                    notes.append(ClipNote(clip.limit, clip.by_value, names))

    def _on_scaler(self, event: ScalerStep) -> None:
        optimised = self._optimised.get(id(event.optimizer))
        if optimised is None or self._closed:
            return
        with self._guard():
            if not optimised.applied:
                self._sheet.skipped.add(optimised.name)
            if event.scale is not None:
                scale = event.scale.detach().clone()
                self._sheet.add(Key("scale", optimised.name), scale)
                if event.unscaled_here:
                    self._sheet.add(Key("clip_scale", optimised.name), scale)

    def _not_measured(self, tag: str, reason: str) -> None:
        """Say, once, that something cannot be measured."""
        if tag not in self._unmeasured:
            self._unmeasured.add(tag)
            self._writer.event("not-measured", step=self._assembly.step, data={"tag": tag, "reason": reason})

    def data(self, batches: Iterable[T]) -> Iterator[T]:
        """The same batches, timed: how long each iteration waits for its data becomes `time/data`.

        `iter` is called once for each pass, as a plain loop would.
        """
        iterator = iter(batches)
        while True:
            started = time.perf_counter()
            try:
                batch = next(iterator)
            except StopIteration:
                return
            self._spent["time/data"] += time.perf_counter() - started
            yield batch

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
        with self._guard():
            found: dict[str, float] = {}
            given = {**({} if loss is None else {"loss": loss}), **(metrics or {})}
            for name, value in given.items():
                with self._guard():
                    check_tag(f"val/{name}")
                    found[f"val/{name}"] = _plain(value)
            if found:
                delivery = AtOnce().send([])
                assert delivery is not None
                self._pipeline.put(Sheet(now(), evaluation=found), delivery)

    def state_dict(self) -> dict[str, Any]:
        """All that a later session needs to go on without a jump, in plain numbers: put it into your checkpoint."""
        self._pipeline.drain(_CLOSE_S)
        return {"version": 1, "iteration": self._iteration, **self._assembly.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint; where the run was ahead of it, a new branch begins."""
        if state.get("version") != 1:
            raise ValueError(f"`load_state_dict` reads version 1 of Sonde's state, got {state.get('version')!r}.")
        self._pipeline.drain(_CLOSE_S)
        self._sheet, self._spent = Sheet(now()), defaultdict(float)
        self._iteration = int(state["iteration"])
        self._assembly.load_state_dict(state)
        self._writer.branch(self._assembly.step + 1)

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
        try:
            self._pipeline.close(_CLOSE_S if ending is Ending.FINISHED else _CLOSE_HURRY_S)
        finally:
            self._writer.end(ending, reason)
            endings.unwatch(self)
            self._transport.close()
            self._optimised.clear()
            self._models = {}

    def forget(self) -> None:
        """After a fork: this process is not the one that trains."""
        self._closed = True

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
        self._writer.event("exception", step=self._assembly.step, data={"reason": reason})
        self.end(ending, reason)

    def _capturing(self) -> bool:
        """Whether the user is recording a CUDA graph: then nothing of ours may get into it."""
        return self._device.type == "cuda" and torch.cuda.is_current_stream_capturing()

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        """Our own faults do not reach the training."""
        try:
            yield
        except Exception as error:
            if self._strict:
                raise
            self._pipeline.fail(error)


def _plain(value: Tensor | float) -> float:
    return value.detach().double().mean().item() if isinstance(value, Tensor) else float(value)
