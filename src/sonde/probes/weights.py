"""What is read of an optimiser's weights around its step: what it changed, and what they are now."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from sonde.kernels.copies import Copies
from sonde.kernels.reference import difference
from sonde.kernels.sketch_products import sketch_products
from sonde.probes.consecutive import ConsecutiveChanges
from sonde.probes.gradients import honest_sketch, note_infinite
from sonde.probes.optimizer_numbers import Key, Part
from sonde.probes.optimizers import ALL_GRADIENTS, WatchedOptimizer, pieces
from sonde.probes.schedule import FOR_COSINES, Due

if TYPE_CHECKING:
    from sonde.kernels.triton_steps import TritonSteps

_NEVER = -2


class _Before(NamedTuple):
    """Of a slot that has its turn: copies of its parameters from before the step."""

    slot: int
    copies: Sequence[Tensor]


class Weights:
    """Reads the weights of an optimiser, and their changes. Call it without gradients (`torch.no_grad`).

    Args:
        watched: The optimiser.
        schedule: What has its turn.
    """

    def __init__(self, watched: WatchedOptimizer, schedule: Due) -> None:
        self._watched, self._schedule, self._due = watched, schedule, watched.sharing or schedule
        self._before: list[_Before] = []
        self._read_in = _NEVER
        """The iteration whose weights were read."""
        self._is_known = False
        """Whether that was the step before."""
        self._is_followed = self._has_stepped = False
        """Whether the kernels were told where the weights are after this step; whether one was made already."""
        self._cosines = ConsecutiveChanges()

    def begin(self) -> None:
        """A new iteration of the loop."""
        self._is_followed = self._has_stepped = False

    def refreshed(self) -> None:
        """The optimiser has other parameters."""
        self._read_in = _NEVER

    def copy(self) -> None:
        """Before the step: keep what is needed to tell the update."""
        watched = self._watched
        self._before, self._is_followed = [], False
        if self._due.is_quiet:
            return
        # A second step in one iteration begins with weights that nobody has read.
        was_read = self._read_in == self._schedule.iteration - 1 and not self._has_stepped
        self._is_known = was_read and watched.sharing is None
        steps = watched.steps()
        for slot in self._slots():
            some = watched.update_slots[slot].parameters
            if steps is not None and some and (at_once := steps.copy(some, slot)) is not None:
                self._before.append(_Before(slot, at_once))
            elif tensors := pieces(some):
                self._before.append(_Before(slot, watched.stats(("update", slot), tensors).copy(tensors)))

    def _slots(self) -> Sequence[int]:
        watched, due = self._watched, self._due
        num = len(watched.update_slots)
        if due.due("updates") and (watched.sharing is not None or self._has_room()):
            return range(num)
        return due.slots("rotating", num) if watched.cadences.updates_rotate else ()

    def _has_room(self) -> bool:
        """Whether copies of all parameters fit where torch has memory that nobody uses: more is for the training."""
        watched = self._watched
        if not watched.on_gpu or watched.kind is None:
            return True
        free = torch.cuda.memory_reserved(watched.kind[1]) - torch.cuda.memory_allocated(watched.kind[1])
        has_room = sum(t.numel() * t.element_size() for t in watched.parameters) <= free
        if not has_room:
            reason = "the GPU has no room for a copy of all parameters at some steps"
            watched.not_measured(f"update/norm{watched.at}", reason)
        return has_room

    def read(self) -> None:
        """After the step: what it changed, and the weights as they are now."""
        self._has_stepped = True
        if self._before:
            self._read_updates()
        if not self._due.is_quiet:
            self._read_weights()

    def _read_updates(self) -> None:
        watched = self._watched
        steps = self._following()
        if len(self._before) == sum(bool(some.parameters) for some in watched.update_slots):
            watched.numbers.has_whole_updates = True
        for slot, copies in self._before:
            names, parameters, number = watched.update_slots[slot]
            new = pieces(parameters)
            if not self._is_known:
                watched.add(Key(Part.BEFORE, names, number), watched.norms(("update", slot), copies))
            if steps is not None and isinstance(copies, Copies) and steps.made(copies, slot):
                rows = steps.updates(copies, slot)
            else:
                found = watched.stats(("update", slot), new).of_difference(new, copies)
                rows = found.rows
                note_infinite(watched, Key(Part.UPDATES, names, number), found, _Differences(new, copies))
            watched.add(Key(Part.UPDATES, names, number), rows)
        self._before = []

    def _read_weights(self) -> None:
        watched, due = self._watched, self._due
        # Of the same tensors: what is prepared for their updates serves.
        prepared = "update" if len(watched.update_slots) == len(watched.slots) else "shape"
        for slot in due.slots("histograms", len(watched.slots)):
            if some := pieces(watched.slots[slot].parameters):
                histogram = watched.stats((prepared, slot), some)(some, histogram=True).histogram
                assert histogram is not None
                watched.add(Key(Part.WEIGHT_HISTOGRAM, watched.slots[slot].names, slot), histogram)
        with_sketch = any(due.due("cosines", ahead) for ahead in range(FOR_COSINES))
        if not (with_sketch or due.due("layers")) or not watched.watched:
            return
        steps = self._following()
        self._is_followed = False
        products: Tensor | None = None
        if steps is not None:
            rows, _, products, _ = steps.weights(sketch=with_sketch, iteration=due.iteration)
        else:
            tensors = pieces(watched.parameters)
            found = watched.stats("weights", tensors)(tensors, sketch=with_sketch)
            rows = found.rows
            note_infinite(watched, Key(Part.WEIGHTS, watched.names), found, tensors)
            if (sketch := honest_sketch(watched, found)) is not None:
                products = self._cosines.take(due.iteration, watched.names, sketch)
        watched.add(Key(Part.WEIGHTS, watched.names), rows)
        self._read_in = due.iteration
        if products is not None and due.due("cosines"):
            watched.add(Key(Part.UPDATE_PRODUCTS, watched.names), products)

    def _following(self) -> "TritonSteps | None":
        """What measures at once, told where the weights are after this step; None where that cannot be."""
        steps = self._watched.steps()
        if steps is None or self._is_followed:
            return steps
        self._is_followed = steps.follow(self._watched.parameters)
        return steps if self._is_followed else None

    @torch.no_grad()
    def warm_up(self) -> None:
        """Have the kernels compiled before the training begins, so that its first steps are not charged for it."""
        watched = self._watched
        tensors = pieces(watched.parameters)
        if not tensors:
            return
        stats = watched.stats("weights", tensors)
        watched.stats(ALL_GRADIENTS, tensors)
        for _ in range(2):  # Triton itself makes the first launch of a kernel, and keeps what the next ones need
            sketch = stats(tensors, sketch=True).sketch
            assert sketch is not None
            sketch_products(sketch, sketch)
            # Each slot in its own memory, a part of which is pinned: asking for that later would wait for the device.
            for slot in range(num := len(watched.slots)):
                if some := tensors[slot::num]:
                    watched.stats(("histogram", slot, None), some)(some, histogram=True)
            for slot in range(num := len(watched.update_slots)):
                if some := tensors[slot::num]:
                    changed = watched.stats(("update", slot), some)
                    changed.of_difference(some, changed.copy(some))
        watched.steps()


class _Differences(Sequence[Tensor]):
    """Changes of tensors, each made where it is asked for."""

    def __init__(self, new: Sequence[Tensor], old: Sequence[Tensor]) -> None:
        self._new, self._old = new, old

    def __len__(self) -> int:
        return len(self._new)

    def __getitem__(self, place: int) -> Tensor:  # type: ignore[override]  # no slices are asked for
        return difference(self._new[place], self._old[place])
