"""The kernels of the Triton path: what a GPU does with a chunk.

Every tensor is cut into chunks, a program each. A program reads its chunk once, in tiles of R rows by 512 lanes. Each
lane subtracts a pivot, its mean over the first tile, and sums deviations and their squares, so nothing cancels where
the mean is far above the spread; and it does so relative to a power of two near the first tile's largest value, since
float32 squares leave their range above 1e19 and below 1e-19. Two things can go wrong, both seen for free at the end:
NaN and infinities poison the sums, and the scale may not fit what came after the first tile. Only then the chunk is
read again, with care. Chunks are folded (`sonde.kernels.triton_folds`) by the program that finishes a tensor.

Sketch and histogram are by-products. Rows are read turned (see `sonde.kernels.sketches`), so that a lane's signed sum
is a sum of the sketch; it leaves the registers once a chunk. Histograms are counted by relaxed atomics in up to eight
copies a tensor, so that programs seldom meet at an address (Triton's own `tl.histogram` was three times slower), from
the part of the chunk that is sampled, while it is in cache.

A row is four warps wide, whatever the type: a lane then belongs to one thread, and no thread waits for another until
its chunk is done. (Where Triton lays a row over half of the warps, as it does with 16-byte loads of bfloat16 unless
there are only two, the sums of a lane meet in every tile: ten times slower. Two warps and 16 bytes ran 6% slower than
four and 8.) The next tiles are copied to shared memory while one is summed up: 90% of the copy bandwidth on an H200,
against 82% without.
"""

# ruff: noqa: ANN001, ANN201, ANN202, N803, N806, SIM102 - Triton's language, with its types, capitals and constants
# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

from sonde.kernels.triton_folds import fold_rows
from sonde.kernels.triton_language import jit, tl


@jit
def _power_of_two(exponent):
    return (exponent << 23).to(tl.float32, bitcast=True)


@jit
def _exponent(largest):
    """Biased exponent, kept where both 2^e and 2^-e are normal numbers; that of 1 for zero."""
    e = (largest.to(tl.int32, bitcast=True) >> 23) & 0xFF
    return tl.where(largest == 0, 127, tl.minimum(tl.maximum(e, 1), 253))


@jit
def _hash32(x):
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


@jit
def _load(base, old, offsets, DIFFERENCE: tl.constexpr):
    x = tl.load(base + offsets).to(tl.float32)
    if DIFFERENCE:
        x -= tl.load(old + offsets).to(tl.float32)
    return x


@jit
def _load_some(base, old, offsets, length, other, VECTOR: tl.constexpr, DIFFERENCE: tl.constexpr):
    """As `_load`, with `other` in place of values beyond `length`.

    The mask is the same for all values of one load, or the compiler would load them one by one: up to 15 bytes beyond
    the end are read, but always of an aligned 16 that hold a value, which no page or allocation divides.
    """
    inside = tl.max_constancy((offsets // VECTOR * VECTOR) < length, [1, VECTOR])
    x = tl.load(base + offsets, mask=inside, other=0.0).to(tl.float32)
    if DIFFERENCE:
        x -= tl.load(old + offsets, mask=inside, other=0.0).to(tl.float32)
    return tl.where(offsets < length, x, other)


@jit
def _places(tile, first_row, seed, R: tl.constexpr, SKETCH: tl.constexpr):
    """Where the values of a tile lie in their chunk, whose first row is `first_row` of the tensor.

    For a sketch each row is turned (see `sonde.kernels.sketches`): a lane then belongs to one sum.
    """
    row = tile * R + tl.arange(0, R)
    lane = tl.arange(0, 512)[None, :] + tl.zeros((R, 1), tl.int32)
    if SKETCH:
        turn = (((first_row + row.to(tl.uint32)) * 0x9E3779B1 + seed) >> 23) & 504
        lane = lane ^ turn.to(tl.int32)[:, None]
        lane = tl.max_contiguous(tl.multiple_of(lane, [1, 8]), [1, 8])
    return row[:, None] * 512 + lane


@jit
def _signed_sums(x, tile, first_row, seed, R: tl.constexpr):
    """Sums of a tile's lanes, each value with its sign."""
    row = first_row + (tile * R).to(tl.uint32)
    words = _hash32(seed + (row >> 5) * 512 + tl.arange(0, 512).to(tl.uint32))
    bit = (row & 31) + tl.arange(0, R).to(tl.uint32)
    flips = (words[None, :] << (31 - bit)[:, None]) & 0x80000000
    return tl.sum((x.to(tl.uint32, bitcast=True) ^ flips).to(tl.float32, bitcast=True), 0)


@jit
def _count_runs(base, old, counts, start, length, skip, VECTOR: tl.constexpr, DIFFERENCE: tl.constexpr):
    """Count the values of a chunk that lie in chosen runs of 256, of which there is one in every 2^skip."""
    first = ((start >> 8) >> skip).to(tl.int32)
    num_periods = tl.cdiv(tl.cdiv(length, 256), 1 << skip)
    for i in range(0, num_periods, 16):
        period = first + i + tl.arange(0, 16)
        chosen = _hash32(period.to(tl.uint32)).to(tl.int32) & ((1 << skip) - 1)
        run = (period << skip) + chosen - (start >> 8).to(tl.int32)
        wanted = (i + tl.arange(0, 16) < num_periods) & (run >= 0)
        place = run[:, None] * 256 + tl.arange(0, 256)[None, :]
        x = _load_some(base, old, tl.where(wanted[:, None], place, length), length, float("nan"), VECTOR, DIFFERENCE)
        bins = (x.to(tl.uint32, bitcast=True) >> 21).to(tl.int32)
        tl.atomic_add(counts + bins, 1, mask=tl.abs(x) < float("inf"), sem="relaxed")


@jit
def _absorb(x, scale, pivot, s1, s2, low, high, zeros):
    z = x * scale - pivot[None, :]
    s1 += tl.sum(z, 0)
    s2 += tl.sum(z * z, 0)
    low = tl.minimum(low, tl.min(x, 0))
    high = tl.maximum(high, tl.max(x, 0))
    zeros += tl.sum((x == 0).to(tl.int32), 0)
    return s1, s2, low, high, zeros


@jit
def _absorb_some(x, valid, scale, pivot, s1, s2, low, high, zeros):
    z = tl.where(valid, x * scale - pivot[None, :], 0.0)
    s1 += tl.sum(z, 0)
    s2 += tl.sum(z * z, 0)
    low = tl.minimum(low, tl.min(tl.where(valid, x, float("inf")), 0))
    high = tl.maximum(high, tl.max(tl.where(valid, x, float("-inf")), 0))
    zeros += tl.sum((valid & (x == 0)).to(tl.int32), 0)
    return s1, s2, low, high, zeros


@jit
def measure_chunks(
    rows,
    copies,
    pointers,
    old_pointers,
    tensors,
    chunks,
    spans,
    arrived,
    partials,
    sums_out,
    counts_out,
    first_chunk: int,
    num_chunks: int,
    row_every: int,
    count_every: int,
    count_first: int,
    DTYPE: tl.constexpr,
    VECTOR: tl.constexpr,
    CHUNK: tl.constexpr,
    R: tl.constexpr,
    SKETCH: tl.constexpr,
    HISTOGRAM: tl.constexpr,
    DIFFERENCE: tl.constexpr,
    COPIES: tl.constexpr,
):
    """Measures a chunk. Rows are those of every `row_every`-th tensor; histograms of every `count_every`-th."""
    TILE: tl.constexpr = R * 512
    chunk = first_chunk + tl.program_id(0)
    entry = chunks + chunk.to(tl.int64) * 3
    t = tl.load(entry)
    start = tl.load(entry + 1)
    about = tensors + t * 4
    length = tl.minimum(tl.load(about) - start, CHUNK).to(tl.int32)
    base = tl.load(pointers + t).to(tl.pointer_type(DTYPE))
    old = base
    if COPIES:
        old = (copies + tl.load(about + 3)).to(tl.pointer_type(DTYPE))
    elif DIFFERENCE:
        old = tl.load(old_pointers + t).to(tl.pointer_type(DTYPE))
    if VECTOR > 1:
        base = tl.multiple_of(base, VECTOR * DTYPE.primitive_bitwidth // 8)
        old = tl.multiple_of(old, VECTOR * DTYPE.primitive_bitwidth // 8)
    base += tl.multiple_of(start, 1024)
    old += tl.multiple_of(start, 1024)
    seed = tl.load(about + 1).to(tl.uint32)
    first_row = (start >> 9).to(tl.uint32)
    lanes = tl.arange(0, 512)

    # The first tile gives the scale and each lane's pivot.
    tile = tl.full((), 0, tl.int32)
    places = _places(tile, first_row, seed, R, SKETCH)
    valid = places < length
    x = _load_some(base, old, places, length, 0.0, VECTOR, DIFFERENCE)
    e = _exponent(tl.max(tl.max(tl.abs(x), 0), 0))
    scale = _power_of_two(254 - e)
    pivot = tl.sum(x * scale, 0) / tl.maximum(tl.sum(valid.to(tl.float32), 0), 1.0)
    s1 = tl.zeros((512,), tl.float32)
    s2 = tl.zeros((512,), tl.float32)
    low = tl.full((512,), float("inf"), tl.float32)
    high = tl.full((512,), float("-inf"), tl.float32)
    zeros = tl.zeros((512,), tl.int32)
    sums = tl.zeros((512,), tl.float32)
    s1, s2, low, high, zeros = _absorb_some(x, valid, scale, pivot, s1, s2, low, high, zeros)
    if SKETCH:
        sums = _signed_sums(x, tile, first_row, seed, R)

    num_full = length // TILE
    for i in tl.range(1, num_full, num_stages=3):  # copies of two tiles are under way while one is summed up
        x = _load(base, old, _places(i, first_row, seed, R, SKETCH), DIFFERENCE)
        s1, s2, low, high, zeros = _absorb(x, scale, pivot, s1, s2, low, high, zeros)
        if SKETCH:
            sums += _signed_sums(x, tile + i, first_row, seed, R)

    num_tiles = tl.maximum(num_full, 1)
    if num_tiles * TILE < length:
        places = _places(num_tiles, first_row, seed, R, SKETCH)
        x = _load_some(base, old, places, length, 0.0, VECTOR, DIFFERENCE)
        s1, s2, low, high, zeros = _absorb_some(x, places < length, scale, pivot, s1, s2, low, high, zeros)
        if SKETCH:
            sums += _signed_sums(x, num_tiles, first_row, seed, R)
        num_tiles += 1

    last = lanes
    if SKETCH:
        turn = (((first_row + (length // 512).to(tl.uint32)) * 0x9E3779B1 + seed) >> 23) & 504
        last = lanes ^ turn.to(tl.int32)
    count = (length // 512 + (last < length % 512).to(tl.int32)).to(tl.float32)
    many = length.to(tl.float32)
    lowest = tl.min(low, 0)
    highest = tl.max(high, 0)
    energy = tl.sum(s2, 0)
    largest = tl.maximum(tl.abs(lowest), tl.abs(highest))
    if (energy != energy) | (largest == float("inf")) | (tl.abs(_exponent(largest) - e) > 40):
        low = tl.full((512,), float("inf"), tl.float32)
        high = tl.full((512,), float("-inf"), tl.float32)
        zeros = tl.zeros((512,), tl.int32)
        count = tl.zeros((512,), tl.float32)
        for i in range(num_tiles):
            places = _places(i, first_row, seed, R, SKETCH)
            x = _load_some(base, old, places, length, float("nan"), VECTOR, DIFFERENCE)
            finite = tl.abs(x) < float("inf")
            low = tl.minimum(low, tl.min(tl.where(finite, x, float("inf")), 0))
            high = tl.maximum(high, tl.max(tl.where(finite, x, float("-inf")), 0))
            zeros += tl.sum((finite & (x == 0)).to(tl.int32), 0)
            count += tl.sum(finite.to(tl.float32), 0)
        lowest = tl.min(low, 0)
        highest = tl.max(high, 0)
        largest = tl.maximum(tl.abs(lowest), tl.abs(highest))
        e = _exponent(tl.where(largest < float("inf"), largest, 0.0))
        scale = _power_of_two(254 - e)
        pivot = tl.zeros((512,), tl.float32)
        sums = tl.zeros((512,), tl.float32)
        for i in range(num_tiles):
            places = _places(i, first_row, seed, R, SKETCH)
            x = _load_some(base, old, places, length, float("nan"), VECTOR, DIFFERENCE)
            x = tl.where(tl.abs(x) < float("inf"), x, 0.0)
            pivot += tl.sum(x * scale, 0)
            if SKETCH:
                sums += _signed_sums(x, tile + i, first_row, seed, R)
        pivot = pivot / tl.maximum(count, 1.0)
        s1 = tl.zeros((512,), tl.float32)
        s2 = tl.zeros((512,), tl.float32)
        for i in range(num_tiles):
            places = _places(i, first_row, seed, R, SKETCH)
            x = _load_some(base, old, places, length, float("nan"), VECTOR, DIFFERENCE)
            z = tl.where(tl.abs(x) < float("inf"), x * scale - pivot[None, :], 0.0)
            s1 += tl.sum(z, 0)
            s2 += tl.sum(z * z, 0)
        many = tl.sum(count, 0)

    # Lanes are joined by Chan's formula, their means taken relative to one that is right to float32's rounding: a mean
    # far above the spread needs more digits than that, so it leaves here as a sum of two.
    origin = tl.sum(pivot * count + s1, 0) / tl.maximum(many, 1.0)
    own = s1 / tl.maximum(count, 1.0)
    shift = tl.where(count > 0, pivot - origin + own, 0.0)
    relative = tl.sum(shift * count, 0) / tl.maximum(many, 1.0)
    apart = shift - relative
    m2 = tl.sum(tl.maximum(s2 - s1 * own, 0.0) + count * apart * apart, 0)
    out = partials + chunk
    tl.store(out, many)
    tl.store(out + num_chunks, length - many)
    tl.store(out + 2 * num_chunks, tl.sum(zeros, 0).to(tl.float32))
    tl.store(out + 3 * num_chunks, e.to(tl.float32))
    tl.store(out + 4 * num_chunks, origin)
    tl.store(out + 5 * num_chunks, relative)
    tl.store(out + 6 * num_chunks, m2)
    tl.store(out + 7 * num_chunks, lowest)
    tl.store(out + 8 * num_chunks, highest)
    if SKETCH:
        swap = _hash32(seed + ((start >> 16).to(tl.uint32) + 1) * 0x85EBCA6B) & 7
        folded = tl.sum(tl.reshape(sums, (2, 256)), 0)
        tl.store(sums_out + chunk.to(tl.int64) * 256 + (tl.arange(0, 256) ^ swap.to(tl.int32)), folded)
    if HISTOGRAM:  # from values that were just read and are still in the cache
        if t % count_every == count_first:
            counts = counts_out + tl.load(entry + 2) * 2048
            skip = tl.load(about + 2).to(tl.int32)
            _count_runs(base, old, counts, start, length, skip, VECTOR, DIFFERENCE)

    if not (SKETCH or HISTOGRAM):
        # Whichever program finishes a tensor folds it: a launch more would cost the host 8 µs. (Where by-products need
        # one anyway, it folds the rows as well: folding here would cost 4% of the bandwidth.) Arrivals are counted
        # over all calls, so that nothing need be set back, and nothing stays wrong should calls ever overlap.
        tl.debug_barrier()
        num_programs = tl.load(spans + t * 4 + 1) - tl.load(spans + t * 4)
        if (tl.atomic_add(arrived + t, 1, sem="acq_rel", scope="gpu") + 1) % num_programs == 0:
            fold_rows(partials, spans, rows, t, t // row_every, num_chunks, 256)


@jit
def copy_chunks(
    copies,
    pointers,
    tensors,
    chunks,
    first_chunk: int,
    DTYPE: tl.constexpr,
    ALIGNED: tl.constexpr,
    CHUNK: tl.constexpr,
    PART: tl.constexpr,
):
    """Copies tensors into one piece of memory, each at its place there, in the order of its own memory."""
    entry = chunks + (first_chunk + tl.program_id(0)).to(tl.int64) * 3
    t = tl.load(entry)
    start = tl.multiple_of(tl.load(entry + 1), 1024)
    about = tensors + t * 4
    length = tl.minimum(tl.load(about) - start, CHUNK).to(tl.int32)
    source = tl.load(pointers + t).to(tl.pointer_type(DTYPE))
    if ALIGNED:
        source = tl.multiple_of(source, 16)
    source += start
    target = tl.multiple_of((copies + tl.load(about + 3)).to(tl.pointer_type(DTYPE)), 16) + start
    first = tl.program_id(1) * PART
    places = first + tl.arange(0, PART)
    if first + PART <= length:
        tl.store(target + places, tl.load(source + places))
    elif first < length:
        inside = places < length
        tl.store(target + places, tl.load(source + places, mask=inside), mask=inside)


@jit
def send_words(
    from_first,
    from_second,
    to_host,
    to_flag,
    fence,
    num_first: int,
    num_second: int,
    sign: int,
    B: tl.constexpr,
):
    """One program: words of two stretches, one behind the other, into memory of the host; then a flag behind them."""
    lanes = tl.arange(0, B)
    for i in range(0, num_first, B):
        inside = i + lanes < num_first
        tl.store(to_host + i + lanes, tl.load(from_first + i + lanes, mask=inside), mask=inside)
    for i in range(0, num_second, B):
        inside = i + lanes < num_second
        tl.store(to_host + num_first + i + lanes, tl.load(from_second + i + lanes, mask=inside), mask=inside)
    tl.debug_barrier()
    tl.atomic_add(fence, 1, sem="acq_rel", scope="sys")  # all that was written is seen by the host before the flag
    tl.store(to_flag, sign)
