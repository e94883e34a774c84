"""The kernels that fold what chunks found into the statistics of tensors, and multiply sketches.

Chunks are folded in float64, in their order. (See `sonde.kernels.triton_kernels`.)
"""

# ruff: noqa: ANN001, ANN201, ANN202, N803, SIM102 - Triton's language, with its types, capitals and constants
# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

from sonde.kernels.triton_language import jit, tl

NUM_PARTIALS = 9  # numbers a chunk


@jit
def _load_partial(p, valid, other):
    # Past the first cache, which other programs of the launch may have filled before the partial was written.
    return tl.load(p, mask=valid, other=other, cache_modifier=".cg")


@jit
def _unit(p, valid):
    """2^e in float64, of a chunk's biased float32 exponent e."""
    e = _load_partial(p, valid, 127.0).to(tl.int64)
    return ((e + 896) << 52).to(tl.float64, bitcast=True)


@jit
def fold_rows(partials, spans, rows, t, place, num_chunks, B: tl.constexpr):
    """The row of tensor t, which is the one at `place` of those that are written."""
    begin = tl.load(spans + t * 4).to(tl.int32)
    end = tl.load(spans + t * 4 + 1).to(tl.int32)
    lanes = tl.arange(0, B)
    count = tl.zeros((B,), tl.float64)
    total = tl.zeros((B,), tl.float64)
    nonfinite = tl.zeros((B,), tl.float64)
    zeros = tl.zeros((B,), tl.float64)
    low = tl.full((B,), float("inf"), tl.float32)
    high = tl.full((B,), float("-inf"), tl.float32)
    for i in range(begin, end, B):
        valid = (i + lanes) < end
        p = partials + i + lanes
        n = _load_partial(p, valid, 0.0).to(tl.float64)
        mean = _load_partial(p + 4 * num_chunks, valid, 0.0).to(tl.float64)
        mean += _load_partial(p + 5 * num_chunks, valid, 0.0).to(tl.float64)
        count += n
        nonfinite += _load_partial(p + num_chunks, valid, 0.0).to(tl.float64)
        zeros += _load_partial(p + 2 * num_chunks, valid, 0.0).to(tl.float64)
        total += n * mean * _unit(p + 3 * num_chunks, valid)
        low = tl.minimum(low, _load_partial(p + 7 * num_chunks, valid, float("inf")))
        high = tl.maximum(high, _load_partial(p + 8 * num_chunks, valid, float("-inf")))
    many = tl.sum(count, 0)
    grand = tl.sum(total, 0) / tl.maximum(many, 1.0)
    m2 = tl.zeros((B,), tl.float64)
    for i in range(begin, end, B):
        valid = (i + lanes) < end
        p = partials + i + lanes
        n = _load_partial(p, valid, 0.0).to(tl.float64)
        mean = _load_partial(p + 4 * num_chunks, valid, 0.0).to(tl.float64)
        mean += _load_partial(p + 5 * num_chunks, valid, 0.0).to(tl.float64)
        unit = _unit(p + 3 * num_chunks, valid)
        apart = mean * unit - grand
        m2 += _load_partial(p + 6 * num_chunks, valid, 0.0).to(tl.float64) * unit * unit + n * apart * apart
    out = rows + place * 7
    tl.store(out, many)
    tl.store(out + 1, tl.sum(nonfinite, 0))
    tl.store(out + 2, tl.sum(zeros, 0))
    tl.store(out + 3, grand)
    tl.store(out + 4, tl.sum(m2, 0))
    tl.store(out + 5, tl.min(low, 0).to(tl.float64))
    tl.store(out + 6, tl.max(high, 0).to(tl.float64))


@jit
def _fold_sums(
    sums, spans, sketch, changes, parts, t, part, B: tl.constexpr, WIDTH: tl.constexpr, PRODUCTS: tl.constexpr
):
    """The sums of a part of a sketch, and their products with what was there before."""
    begin = tl.load(spans + t * 4).to(tl.int32)
    end = tl.load(spans + t * 4 + 1).to(tl.int32)
    places = part * WIDTH + tl.arange(0, WIDTH)
    chunks = tl.arange(0, B)
    total = tl.zeros((B, WIDTH), tl.float64)
    for i in range(begin, end, B):
        p = sums + (i + chunks)[:, None].to(tl.int64) * 256 + places[None, :]
        total += tl.load(p, mask=((i + chunks) < end)[:, None], other=0.0).to(tl.float64)
    now = tl.sum(total, 0).to(tl.float32)
    p = sketch + t.to(tl.int64) * 256 + places
    if PRODUCTS > 0:
        before = tl.load(p)
        a = now
        b = before
        if PRODUCTS == 2:
            q = changes + t.to(tl.int64) * 256 + places
            a = now - before
            b = tl.load(q)
            tl.debug_barrier()  # several threads have read the same values
            tl.store(q, a)
        a = a.to(tl.float64)
        b = b.to(tl.float64)
        out = parts + (t * 8 + part) * 3
        tl.store(out, tl.sum(a * b, 0))
        tl.store(out + 1, tl.sum(a * a, 0))
        tl.store(out + 2, tl.sum(b * b, 0))
        tl.debug_barrier()
    tl.store(p, now)


@jit
def _fold_products(parts, done, products, t):
    """Whichever of a tensor's eight programs is last adds up their products."""
    tl.debug_barrier()
    if (tl.atomic_add(done + t, 1, sem="acq_rel", scope="gpu") + 1) % 8 == 0:
        p = parts + (t * 8 + tl.arange(0, 8)) * 3
        for i in tl.static_range(3):
            tl.store(products + t * 3 + i, tl.sum(tl.load(p + i, cache_modifier=".cg"), 0))


@jit
def _fold_counts(counts, spans, histogram, t, place, part, WIDTH: tl.constexpr):
    """Also sets the counters to zero again, for the next call."""
    begin = tl.load(spans + t * 4 + 2).to(tl.int32)
    end = tl.load(spans + t * 4 + 3).to(tl.int32)
    bins = part * WIDTH + tl.arange(0, WIDTH)
    total = tl.zeros((WIDTH,), tl.int32)
    p = counts + begin.to(tl.int64) * 2048 + bins
    for _ in range(begin, end):
        total += tl.load(p)
        tl.store(p, tl.zeros((WIDTH,), tl.int32))
        p += 2048
    tl.store(histogram + place.to(tl.int64) * 2048 + bins, total)


def fold_parts(*, sketch: bool, histogram: bool) -> int:
    """Programs a tensor of `fold_chunks`; 0 where it is not needed."""
    return 1 + (8 if sketch else 0) + (4 if histogram else 0) if sketch or histogram else 0


@jit
def fold_chunks(
    rows,
    sketch,
    histogram,
    partials,
    sums,
    counts,
    spans,
    changes,
    parts,
    done,
    products,
    num_chunks: int,
    count_every: int,
    count_first: int,
    SKETCH: tl.constexpr,
    HISTOGRAM: tl.constexpr,
    PRODUCTS: tl.constexpr,
):
    """Rows and by-products: of a tensor's programs one folds its row, then 8 its sketch, the last 4 its counts.

    With 1 for PRODUCTS, `sketch` holds that of the last call, and the products of the two are given as well (those of
    `sonde.kernels.sketch_products`); with 2 those of the change since with the change before it, kept in `changes`.
    """
    t = tl.program_id(0)
    part = tl.program_id(1)
    if part == 0:
        fold_rows(partials, spans, rows, t, t, num_chunks, 256)
    if SKETCH:
        if (part >= 1) & (part <= 8):
            _fold_sums(sums, spans, sketch, changes, parts, t, part - 1, 128, 32, PRODUCTS)
            if PRODUCTS > 0:
                _fold_products(parts, done, products, t)
    if HISTOGRAM:
        first = tl.num_programs(1) - 4
        if part >= first:
            if t % count_every == count_first:
                _fold_counts(counts, spans, histogram, t, t // count_every, part - first, 512)


@jit
def multiply_sketches(now, before, out):
    t = tl.program_id(0).to(tl.int64)
    places = t * 256 + tl.arange(0, 256)
    a = tl.load(now + places).to(tl.float64)
    b = tl.load(before + places).to(tl.float64)
    tl.store(out + t * 3, tl.sum(a * b, 0))
    tl.store(out + t * 3 + 1, tl.sum(a * a, 0))
    tl.store(out + t * 3 + 2, tl.sum(b * b, 0))
