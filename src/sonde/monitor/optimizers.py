"""What is read of an optimiser's gradients and weights around its step."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from sonde.kernels import TensorStats
from sonde.kernels.columns import Column
from sonde.kernels.copies import Copies
from sonde.kernels.dispatch import steps_of
from sonde.kernels.reference import difference
from sonde.kernels.sketch_products import sketch_products
from sonde.kernels.stats import Stats
from sonde.monitor.consecutive import Consecutive, ConsecutiveChanges
from sonde.monitor.schedule import Schedule
from sonde.monitor.sharing import Sharing, offering
from sonde.monitor.sheets import ClipNote, Key, Sheet
from sonde.probes.norms import Norms, tensor_norms
from sonde.probes.parameters import LAZY, NO_FLOATS, Watched, left_out, num_parameters, of_optimizer
from sonde.probes.seams import Clip
from sonde.probes.shards import local_part, local_parts, trouble
from sonde.streams.logs import logger

if TYPE_CHECKING:
    from sonde.kernels.triton_steps import TritonSteps

_log = logger("sonde.monitor")

# Which parameters have a gradient may change at every step (experts); what was prepared for them must not pile up.
_MOST_STATS = 256
_SINGLE_BYTES = 4
# Of several steps in one iteration of the loop the last one read is recorded: a critic makes five, and a loop in which
# nobody closes the iterations any number.
_MOST_MEASURED = 16
_MOST_STEPS = 8  # a training that keeps changing its stream is measured in another way
_GRAD = attrgetter("grad")
_LAYOUT = attrgetter("layout")
_WHOLE = frozenset({Tensor, nn.Parameter})  # never a piece of something
_WHOLE_OR_NONE = _WHOLE | {type(None)}


class _Before(NamedTuple):
    """Of a slot that has its turn: copies of its parameters from before the step."""

    slot: int
    copies: Sequence[Tensor]


class _Differences(NamedTuple):
    """Changes of tensors, each made where it is asked for."""

    new: Sequence[Tensor]
    old: Sequence[Tensor]

    def at(self, place: int) -> Tensor:
        """Of one of them."""
        return difference(self.new[place], self.old[place])


class _Slot(NamedTuple):
    """The parameters that have their turn together."""

    names: tuple[str, ...]
    parameters: list[Tensor]
    number: int | None
    """None where there is only one slot."""


@dataclass(slots=True)
class Optimised:
    """What the training thread knows of one optimiser."""

    name: str
    optimizer: Optimizer
    watched: list[Watched] = field(default_factory=list)
    names: tuple[str, ...] = ()
    parameters: list[Tensor] = field(default_factory=list)
    slots: list[_Slot] = field(default_factory=list)
    update_slots: list[_Slot] = field(default_factory=list)
    """The same for updates."""
    ids: set[int] = field(default_factory=set)
    num: int = -1
    """Parameters of the optimiser when it was last looked at, those that cannot be watched among them."""
    lazy: list[Tensor] = field(default_factory=list)
    """Those that had no values then."""
    left_out: str = ""
    """What was said about those that cannot be watched."""
    kind: tuple[torch.dtype, torch.device] | None = None
    """Of its first parameter."""
    lr_tags: list[tuple[str, ...]] = field(default_factory=list)
    """Of the learning rate of each group."""
    handle: RemovableHandle | None = None
    depth: int = 0
    applied: bool = False
    captured: bool = False
    """Whether its step was recorded into a CUDA graph: replayed, it calls no hook."""
    entered: float = 0.0
    has_closure: bool = False
    stats: dict[Any, TensorStats] = field(default_factory=dict)
    norms: dict[Any, Norms] = field(default_factory=dict)
    gradients: list[Tensor] = field(default_factory=list)
    """Those that were read, kept until the optimiser has used them: torch makes an object anew for each that nobody in
    Python holds, which takes longer than all our questions."""
    before: list[_Before] = field(default_factory=list)
    versions: list[int] | None = None
    """Of the gradients, as a clip left them; None where none was clipped since the last step."""
    by_value: bool = False
    weights_read: int = -2
    """The iteration whose weights were read."""
    is_known: bool = False
    """Whether that was the step before."""
    sharing: Sharing | None = None
    """Where its parameters are split over ranks."""
    is_blind: bool = False
    """Whether they are split, and other ranks do not watch: a piece's statistics are not the tensor's."""
    steps: "TritonSteps | None" = None
    """Measures with few launches what most steps ask for."""
    has_steps: bool = True
    """Whether that can be, as far as is known."""
    num_in_iteration: int = 0
    """Steps since the loop's iteration began."""
    steps_made: int = 0
    is_followed: bool = False
    """Whether it was told where the weights are after this step."""
    gradient_cosines: Consecutive = field(default_factory=Consecutive)
    update_cosines: ConsecutiveChanges = field(default_factory=ConsecutiveChanges)

    @property
    def is_measured_enough(self) -> bool:
        """Whether it has made so many steps in one iteration that a further one would tell nothing new."""
        return self.num_in_iteration >= _MOST_MEASURED

    def is_last(self) -> bool:
        """Whether our hook runs after all others."""
        hooks = self.handle.hooks_dict_ref() if self.handle is not None else None
        return hooks is not None and self.handle is not None and next(reversed(hooks), None) == self.handle.id

    def leave(self) -> None:
        """Take our hook off, where it is."""
        if self.handle is not None:
            self.handle.remove()

    def begin(self) -> None:
        """A new iteration of the loop."""
        self.applied, self.depth, self.versions, self.by_value = False, 0, None, False
        self.num_in_iteration = 0
        self.is_followed = False
        self.gradients = []


class ParameterReader:
    """Reads gradients, weights and updates into a sheet, as the schedule says.

    Gradients are read where they are whole and untouched: before the first clip that torch makes, or else when the
    optimiser is entered. What the optimiser gets after clips by norm follows from their factors; after anything else,
    noticed by the gradients' version counters, its norms are read again.

    Call it without gradients (`torch.no_grad`).

    Args:
        schedule: What has its turn.
        on_gpu: Where one pass over all tensors costs no more than their norms alone.
        names: The name of every parameter of the models, by its id.
        not_measured: Says, once, what cannot be measured, and why.
    """

    def __init__(
        self,
        schedule: Schedule,
        *,
        on_gpu: bool,
        names: Callable[[], dict[int, str]],
        not_measured: Callable[[str, str], None],
    ) -> None:
        self._schedule, self._on_gpu, self._names, self._not_measured = schedule, on_gpu, names, not_measured
        self._num_slots = schedule.cadences.rotating.interval_steps
        self._num_update_slots = schedule.cadences.num_update_slots(on_gpu=on_gpu)

    def refresh(self, optimised: Optimised) -> bool:
        """Notice parameters that were added since, or changed their type or place; whether there were any."""
        num = num_parameters(optimised.optimizer)
        first = optimised.parameters[0] if optimised.parameters else None
        is_as_before = num == optimised.num and (first is None or (first.dtype, first.device) == optimised.kind)
        if is_as_before and all(map(is_lazy, optimised.lazy)):
            if optimised.lazy:  # not by the first call of the model either
                self._say_left_out(optimised, {LAZY: len(optimised.lazy)})
            return False
        names_by_id = self._names()
        watched = of_optimizer(optimised.optimizer, names_by_id, optimised.name)
        optimised.num, optimised.watched = num, watched
        optimised.names = names = tuple(w.name for w in watched)
        optimised.parameters = parameters = [w.parameter for w in watched]
        optimised.slots = _slots(names, parameters, self._num_slots)
        optimised.update_slots = _slots(names, parameters, self._num_update_slots)
        optimised.ids = set(map(id, parameters))
        optimised.kind = (parameters[0].dtype, parameters[0].device) if watched else None
        optimised.stats.clear()
        optimised.norms.clear()
        optimised.weights_read = -2
        optimised.steps, optimised.has_steps, optimised.steps_made = None, True, 0
        if optimised.sharing is not None:
            optimised.sharing.replace(watched)
        optimised.lazy = []
        if len(watched) < num:
            lazy = (p for group in optimised.optimizer.param_groups for p in group["params"] if is_lazy(p))
            optimised.lazy = list(lazy)
            missing = left_out(optimised.optimizer, names_by_id, optimised.name)
            self._say_left_out(optimised, {reason: count for reason, count in missing.items() if reason != LAZY})
        return True

    def _say_left_out(self, optimised: Optimised, missing: Mapping[str, int]) -> None:
        said = "; ".join(f"{n} {'parameter is' if n == 1 else 'parameters are'} {why}" for why, n in missing.items())
        if said and said != optimised.left_out:
            optimised.left_out = said
            where = f"@{optimised.name}" if optimised.name else ""
            self._not_measured(f"weight/*{where}", said)
            if missing.keys() != {NO_FLOATS}:  # tables of integers and sparse weights are meant to be there
                _log.warning("left unwatched%s: %s", f" of {optimised.name}" if optimised.name else "", said)

    # Gradients.

    def clip(self, sheet: Sheet, optimised: Optimised, clip: Clip) -> None:
        """Torch is about to clip gradients of this optimiser, or has done so."""
        clipped = {id(parameter) for parameter in clip.parameters} & optimised.ids
        if not clipped:
            return
        if not clip.done:
            if not self._unchanged(optimised):
                if optimised.sharing is not None:
                    optimised.sharing.begin()
                sheet.forget_gradients(optimised.name)
                self._read_gradients(sheet, optimised)
            return
        names = None
        if len(clipped) < len(optimised.ids):
            names = frozenset(w.name for w in optimised.watched if id(w.parameter) in clipped)
        notes = sheet.clips.setdefault(optimised.name, [])
        if clip.norm is not None and trouble(clip.norm, clip.norm) is None:
            sheet.add(Key("clip", optimised.name, slot=len(notes)), local_part(clip.norm.detach()))
        dtype = torch.float32 if clip.norm is None else clip.norm.dtype
        notes.append(ClipNote(clip.limit, clip.norm is None, names, dtype))
        optimised.by_value |= clip.norm is None
        optimised.versions = self._gradient_versions(optimised)

    def gradients(self, sheet: Sheet, optimised: Optimised) -> None:
        """The gradients as the optimiser gets them."""
        note_scaling(sheet, optimised)
        if optimised.sharing is not None:
            optimised.sharing.begin()
        if optimised.versions is None:
            self._read_gradients(sheet, optimised)
        elif optimised.by_value or self._rounds(optimised) or not self._unchanged(optimised):
            names, tensors = self._present(sheet, optimised)
            if tensors:
                add = offering(sheet, optimised.sharing)
                add(Key("norm_clipped", optimised.name, names), tensor_norms(tensors))

    def _rounds(self, optimised: Optimised) -> bool:
        """Whether a clip leaves gradients whose norm its factor does not tell: they are rounded to a short format."""
        return not self._on_gpu and optimised.kind is not None and optimised.kind[0].itemsize < _SINGLE_BYTES

    def _read_gradients(self, sheet: Sheet, optimised: Optimised) -> None:
        schedule, name = optimised.sharing or self._schedule, optimised.name
        add = offering(sheet, optimised.sharing)
        with_sketch = schedule.due("cosines") or schedule.due("cosines", 1)
        slots = schedule.slots("rotating", self._num_slots)
        is_due = schedule.norms_due() or with_sketch or schedule.due("layers") or schedule.due("updates")
        if not is_due and not any(optimised.slots[slot].parameters for slot in slots):
            return
        steps = self._steps(optimised)
        if steps is not None and self._measured_at_once(sheet, optimised, steps, slots, with_sketch):
            return
        names, tensors = self._present(sheet, optimised)
        if not tensors:
            return
        whole = len(names) == len(optimised.names)
        if (self._on_gpu and optimised.sharing is None) or with_sketch or schedule.due("layers"):
            found = self._stats(optimised, ("grad", None, None if whole else names), tensors)(
                tensors, sketch=with_sketch
            )
            add(Key("grad", name, names), found.rows)
            self._note_infinite(sheet, optimised, Key("grad", name, names), found.rows, tensors.__getitem__)
            if (sketch := self._sketch(found)) is not None:
                products = optimised.gradient_cosines.take(schedule.iteration, names, sketch)
                if products is not None and schedule.due("cosines"):
                    add(Key("grad_cosine", name, names), products)
                if schedule.due("rotating"):
                    add(Key("trajectory", name), sketch.sum(0))
        else:
            add(Key("norm", name, names), self._norms(optimised, None if whole else names, tensors))
        for slot in slots:
            some_names, some = (
                (optimised.slots[slot].names, tensors[slot :: self._num_slots])
                if whole
                else self._of_slot(optimised, names, tensors, slot)
            )
            self._note_histogram(add, optimised, slot, some_names, some)

    def _sketch(self, found: Stats) -> Tensor | None:
        """The sketches; on a CPU NaN where a value is not finite, of which a sketch knows nothing."""
        if found.sketch is None or self._on_gpu:
            return found.sketch
        return found.sketch.masked_fill(found.rows[:, Column.NONFINITE, None] > 0, torch.nan)

    def _note_infinite(
        self, sheet: Sheet, optimised: Optimised, key: Key, rows: Tensor, tensor: Callable[[int], Tensor]
    ) -> None:
        """Rows count what is not finite. A norm is infinite where none of that is NaN: such tensors are looked at."""
        if self._on_gpu or optimised.sharing is not None:
            return
        places = rows[:, Column.NONFINITE].nonzero().flatten().tolist()
        infinite = frozenset(key.names[place] for place in places if not tensor(place).isnan().any())
        if infinite:
            sheet.infinite[key] = infinite

    def _note_histogram(
        self,
        add: Callable[[Key, Tensor], None],
        optimised: Optimised,
        slot: int,
        names: tuple[str, ...],
        tensors: list[Tensor],
    ) -> None:
        if tensors:
            which = None if names == optimised.slots[slot].names else names
            found = self._stats(optimised, ("histogram", slot, which), tensors)(tensors, histogram=True)
            assert found.histogram is not None
            add(Key("histogram", optimised.name, names, slot), found.histogram)
            if not self._on_gpu or optimised.sharing is not None:  # else all rows are read at every such step
                add(Key("extremes", optimised.name, names, slot), found.rows)

    def _measured_at_once(
        self, sheet: Sheet, optimised: Optimised, steps: "TritonSteps", slots: Sequence[int], with_sketch: bool
    ) -> bool:
        """Read the gradients with few launches; whether that can be done of those that there are."""
        found: list[Any] = list(map(_GRAD, optimised.parameters))
        if not set(map(type, found)) <= _WHOLE:
            return False
        if not steps.confirms(found):
            steps.learn(found)
            if not steps.confirms(found):
                return False
        optimised.gradients = found
        name, names = optimised.name, optimised.names
        slot = slots[0] if len(slots) == 1 and optimised.slots[slots[0]].parameters else None
        rows, sketch, products, histogram = steps.gradients(
            found, slot=slot, sketch=with_sketch, iteration=self._schedule.iteration
        )
        sheet.add(Key("grad", name, names), rows)
        if products is not None and self._schedule.due("cosines"):
            sheet.add(Key("grad_cosine", name, names), products)
        if slot is not None and histogram is not None:
            sheet.add(Key("histogram", name, optimised.slots[slot].names, slot), histogram)
        for each in slots if len(slots) > 1 else ():  # a burst
            self._note_histogram(
                sheet.add, optimised, each, optimised.slots[each].names, found[each :: self._num_slots]
            )
        if sketch is not None and self._schedule.due("rotating"):
            sheet.add(Key("trajectory", name), sketch.sum(0))
        return True

    def _steps(self, optimised: Optimised) -> "TritonSteps | None":
        """What measures at once, on the current stream; None where that cannot be."""
        if not (self._on_gpu and optimised.has_steps) or optimised.sharing is not None:
            return None
        if optimised.steps is None or not optimised.steps.is_current:
            can_be = optimised.steps_made < _MOST_STEPS and set(map(type, optimised.parameters)) <= _WHOLE
            optimised.steps = steps_of(optimised.parameters, self._num_slots) if can_be else None
            optimised.has_steps = optimised.steps is not None
            optimised.steps_made += 1
        return optimised.steps

    def _norms(self, optimised: Optimised, key: Any, tensors: Sequence[Tensor]) -> Tensor:
        if self._on_gpu:
            return tensor_norms(tensors)
        norms = optimised.norms.get(key)
        if norms is None:
            if len(optimised.norms) >= _MOST_STATS:
                optimised.norms.clear()
            norms = optimised.norms[key] = Norms(tensors)
        return norms(tensors)

    def _of_slot(
        self, optimised: Optimised, names: tuple[str, ...], tensors: list[Tensor], slot: int
    ) -> tuple[tuple[str, ...], list[Tensor]]:
        members = set(optimised.slots[slot].names)
        kept = [(name, tensor) for name, tensor in zip(names, tensors, strict=True) if name in members]
        return tuple(name for name, _ in kept), [tensor for _, tensor in kept]

    def _present(self, sheet: Sheet, optimised: Optimised) -> tuple[tuple[str, ...], list[Tensor]]:
        """The gradients that there are, in plain memory, and the names of their parameters."""
        found: list[Tensor | None] = list(map(_GRAD, optimised.parameters))
        # Loops in C: with a thousand tensors the questions cost more than the answers are worth.
        kinds = set(map(type, found))
        if (
            optimised.sharing is None
            and type(None) not in kinds
            and all(map(is_, map(_LAYOUT, found), repeat(torch.strided)))
        ):
            whole: list[Tensor] = found  # type: ignore[assignment]  # none of them is None
            optimised.gradients = whole
            return optimised.names, whole if kinds <= _WHOLE else local_parts(whole)
        names, tensors = [], []
        for (name, parameter), gradient in zip(optimised.watched, found, strict=True):
            if gradient is None:
                continue
            reason = trouble(gradient, parameter) if gradient.layout is torch.strided else "its gradient is sparse"
            if reason is None:
                names.append(name)
                tensors.append(local_part(gradient))
            else:
                sheet.incomplete.add(optimised.name)
                self._not_measured(f"grad/*@{name}", f"{reason}; global norms need all gradients")
        return tuple(names), tensors

    def _gradient_versions(self, optimised: Optimised) -> list[int]:
        found: list[Any] = list(map(_GRAD, optimised.parameters))
        if not set(map(type, found)) <= _WHOLE_OR_NONE:
            found = [None if gradient is None else local_part(gradient) for gradient in found]
        return [-1 if gradient is None else gradient._version for gradient in found]

    def _unchanged(self, optimised: Optimised) -> bool:
        return optimised.versions is not None and optimised.versions == self._gradient_versions(optimised)

    # Weights and updates.

    def copy_weights(self, optimised: Optimised) -> None:
        """Before the step: keep what is needed to tell the update."""
        optimised.before, optimised.is_followed = [], False
        schedule = optimised.sharing or self._schedule
        # A second step in one iteration begins with weights that nobody has read.
        was_read = optimised.weights_read == self._schedule.iteration - 1 and not optimised.applied
        optimised.is_known = was_read and optimised.sharing is None
        steps = self._steps(optimised)
        for slot in self._update_slots(optimised, schedule):
            some = optimised.update_slots[slot].parameters
            if steps is not None and some and (at_once := steps.copy(some, slot)) is not None:
                optimised.before.append(_Before(slot, at_once))
            elif tensors := _pieces(some):
                copies = self._stats(optimised, ("update", slot, None), tensors).copy(tensors)
                optimised.before.append(_Before(slot, copies))

    def _update_slots(self, optimised: Optimised, schedule: Schedule | Sharing) -> Sequence[int]:
        num = self._num_update_slots
        if schedule.due("updates") and (optimised.sharing is not None or self._has_room(optimised)):
            return range(num)
        return schedule.slots("rotating", num) if schedule.cadences.updates_rotate else ()

    def _has_room(self, optimised: Optimised) -> bool:
        """Whether copies of all parameters fit where torch has memory that nobody uses: more is for the training."""
        if not self._on_gpu or optimised.kind is None:
            return True
        free = torch.cuda.memory_reserved(optimised.kind[1]) - torch.cuda.memory_allocated(optimised.kind[1])
        has_room = sum(t.numel() * t.element_size() for t in optimised.parameters) <= free
        if not has_room:
            where = f"@{optimised.name}" if optimised.name else ""
            self._not_measured(f"update/norm{where}", "the GPU has no room for a copy of all parameters at some steps")
        return has_room

    def updates(self, sheet: Sheet, optimised: Optimised) -> None:
        """After the step: what it changed."""
        add = offering(sheet, optimised.sharing)
        steps = self._following(optimised) if optimised.before else None
        if len(optimised.before) == sum(bool(some.parameters) for some in optimised.update_slots):
            sheet.whole_updates.add(optimised.name)
        for slot, copies in optimised.before:
            names, parameters, number = optimised.update_slots[slot]
            new = _pieces(parameters)
            if not optimised.is_known:
                add(Key("before", optimised.name, names, number), tensor_norms(copies))
            if steps is not None and isinstance(copies, Copies) and steps.made(copies, slot):
                rows = steps.updates(copies, slot)
            else:
                rows = self._stats(optimised, ("update", slot, None), new).of_difference(new, copies).rows
            key = Key("update", optimised.name, names, number)
            add(key, rows)
            self._note_infinite(sheet, optimised, key, rows, _Differences(new, copies).at)
        optimised.before = []
        optimised.gradients = []

    def weights(self, sheet: Sheet, optimised: Optimised) -> None:
        """After the step: the weights as they are now."""
        schedule = optimised.sharing or self._schedule
        add = offering(sheet, optimised.sharing)
        # Of the same tensors: what is prepared for their updates serves.
        prepared = "update" if self._num_update_slots == self._num_slots else "shape"
        for slot in schedule.slots("histograms", self._num_slots):
            if some := _pieces(optimised.slots[slot].parameters):
                histogram = self._stats(optimised, (prepared, slot, None), some)(some, histogram=True).histogram
                assert histogram is not None
                add(Key("weight_histogram", optimised.name, optimised.slots[slot].names, slot), histogram)
        with_sketch = any(schedule.due("cosines", ahead) for ahead in range(3))
        if not (with_sketch or schedule.due("layers")) or not optimised.watched:
            return
        steps = self._following(optimised)
        optimised.is_followed = False
        products: Tensor | None = None
        if steps is not None:
            rows, _, products, _ = steps.weights(sketch=with_sketch, iteration=schedule.iteration)
        else:
            tensors = _pieces(optimised.parameters)
            found = self._stats(optimised, ("weight", None, None), tensors)(tensors, sketch=with_sketch)
            rows, sketch = found.rows, self._sketch(found)
            self._note_infinite(
                sheet, optimised, Key("weight", optimised.name, optimised.names), rows, tensors.__getitem__
            )
            if sketch is not None:
                products = optimised.update_cosines.take(schedule.iteration, optimised.names, sketch)
        add(Key("weight", optimised.name, optimised.names), rows)
        optimised.weights_read = schedule.iteration
        if products is not None and schedule.due("cosines"):
            add(Key("update_cosine", optimised.name, optimised.names), products)

    def _following(self, optimised: Optimised) -> "TritonSteps | None":
        """What measures at once, told where the weights are after this step; None where that cannot be."""
        steps = self._steps(optimised)
        if steps is None or optimised.is_followed:
            return steps
        optimised.is_followed = steps.follow(optimised.parameters)
        return steps if optimised.is_followed else None

    def _stats(self, optimised: Optimised, key: Any, tensors: Sequence[Tensor]) -> TensorStats:
        stats = optimised.stats.get(key)
        if stats is None:
            if len(optimised.stats) >= _MOST_STATS:
                optimised.stats.clear()
            stats = optimised.stats[key] = TensorStats(tensors)
        return stats

    @torch.no_grad()
    def warm_up(self, optimised: Optimised) -> None:
        """Have the kernels compiled before the training begins, so that its first steps are not charged for it."""
        tensors = _pieces(optimised.parameters)
        if not tensors:
            return
        stats = self._stats(optimised, ("weight", None, None), tensors)
        optimised.stats["grad", None, None] = TensorStats(tensors)
        for _ in range(2):  # Triton itself makes the first launch of a kernel, and keeps what the next ones need
            sketch = stats(tensors, sketch=True).sketch
            assert sketch is not None
            sketch_products(sketch, sketch)
            # Each slot in its own memory, a part of which is pinned: asking for that later would wait for the device.
            for slot in range(self._num_slots):
                if some := tensors[slot :: self._num_slots]:
                    self._stats(optimised, ("histogram", slot, None), some)(some, histogram=True)
            for slot in range(self._num_update_slots):
                if some := tensors[slot :: self._num_update_slots]:
                    changed = self._stats(optimised, ("update", slot, None), some)
                    changed.of_difference(some, changed.copy(some))
        self._steps(optimised)


def note_scaling(sheet: Sheet, optimised: Optimised) -> None:
    """What a gradient scaler sets on a fused optimiser, which then may not make its step."""
    for attribute in ("grad_scale", "found_inf"):
        value = getattr(optimised.optimizer, attribute, None)
        if isinstance(value, Tensor):
            sheet.add(Key(attribute, optimised.name), value.detach().clone())  # the scaler changes it in place


def _slots(names: tuple[str, ...], parameters: list[Tensor], num: int) -> list[_Slot]:
    every = (slice(slot, None, num) for slot in range(num))
    return [_Slot(names[some], parameters[some], slot if num > 1 else None) for slot, some in enumerate(every)]


def _pieces(tensors: list[Tensor]) -> list[Tensor]:
    """What this process holds of them."""
    return tensors if set(map(type, tensors)) <= _WHOLE else local_parts(tensors)
