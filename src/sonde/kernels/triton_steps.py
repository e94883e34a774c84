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
from sonde.kernels import histograms, sketches, triton_kernels
from sonde.kernels.block_map import Launch, block_map
from sonde.kernels.bound_kernel import BoundKernel
from sonde.kernels.columns import NUM_COLUMNS
from sonde.kernels.copies import Copies, places
from sonde.kernels.layout_guard import LayoutGuard
from sonde.kernels.layouts import Layouts, memory_order
from sonde.kernels.pointer_table import PointerTable
from sonde.kernels.sketch_products import NUM_PRODUCTS
from sonde.kernels.triton_kernels import copy_chunks, fold_chunks, measure_chunks
from sonde.kernels.triton_stats import CHUNK, PART, ROWS, WARPS, triton_type, values_a_load
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


class _Tables(NamedTuple):
    """Where the chunks of some tensors are, on the device."""

    launches: Sequence[Launch]
    chunks: Tensor
    spans: Tensor
    num_chunks: int


@final
class _Known:
    """How the tensors of a list lie, each dense."""

    def __init__(self, like: Sequence[Tensor]) -> None:
        self._lying = [_lying(tensor) for tensor in like]
        self._guard = LayoutGuard()

    def confirms(self, tensors: Sequence[Tensor]) -> bool:
        """Whether these, as many, lie so: quickly, and at times not confirmed though it is true."""
        return self._guard.confirms(tensors)

    def learns(self, tensors: Sequence[Tensor]) -> bool:
        """Whether they lie so, to be confirmed quickly from now on."""
        if list(map(_lying, tensors)) != self._lying:
            return False
        self._guard.learn(tensors)
        return True


class _Turn(NamedTuple):
    """The tensors that have their turn together: every so many, from the first that is `slot`."""

    tables: _Tables
    layouts: Layouts
    known: _Known
    offsets: Int64
    """Where the copy of each begins."""
    num_bytes: int
    copiers: dict[bool, list[BoundKernel]]
    passes: dict[int, list[BoundKernel]]


class _Variant(NamedTuple):
    """What a pass does, how it may read, and where it writes."""

    page: int | None
    """The slot of the page."""
    histogram: bool
    sketch: bool
    vector: int


class _Fold(NamedTuple):
    measure: list[BoundKernel]
    fold: BoundKernel | None


@final
class _Side:
    """The gradients, or the weights: how they lie, and the memory in which they are measured."""

    def __init__(self, like: Sequence[Tensor], about: Tensor, *, products: int) -> None:
        self.layouts, self.known = Layouts(like), _Known(like)
        self.about, self.products = about, products
        n, device = len(like), self.layouts.device
        launches, chunks, spans, self.num_copies = block_map(self.layouts, CHUNK)
        self.tables = _Tables(launches, uploaded(chunks, device), uploaded(spans, device), len(chunks))
        self.arrived = torch.zeros(n, dtype=torch.int64, device=device)
        self.partials = torch.empty(triton_kernels.NUM_PARTIALS, len(chunks), device=device)
        self.sums = torch.empty(len(chunks), sketches.SIZE, device=device)
        self.counts: Tensor | None = None
        self.sketch = torch.zeros(n, sketches.SIZE, device=device)
        self.changes = torch.zeros(n, sketches.SIZE, device=device) if products == 2 else self.sketch
        self.parts = torch.empty(n, 8, NUM_PRODUCTS, dtype=torch.float64, device=device)
        self.done = torch.zeros(n, dtype=torch.int64, device=device)
        self.passes: dict[_Variant, _Fold] = {}
        self.sketched = self.changed = _NEVER
        """The iterations of the last sketch, and of the last change of one."""

    def bind(self, variant: _Variant, page: Page, num_slots: int) -> _Fold:
        """The launches of a variant."""
        slot, histogram, sketch, vector = variant
        if histogram and self.counts is None:  # `fold_chunks` leaves zeros for the next call
            shape = self.num_copies, histograms.NUM_BINS
            self.counts = torch.zeros(shape, dtype=torch.int32, device=self.layouts.device)
        counts = self.about if self.counts is None else self.counts
        launches, chunks, spans, num_chunks = self.tables
        turn = num_slots, slot or 0
        measure = [
            BoundKernel(
                measure_chunks,
                (launch.num_chunks, 1, 1),
                lasting=(
                    *(self.about, self.about, chunks, spans, self.arrived, self.partials, self.sums, counts),
                    *(launch.first_chunk, num_chunks, 1, *turn),
                ),
                constants=(triton_type(launch.dtype), vector, CHUNK, ROWS, sketch, histogram, False, False),
                num_warps=WARPS,
            )
            for launch in launches
        ]
        parts = triton_kernels.fold_parts(sketch=sketch, histogram=histogram)
        if not parts:
            return _Fold(measure, None)
        products = page.gradient_products if self.products == 1 else page.update_products
        fold = BoundKernel(
            fold_chunks,
            (len(self.layouts), parts, 1),
            lasting=(
                *(self.sketch, page.histogram, self.partials, self.sums, counts, spans),
                *(self.changes, self.parts, self.done, products),
                *(num_chunks, *turn),
            ),
            constants=(sketch, histogram, self.products if sketch else 0),
        )
        return _Fold(measure, fold)

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
        skips = [histograms.skip(numel) for numel in layouts.numels]
        about = np.stack([layouts.numels, sketches.seeds(range(n)).astype(np.int64), skips, np.zeros(n, np.int64)], 1)
        turns = [Layouts(parameters[slot :: self._num_slots]) for slot in range(self._num_slots)]
        offsets = [places(turn) for turn in turns]
        for slot, (begins, _) in enumerate(offsets):
            about[slot :: self._num_slots, 3] = begins[: len(turns[slot])]
        self._about = uploaded(about, self._device)
        self._weights = _Side(parameters, self._about, products=2)
        self._gradients = _Side(parameters, self._about, products=1)
        launches, chunks, spans, _ = block_map(layouts, CHUNK)
        self._turns = [
            _Turn(
                _tables(launches, chunks, spans, slot, self._num_slots, self._device),
                turn,
                _Known(parameters[slot :: self._num_slots]),
                *at,
                {},
                {},
            )
            for slot, (turn, at) in enumerate(zip(turns, offsets, strict=True))
        ]
        self._arrived = torch.zeros(n, dtype=torch.int64, device=self._device)
        self._table, self._gradient_table = PointerTable(n, self._device), PointerTable(n, self._device)

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
        return self._gradients.known.confirms(gradients)

    def learn(self, gradients: Sequence[Tensor]) -> None:
        """Have gradients like these confirmed, as far as they are plain and dense; to be called where they were not."""
        if self._gradients.known.learns(gradients) or self._num_rebuilt == _MOST_REBUILT or not readable(gradients):
            return
        self._num_rebuilt += 1
        with torch.inference_mode(False):
            self._gradients = _Side(gradients, self._about, products=1)
        self._gradients.known.learns(gradients)

    def gradients(self, gradients: Sequence[Tensor], *, slot: int | None, sketch: bool, iteration: int) -> Found:
        """Measure gradients that were confirmed, with the histograms of those that have their turn."""
        side = self._gradients
        self._slot, page = slot, self._page_of(slot)
        table = self._gradient_table
        self._find(table, gradients)
        variant = _Variant(slot, slot is not None, sketch, values_a_load(table.aligned))
        self._measure(side, variant, page, page.gradients, table.table)
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
            turn.known.confirms(parameters) or turn.known.learns(parameters)
        ):
            return None
        memory = torch.empty(turn.num_bytes, dtype=torch.uint8, device=self._device)
        aligned = self._table.aligned
        kernels = turn.copiers.get(aligned)
        if kernels is None:
            kernels = turn.copiers[aligned] = self._bind_copiers(turn, aligned)
        for kernel in kernels:
            kernel(self._stream, memory)
        return Copies(memory, turn.layouts, turn.offsets)

    def follow(self, parameters: Sequence[Tensor]) -> bool:
        """After a step: find all parameters where they are now; whether they still are as they were prepared for."""
        known = self._weights.known
        if not (known.confirms(parameters) or known.learns(parameters)):
            return False
        self._find(self._table, parameters)
        return True

    def made(self, copies: Copies, slot: int) -> bool:
        """Whether copies are those of `copy`."""
        return copies.layouts is self._turns[slot].layouts

    def updates(self, copies: Copies, slot: int) -> Tensor:
        """What has changed since the copies were made: rows of those that have their turn. After `follow`."""
        turn, page = self._turns[slot], self._page_of(slot)
        vector = values_a_load(self._table.aligned)
        kernels = turn.passes.get(vector)
        if kernels is None:
            kernels = turn.passes[vector] = self._bind_difference(turn, vector)
        for kernel in kernels:
            kernel(self._stream, page.updates, copies.memory, self._table.table)
        return page.updates

    def weights(self, *, sketch: bool, iteration: int) -> Found:
        """All parameters as they are. After `follow`."""
        side, page = self._weights, self._page_of(self._slot)
        variant = _Variant(self._slot, False, sketch, values_a_load(self._table.aligned))
        self._measure(side, variant, page, page.weights, self._table.table)
        follows = sketch and side.follows(iteration)
        return Found(page.weights, side.sketch if sketch else None, page.update_products if follows else None)

    def _find(self, table: PointerTable, tensors: Sequence[Tensor]) -> None:
        addresses = list(map(Tensor.data_ptr, tensors))
        if addresses != table.addresses:
            _check_memory(addresses, self._layouts)
            table.follow(addresses)

    def _measure(self, side: _Side, variant: _Variant, page: Page, rows: Tensor, pointers: Tensor) -> None:
        launches = side.passes.get(variant)
        if launches is None:
            launches = side.passes[variant] = side.bind(variant, page, self._num_slots)
        for kernel in launches.measure:
            kernel(self._stream, rows, self._about, pointers)
        if launches.fold is not None:
            launches.fold(self._stream, rows)

    def _bind_copiers(self, turn: _Turn, aligned: bool) -> list[BoundKernel]:
        return [
            BoundKernel(
                copy_chunks,
                (launch.num_chunks, -(-CHUNK // PART), 1),
                lasting=(self._table.table, self._about, turn.tables.chunks, launch.first_chunk),
                constants=(triton_type(launch.dtype), aligned, CHUNK, PART),
            )
            for launch in turn.tables.launches
        ]

    def _bind_difference(self, turn: _Turn, vector: int) -> list[BoundKernel]:
        side, (launches, chunks, spans, num_chunks) = self._weights, turn.tables
        return [
            BoundKernel(
                measure_chunks,
                (launch.num_chunks, 1, 1),
                lasting=(
                    *(self._about, self._about, chunks, spans, self._arrived, side.partials, side.sums, self._about),
                    *(launch.first_chunk, num_chunks, self._num_slots, 1, 0),
                ),
                constants=(triton_type(launch.dtype), vector, CHUNK, ROWS, False, False, True, True),
                num_warps=WARPS,
            )
            for launch in launches
        ]

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


def _tables(
    launches: Sequence[Launch], chunks: Int64, spans: Int64, slot: int, num_slots: int, device: torch.device
) -> _Tables:
    """Of every so many tensors: the chunks, numbered by themselves."""
    chosen = chunks[:, 0] % num_slots == slot
    ends = np.concatenate([[0], np.cumsum(chosen)])
    own_spans = spans.copy()
    own_spans[:, :2] = ends[spans[:, :2]]
    own = []
    for dtype, first, num in launches:
        begin, end = int(ends[first]), int(ends[first + num])
        if end > begin:
            own.append(Launch(dtype, begin, end - begin))
    return _Tables(own, uploaded(chunks[chosen], device), uploaded(own_spans, device), int(ends[-1]))


def readable(tensors: Sequence[Tensor]) -> bool:
    """Whether all are dense CUDA tensors on one device, of types that the kernels read as they are; none is not."""
    return len({tensor.device for tensor in tensors}) == 1 and all(
        t.is_cuda and t.layout is torch.strided and t.dtype in _READABLE and memory_order(t) is not None
        for t in tensors
    )


def _lying(tensor: Tensor) -> tuple[torch.Size, tuple[int, ...], torch.dtype, torch.device]:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def _check_memory(addresses: Sequence[int], layouts: Layouts) -> None:
    if 0 in addresses:
        for i, (address, numel) in enumerate(zip(addresses, layouts.numels, strict=True)):
            if numel and not address:
                raise ValueError(f"tensor {i} has {numel} values but no memory: its storage was freed.")
