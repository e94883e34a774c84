"""All that is measured of an optimiser's tensors around a step, on a GPU whose host has no time to spare.

`TritonStats` measures a list of tensors; a step asks for several lists, and each call costs the host its checks, its
memory and its launches, more than the kernels take on the device. Here what a step asks for is known beforehand. Two
launches read the gradients, with the histograms of the tensors that have their turn and the products of sketches that
follow each other; one copies the weights that have their turn; three compare them and read all weights. What they find
is laid down side by side in one piece of memory that is ready to be sent.
"""

from collections.abc import Sequence
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from sonde.core.records import Int64
from sonde.kernels import histograms, sketches, triton_launches
from sonde.kernels.block_map import block_map
from sonde.kernels.bound_kernel import BoundKernel
from sonde.kernels.columns import NUM_COLUMNS
from sonde.kernels.copies import Copies, places
from sonde.kernels.layouts import Layouts, memory_order
from sonde.kernels.pointer_table import PointerTable
from sonde.kernels.sketch_products import NUM_PRODUCTS
from sonde.kernels.triton_launches import CHUNK, Chunks, Pass, Scratch, Turns, Variant
from sonde.kernels.uploads import uploaded

_WORDS = 4  # of 16 bytes: parts of a page begin at multiples of that
_NEVER = -10  # an iteration that none follows
_MOST_REBUILT = 4  # gradients that keep changing how they lie are measured in another way
_READABLE = frozenset({torch.float32, torch.bfloat16, torch.float16})


class Page(NamedTuple):
    """What a step finds: views of one piece of memory, in this order. The next page of the same turn lies there too."""

    gradients: Tensor
    """float64 (n, 7)."""
    gradient_products: Tensor
    """float64 (n, 3)."""
    histogram: Tensor
    """int32 (members, 2048)."""
    updates: Tensor
    """float64 (members, 7)."""
    weights: Tensor
    """float64 (n, 7)."""
    update_products: Tensor
    """float64 (n, 3)."""


class Found(NamedTuple):
    """What was found of all tensors; nothing has waited for it."""

    rows: Tensor
    sketch: Tensor | None = None
    products: Tensor | None = None
    """With those of the iteration before, where that had some: of the sketches, or of the changes of the sketches."""
    histogram: Tensor | None = None
    """Of those that have their turn."""


class _Turn(NamedTuple):
    """The tensors that have their turn together: every so many, from the first that is `slot`."""

    chunks: Chunks
    layouts: Layouts
    offsets: Int64
    """Where the copy of each begins."""
    num_bytes: int
    copiers: dict[bool, list[BoundKernel]]
    passes: dict[Variant, list[BoundKernel]]


@final
class _Side:
    """The gradients, or the weights: how they lie, and the memory in which they are measured."""

    def __init__(self, like: Sequence[Tensor], about: Tensor, *, products: int) -> None:
        self.layouts = Layouts(like)
        self.about, self.products = about, products
        n, device = len(like), self.layouts.device
        found = block_map(self.layouts, CHUNK)
        self.chunks = triton_launches.chunks_on(device, found)
        self.scratch = Scratch(n, len(found.chunks), found.num_copies, device)
        self.sketch = torch.zeros(n, sketches.SIZE, device=device)
        self.changes = torch.zeros(n, sketches.SIZE, device=device) if products == 2 else self.sketch
        self.parts = torch.empty(n, 8, NUM_PRODUCTS, dtype=torch.float64, device=device)
        self.done = torch.zeros(n, dtype=torch.int64, device=device)
        self.passes: dict[tuple[int | None, Variant], Pass] = {}
        self.sketched = self.changed = _NEVER
        """The iterations of the last sketch, and of the last change of one."""

    def bind(self, slot: int | None, variant: Variant, page: Page, num_slots: int) -> Pass:
        """The launches of a variant that writes on the page of this slot."""
        tensors = self.chunks, self.scratch, self.about, Turns(1, num_slots, slot or 0), variant
        products = page.gradient_products if self.products == 1 else page.update_products
        fold = triton_launches.bind_fold(
            *tensors,
            into=(self.sketch, page.histogram),
            products=self.products,
            of_products=(self.changes, self.parts, self.done, products),
        )
        return Pass(triton_launches.bind_measure(*tensors), fold)

    def follows(self, iteration: int) -> bool:
        """Note a sketch; whether the products of this call are those of two iterations in a row."""
        sketch_follows = self.sketched == iteration - 1
        change_follows = sketch_follows and self.changed == iteration - 1
        self.sketched = iteration
        self.changed = iteration if sketch_follows else _NEVER
        return sketch_follows if self.products == 1 else change_follows


@final
class TritonSteps:
    """Measures around the steps of one optimiser, on the stream on which it was made.

    Args:
        parameters: Plain CUDA tensors on one device of float32, bfloat16 or float16, not none.
        num_slots: In how many turns the histograms of gradients, and the updates, go round: tensor i has its turn with
            slot i modulo this.

    Every method must be asked on that stream and device (`is_current`), in the order of the training.
    """

    def __init__(self, parameters: Sequence[Tensor], num_slots: int) -> None:
        self._num_slots = num_slots
        with torch.inference_mode(False):
            self._prepare(parameters)
        self._pages: dict[int | None, Page] = {}
        self._slot: int | None = None
        """Of the present page."""
        self._num_rebuilt = 0
        self._stream = torch._C._cuda_getCurrentRawStream(self._device.index)

    def _prepare(self, parameters: Sequence[Tensor]) -> None:
        layouts = Layouts(parameters)
        self._layouts, self._device = layouts, layouts.device
        n = len(parameters)
        turns = [Layouts(parameters[slot :: self._num_slots]) for slot in range(self._num_slots)]
        begins = [places(turn) for turn in turns]
        offsets = np.zeros(n, np.int64)
        for slot, (turn, (begin, _)) in enumerate(zip(turns, begins, strict=True)):
            offsets[slot :: self._num_slots] = begin[: len(turn)]
        self._about = uploaded(triton_launches.about_tensors(layouts.numels, range(n), offsets), self._device)
        self._weights = _Side(parameters, self._about, products=2)
        self._gradients = _Side(parameters, self._about, products=1)
        found = block_map(layouts, CHUNK)
        self._turns = [
            _Turn(triton_launches.chunks_on(self._device, found.turn(slot, self._num_slots)), turn, *at, {}, {})
            for slot, (turn, at) in enumerate(zip(turns, begins, strict=True))
        ]
        self._table, self._gradient_table = (PointerTable(layouts.numels, self._device) for _ in range(2))

    @property
    def is_current(self) -> bool:
        """Whether the current stream is the one on which this was made."""
        index = self._device.index
        return torch._C._cuda_getDevice() == index and torch._C._cuda_getCurrentRawStream(index) == self._stream

    def warm_up(self, parameters: Sequence[Tensor]) -> None:
        """Have all launches found that a step may need, before the training begins."""
        for slot in (*range(min(self._num_slots, len(parameters))), None):
            for _ in range(2):  # Triton itself makes the first launch of a kernel, and keeps what the next ones need
                self.gradients(parameters, slot=slot, sketch=True, iteration=_NEVER)
                self.follow(parameters)
                if slot is not None:
                    copies = self.copy(parameters[slot :: self._num_slots], slot)
                    assert copies is not None
                    self.updates(copies, slot)
                self.weights(sketch=True, iteration=_NEVER)
        for slot in (0, None):  # as where the budget has stretched the cosines
            self.gradients(parameters, slot=slot, sketch=False, iteration=_NEVER)
        self.weights(sketch=False, iteration=_NEVER)

    def confirms(self, gradients: Sequence[Tensor]) -> bool:
        """Whether gradients of all parameters lie as they did when they were learned: then they can be measured."""
        return self._gradients.layouts.confirms(gradients)

    def learn(self, gradients: Sequence[Tensor]) -> None:
        """Have gradients like these confirmed, as far as they are plain and dense; to be called where they were not."""
        if self._gradients.layouts.learns(gradients) or self._num_rebuilt == _MOST_REBUILT or not readable(gradients):
            return
        self._num_rebuilt += 1
        with torch.inference_mode(False):
            self._gradients = _Side(gradients, self._about, products=1)
        self._gradients.layouts.learns(gradients)

    def gradients(self, gradients: Sequence[Tensor], *, slot: int | None, sketch: bool, iteration: int) -> Found:
        """Measure gradients that were confirmed, with the histograms of those that have their turn."""
        side = self._gradients
        self._slot, page = slot, self._page_of(slot)
        table = self._gradient_table
        table.follow(list(map(Tensor.data_ptr, gradients)))
        self._measure(side, Variant(table.aligned, sketch, slot is not None), page.gradients, table)
        follows = sketch and side.follows(iteration)
        return Found(
            page.gradients,
            side.sketch if sketch else None,
            page.gradient_products if follows else None,
            None if slot is None else page.histogram,
        )

    def copy(self, parameters: Sequence[Tensor], slot: int) -> Copies | None:
        """Before a step: copy the parameters that have their turn (all of that slot are given); None if they moved."""
        turn = self._turns[slot]
        addresses = self._table.addresses[slot :: self._num_slots]
        if list(map(Tensor.data_ptr, parameters)) != addresses or not (
            turn.layouts.confirms(parameters) or turn.layouts.learns(parameters)
        ):
            return None
        memory = torch.empty(turn.num_bytes, dtype=torch.uint8, device=self._device)
        aligned = self._table.aligned
        kernels = turn.copiers.get(aligned)
        if kernels is None:
            tensors = turn.chunks, self._table.table, self._about
            kernels = turn.copiers[aligned] = triton_launches.bind_copies(*tensors, aligned)
        for kernel in kernels:
            kernel(self._stream, memory)
        return Copies(memory, turn.layouts, turn.offsets)

    def follow(self, parameters: Sequence[Tensor]) -> bool:
        """After a step: find all parameters where they are now; whether they still are as they were prepared for."""
        known = self._weights.layouts
        if not (known.confirms(parameters) or known.learns(parameters)):
            return False
        self._table.follow(list(map(Tensor.data_ptr, parameters)))
        return True

    def made(self, copies: Copies, slot: int) -> bool:
        """Whether copies are those of `copy`."""
        return copies.layouts is self._turns[slot].layouts

    def updates(self, copies: Copies, slot: int) -> Tensor:
        """What has changed since the copies were made: rows of those that have their turn. After `follow`."""
        turn, page = self._turns[slot], self._page_of(slot)
        variant = Variant(self._table.aligned, difference=True, copies=True)
        kernels = turn.passes.get(variant)
        if kernels is None:
            tensors = turn.chunks, self._weights.scratch, self._about, Turns(self._num_slots)
            kernels = turn.passes[variant] = triton_launches.bind_measure(*tensors, variant)
        for kernel in kernels:
            kernel(self._stream, page.updates, copies.memory, self._table.table)
        return page.updates

    def weights(self, *, sketch: bool, iteration: int) -> Found:
        """All parameters as they are. After `follow`."""
        side, page = self._weights, self._page_of(self._slot)
        self._measure(side, Variant(self._table.aligned, sketch), page.weights, self._table)
        follows = sketch and side.follows(iteration)
        return Found(page.weights, side.sketch if sketch else None, page.update_products if follows else None)

    def _measure(self, side: _Side, variant: Variant, rows: Tensor, table: PointerTable) -> None:
        launches = side.passes.get((self._slot, variant))
        if launches is None:
            launches = side.bind(self._slot, variant, self._page_of(self._slot), self._num_slots)
            side.passes[self._slot, variant] = launches
        for kernel in launches.measure:
            kernel(self._stream, rows, self._about, table.table)
        if launches.fold is not None:
            launches.fold(self._stream, rows)

    def _page_of(self, slot: int | None) -> Page:
        page = self._pages.get(slot)
        if page is None:
            n = len(self._layouts)
            members = 0 if slot is None else len(range(slot, n, self._num_slots))
            with torch.inference_mode(False):
                page = self._pages[slot] = _new_page(n, members, self._device)
        return page


def _new_page(n: int, members: int, device: torch.device) -> Page:
    shapes = [
        *((n, NUM_COLUMNS), (n, NUM_PRODUCTS), (members, histograms.NUM_BINS)),
        *((members, NUM_COLUMNS), (n, NUM_COLUMNS), (n, NUM_PRODUCTS)),
    ]
    dtypes = [torch.int32 if i == Page._fields.index("histogram") else torch.float64 for i in range(len(shapes))]
    num_words = [a * b * dtype.itemsize // 4 for (a, b), dtype in zip(shapes, dtypes, strict=True)]
    begins = np.concatenate([[0], np.cumsum([-(-num // _WORDS) * _WORDS for num in num_words])]).tolist()
    memory = torch.zeros(begins[-1], dtype=torch.int32, device=device)
    parts = zip(shapes, dtypes, begins, num_words, strict=False)
    return Page(*(memory[begin : begin + num].view(dtype).view(shape) for shape, dtype, begin, num in parts))


def readable(tensors: Sequence[Tensor]) -> bool:
    """Whether all are dense CUDA tensors on one device, of types that the kernels read as they are; none is not."""
    return len({tensor.device for tensor in tensors}) == 1 and all(
        t.is_cuda and t.layout is torch.strided and t.dtype in _READABLE and memory_order(t) is not None
        for t in tensors
    )
