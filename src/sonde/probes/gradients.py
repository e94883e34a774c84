"""What is read of an optimiser's gradients.

Gradients are read where they are whole and untouched: before the first clip that torch makes, or else when the
optimiser is entered. What the optimiser gets after clips by norm follows from their factors; after anything else,
noticed by the gradients' version counters, its norms are read again.
"""

import math
from collections.abc import Sequence
from itertools import repeat
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sonde.kernels.columns import Column
from sonde.kernels.stats import Stats
from sonde.probes.consecutive import Consecutive
from sonde.probes.norms import tensor_norms
from sonde.probes.optimizer_numbers import ClipNote, Key, Part, infinite_of
from sonde.probes.optimizers import ALL_GRADIENTS, WatchedOptimizer
from sonde.probes.schedule import Due
from sonde.probes.seams import Clip
from sonde.probes.shards import local_part, local_parts, trouble

if TYPE_CHECKING:
    from sonde.kernels.triton_steps import TritonSteps

_SINGLE_BYTES = 4
_NO_SLOTS: Sequence[int] = ()
_GRAD = attrgetter("grad")
_LAYOUT = attrgetter("layout")
_WHOLE = frozenset({Tensor, nn.Parameter})  # never a piece of something
_WHOLE_OR_NONE = _WHOLE | {type(None)}


class Gradients:
    """Reads the gradients of an optimiser. Call it without gradients (`torch.no_grad`).

    Args:
        watched: The optimiser.
        schedule: What has its turn.
    """

    def __init__(self, watched: WatchedOptimizer, schedule: Due) -> None:
        self._watched, self._due = watched, watched.sharing or schedule
        self._versions: list[int] | None = None
        """As a clip left them; None where none was clipped since the last step."""
        self._by_value = False
        self._held: list[Any] = []
        """Those that were read, kept until the optimiser has used them: torch makes an object anew for each that nobody
        in Python holds, which takes longer than all our questions."""
        self._cosines = Consecutive()
        self._wants_direction = False
        """Whether `rotating` had its turn since the gradient's direction was last read."""

    def begin(self) -> None:
        """A new iteration of the loop."""
        self._versions, self._by_value, self._held = None, False, []

    def let_go(self) -> None:
        """The optimiser has used them."""
        self._held = []

    def clip(self, clip: Clip) -> None:
        """Torch is about to clip gradients, or has done so."""
        watched = self._watched
        clipped = {id(parameter) for parameter in clip.parameters} & watched.ids
        if not clipped:
            return
        if not clip.done:
            if not self._are_unchanged():
                if watched.sharing is not None:
                    watched.sharing.begin()
                watched.numbers.forget_gradients()
                self._read()
            return
        names = None
        if len(clipped) < len(watched.ids):
            names = frozenset(w.name for w in watched.watched if id(w.parameter) in clipped)
        clips = watched.numbers.clips
        if clip.norm is not None and trouble(clip.norm, clip.norm) is None:
            watched.numbers.add(Key(Part.CLIP, slot=len(clips)), local_part(clip.norm.detach()))
        dtype = torch.float32 if clip.norm is None else clip.norm.dtype
        clips.append(ClipNote(clip.limit, clip.norm is None, names, dtype))
        self._by_value |= clip.norm is None
        self._versions = self._current_versions()

    def use(self) -> None:
        """The gradients are as the optimiser gets them."""
        watched = self._watched
        if watched.sharing is not None:
            watched.sharing.begin()
        if self._versions is None:
            self._read()
        elif self._by_value or self._are_rounded or not self._are_unchanged():
            names, tensors = self._present()
            if tensors:
                watched.add(Key(Part.NORMS_APPLIED, names), tensor_norms(tensors))

    @property
    def _are_rounded(self) -> bool:
        """Whether a clip leaves gradients whose norm its factor does not tell: they are rounded to a short format."""
        kind = self._watched.kind
        return not self._watched.on_gpu and kind is not None and kind[0].itemsize < _SINGLE_BYTES

    def _read(self) -> None:
        watched, due = self._watched, self._due
        with_sketch, slots = False, _NO_SLOTS
        if due.is_quiet:
            found: list[Any] = [] if watched.on_gpu else list(map(_GRAD, watched.parameters))
            if found and watched.read_plainly(found):
                self._held = found
                return
        else:
            self._wants_direction |= due.due("rotating")
            # A sketch at the steps of `layers` only: two steps in ten would stand out otherwise.
            for_direction = self._wants_direction and due.due("layers")
            with_sketch = due.due("cosines") or due.due("cosines", 1) or for_direction
            slots = due.slots("rotating", len(watched.slots))
        steps = watched.steps()
        if steps is not None and self._are_read_at_once(steps, slots, with_sketch):
            return
        names, tensors = self._present()
        if not tensors:
            return
        whole = len(names) == len(watched.names)
        if watched.sharing is None or due.due("layers"):
            measured = watched.stats(ALL_GRADIENTS if whole else ("gradients", names), tensors)(
                tensors, sketch=with_sketch
            )
            key = Key(Part.GRADIENTS, names)
            watched.add(key, measured.rows)
            watched.numbers.has_layers = not due.is_quiet and due.due("layers")
            note_infinite(watched, key, measured, tensors)
            if (sketch := honest_sketch(watched, measured)) is not None:
                products = self._cosines.take(due.iteration, names, sketch)
                if products is not None and due.due("cosines"):
                    watched.add(Key(Part.GRADIENT_PRODUCTS, names), products)
                if self._wants_direction:
                    self._wants_direction = False
                    watched.add(Key(Part.TRAJECTORY), sketch.sum(0))
        else:
            watched.add(Key(Part.NORMS, names), tensor_norms(tensors))
        for slot in slots:
            members = watched.slots[slot].names
            if whole:
                self._count(slot, members, tensors[slot :: len(watched.slots)])
            else:
                kept = [(n, t) for n, t in zip(names, tensors, strict=True) if n in set(members)]
                self._count(slot, tuple(n for n, _ in kept), [t for _, t in kept])

    def _count(self, slot: int, names: tuple[str, ...], tensors: list[Tensor]) -> None:
        """Histograms of the gradients that have their turn."""
        watched = self._watched
        if tensors:
            which = None if names == watched.slots[slot].names else names
            found = watched.stats(("histogram", slot, which), tensors)(tensors, histogram=True)
            assert found.histogram is not None
            watched.add(Key(Part.HISTOGRAM, names, slot), found.histogram)
            if not watched.on_gpu or watched.sharing is not None:  # else all rows are read at every such step
                watched.add(Key(Part.EXTREMES, names, slot), found.rows)

    def _are_read_at_once(self, steps: "TritonSteps", slots: Sequence[int], with_sketch: bool) -> bool:
        """Read the gradients with few launches; whether that can be done of those that there are."""
        watched, due = self._watched, self._due
        found: list[Any] = list(map(_GRAD, watched.parameters))
        if not set(map(type, found)) <= _WHOLE:
            return False
        if not steps.confirms(found):
            steps.learn(found)
            if not steps.confirms(found):
                return False
        self._held = found
        slot = slots[0] if len(slots) == 1 and watched.slots[slots[0]].parameters else None
        rows, sketch, products, histogram = steps.gradients(
            found, slot=slot, sketch=with_sketch, iteration=due.iteration
        )
        watched.add(Key(Part.GRADIENTS, watched.names), rows)
        watched.numbers.has_layers = due.due("layers")
        if products is not None and due.due("cosines"):
            watched.add(Key(Part.GRADIENT_PRODUCTS, watched.names), products)
        if slot is not None and histogram is not None:
            watched.add(Key(Part.HISTOGRAM, watched.slots[slot].names, slot), histogram)
        for each in slots if len(slots) > 1 else ():  # a burst
            self._count(each, watched.slots[each].names, found[each :: len(watched.slots)])
        if sketch is not None and self._wants_direction:
            self._wants_direction = False
            watched.add(Key(Part.TRAJECTORY), sketch.sum(0))
        return True

    def _present(self) -> tuple[tuple[str, ...], list[Tensor]]:
        """The gradients that there are, in plain memory, and the names of their parameters."""
        watched = self._watched
        found: list[Tensor | None] = list(map(_GRAD, watched.parameters))
        # Loops in C: with a thousand tensors the questions cost more than the answers are worth.
        kinds = set(map(type, found))
        if (
            watched.sharing is None
            and type(None) not in kinds
            and all(map(is_, map(_LAYOUT, found), repeat(torch.strided)))
        ):
            whole: list[Tensor] = found  # type: ignore[assignment]  # none of them is None
            self._held = whole
            return watched.names, whole if kinds <= _WHOLE else local_parts(whole)
        names, tensors = [], []
        for (name, parameter), gradient in zip(watched.watched, found, strict=True):
            if gradient is None:
                continue
            reason = trouble(gradient, parameter) if gradient.layout is torch.strided else "its gradient is sparse"
            if reason is None:
                names.append(name)
                tensors.append(local_part(gradient))
            else:
                watched.numbers.is_incomplete = True
                watched.not_measured(f"grad/*@{name}", f"{reason}; global norms need all gradients")
        return tuple(names), tensors

    def _current_versions(self) -> list[int]:
        found: list[Any] = list(map(_GRAD, self._watched.parameters))
        if not set(map(type, found)) <= _WHOLE_OR_NONE:
            found = [None if gradient is None else local_part(gradient) for gradient in found]
        return [-1 if gradient is None else gradient._version for gradient in found]

    def _are_unchanged(self) -> bool:
        return self._versions is not None and self._versions == self._current_versions()


def honest_sketch(watched: WatchedOptimizer, found: Stats) -> Tensor | None:
    """The sketches; on a CPU NaN where a value is not finite, of which a sketch knows nothing."""
    if found.sketch is None or watched.on_gpu:
        return found.sketch
    return found.sketch.masked_fill(found.rows[:, Column.NONFINITE, None] > 0, torch.nan)


def note_infinite(watched: WatchedOptimizer, key: Key, found: Stats, tensors: Sequence[Tensor]) -> None:
    """Rows count what is not finite. A norm is infinite where none of that is NaN: such tensors are looked at."""
    if watched.on_gpu or watched.sharing is not None:
        return
    if found.norms is not None:
        if not math.isfinite(found.norms.sum()):
            watched.numbers.infinite.update(infinite_of(key, found.norms.numpy()))
        return
    places = found.rows[:, Column.NONFINITE].nonzero().flatten().tolist()
    places = [place for place in places if not tensors[place].isnan().any()]
    if places:
        watched.numbers.infinite[key] = frozenset(key.names[place] for place in places)
