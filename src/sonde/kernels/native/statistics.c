/* Statistics of many tensors in one pass over each: what kernels/columns.py, histograms.py and sketches.py define.
 *
 * Values are read eight at a time, in vectors of gcc and clang, and summed up in double: float32 neither overflows
 * nor underflows there. Each block of 4,096 values has its own pivot, its first value, so that a mean far above the
 * spread costs no digits; blocks are folded by Chan's formula. A block whose sums are not finite is read again,
 * value by value.
 *
 * A large tensor is cut into chunks, by its size alone, which are folded in their order: the result does not depend on
 * the number of threads. Threads end before the call does.
 *
 * The file is compiled once for each level of instructions: STATISTICS is then the name of the one entry. The caller
 * has checked everything: that each address holds as many values of its type as are said.
 */

#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#ifndef STATISTICS
#define STATISTICS sonde_statistics
#define IS_BASELINE
#endif

#define INLINE static inline __attribute__((always_inline))
#define EXPORTED __attribute__((visibility("default")))

enum { FLOAT32, BFLOAT16, FLOAT16, FLOAT64 };

enum {
    BLOCK = 4096,      /* values with one pivot; divides GROUP */
    BINS = 2048,
    TABLES = 4,        /* of counts: adding to one place again and again waits for the addition before */
    RUN = 256,
    MIN_COUNTED = 32768,
    MAX_SKIP = 8,
    SIZE = 256,        /* sums of a sketch */
    LANES = 512,
    GROUP = 32 * LANES,
    STRETCH = 65536,
    MOST_CHUNKS = 128, /* of a tensor */
    MOST_THREADS = 64,
    COLUMNS = 7,
};

/* The vectors of the machine. gcc takes wider ones apart into single values; eight lanes are PARTS of these. */
#if defined(__AVX2__)
enum { WIDTH = 8 };
#else
enum { WIDTH = 4 };
#endif
enum { PARTS = 8 / WIDTH };
typedef float floats __attribute__((vector_size(4 * WIDTH)));
typedef int32_t ints __attribute__((vector_size(4 * WIDTH)));
typedef uint32_t words __attribute__((vector_size(4 * WIDTH), may_alias));
typedef double doubles __attribute__((vector_size(4 * WIDTH), may_alias));
typedef int64_t longs __attribute__((vector_size(4 * WIDTH)));

/* Where a value is NaN the block is read again, so what `lower` and `higher` make of it does not matter. */
#if defined(__AVX2__)
INLINE floats lower(floats a, floats b) { return _mm256_min_ps(a, b); }
INLINE floats higher(floats a, floats b) { return _mm256_max_ps(a, b); }
INLINE doubles lower_wide(doubles a, doubles b) { return _mm256_min_pd(a, b); }
INLINE doubles higher_wide(doubles a, doubles b) { return _mm256_max_pd(a, b); }
INLINE doubles widen_low(floats x) { return _mm256_cvtps_pd(_mm256_castps256_ps128(x)); }
INLINE doubles widen_high(floats x) { return _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)); }
INLINE floats narrow(doubles low, doubles high) { return _mm256_set_m128(_mm256_cvtpd_ps(high), _mm256_cvtpd_ps(low)); }
INLINE floats load_bfloat16(const char *at)
{
    return (floats)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)at)), 16);
}
INLINE floats load_float16(const char *at) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)at)); }
#elif defined(__x86_64__)
INLINE floats lower(floats a, floats b) { return _mm_min_ps(a, b); }
INLINE floats higher(floats a, floats b) { return _mm_max_ps(a, b); }
INLINE doubles lower_wide(doubles a, doubles b) { return _mm_min_pd(a, b); }
INLINE doubles higher_wide(doubles a, doubles b) { return _mm_max_pd(a, b); }
INLINE doubles widen_low(floats x) { return _mm_cvtps_pd(x); }
INLINE doubles widen_high(floats x) { return _mm_cvtps_pd(_mm_movehl_ps(x, x)); }
INLINE floats narrow(doubles low, doubles high) { return _mm_movelh_ps(_mm_cvtpd_ps(low), _mm_cvtpd_ps(high)); }
INLINE floats load_bfloat16(const char *at)
{
    return (floats)_mm_unpacklo_epi16(_mm_setzero_si128(), _mm_loadl_epi64((const __m128i *)at));
}
INLINE floats load_float16(const char *at)
{
    words half = (words)_mm_unpacklo_epi16(_mm_loadl_epi64((const __m128i *)at), _mm_setzero_si128());
    floats x = (floats)((half & 0x7fff) << 13) * 0x1p112f; /* right for subnormal values too */
    words special = (words)((half & 0x7c00) == 0x7c00) & 0x7f800000;
    return (floats)((words)x | special | (half & 0x8000) << 16);
}
#elif defined(__aarch64__)
INLINE floats lower(floats a, floats b) { return (floats)vminq_f32((float32x4_t)a, (float32x4_t)b); }
INLINE floats higher(floats a, floats b) { return (floats)vmaxq_f32((float32x4_t)a, (float32x4_t)b); }
INLINE doubles lower_wide(doubles a, doubles b) { return (doubles)vminq_f64((float64x2_t)a, (float64x2_t)b); }
INLINE doubles higher_wide(doubles a, doubles b) { return (doubles)vmaxq_f64((float64x2_t)a, (float64x2_t)b); }
INLINE doubles widen_low(floats x) { return (doubles)vcvt_f64_f32(vget_low_f32((float32x4_t)x)); }
INLINE doubles widen_high(floats x) { return (doubles)vcvt_high_f64_f32((float32x4_t)x); }
INLINE floats narrow(doubles low, doubles high)
{
    return (floats)vcvt_high_f32_f64(vcvt_f32_f64((float64x2_t)low), (float64x2_t)high);
}
INLINE floats load_bfloat16(const char *at)
{
    uint16x4_t half;
    memcpy(&half, at, sizeof half);
    return (floats)vshll_n_u16(half, 16);
}
INLINE floats load_float16(const char *at)
{
    float16x4_t half;
    memcpy(&half, at, sizeof half);
    return (floats)vcvt_f32_f16(half);
}
#else
#error "there is no kernel for this processor"
#endif

INLINE int width_of(int dtype) { return dtype == FLOAT64 ? 8 : dtype == FLOAT32 ? 4 : 2; }

INLINE floats load(const char *at, int dtype)
{
    if (dtype != FLOAT32)
        return dtype == BFLOAT16 ? load_bfloat16(at) : load_float16(at);
    floats x;
    memcpy(&x, at, sizeof x);
    return x;
}

INLINE doubles load_wide(const char *at)
{
    doubles x;
    memcpy(&x, at, sizeof x);
    return x;
}

/* Eight values: in float32, and in double, where float64 keeps all its digits. */
typedef struct {
    floats x[PARTS];
    doubles wide[2 * PARTS];
} values;

INLINE values read_eight(const char *new, const char *old, int dtype)
{
    values v;
    for (int i = 0; i < PARTS; i++) {
        int at = i * WIDTH * width_of(dtype), half = WIDTH / 2 * 8;
        if (dtype == FLOAT64) {
            v.wide[2 * i] = load_wide(new + at) - (old ? load_wide(old + at) : (doubles){0});
            v.wide[2 * i + 1] = load_wide(new + at + half) - (old ? load_wide(old + at + half) : (doubles){0});
            v.x[i] = narrow(v.wide[2 * i], v.wide[2 * i + 1]);
        } else {
            v.x[i] = load(new + at, dtype);
            if (old)
                v.x[i] -= load(old + at, dtype);
            v.wide[2 * i] = widen_low(v.x[i]);
            v.wide[2 * i + 1] = widen_high(v.x[i]);
        }
    }
    return v;
}

/* The same of the last `n` < 8 values; the rest is zero. */
INLINE values read_some(const char *new, const char *old, int n, int dtype)
{
    char a[64] = {0}, b[64] = {0};
    memcpy(a, new, n * width_of(dtype));
    if (old)
        memcpy(b, old, n * width_of(dtype));
    return read_eight(a, old ? b : 0, dtype);
}

INLINE double value_at(const values *v, int i) { return v->wide[i / (WIDTH / 2)][i % (WIDTH / 2)]; }

typedef struct {
    double count, nonfinite, nans, zeros, mean, m2, min, max;
} row;

static const row NOTHING = {.min = INFINITY, .max = -INFINITY};

/* Chan, Golub, LeVeque: Updating Formulae and a Pairwise Algorithm for Computing Sample Variances, 1982. */
static void fold(row *all, const row *part)
{
    all->nonfinite += part->nonfinite;
    all->nans += part->nans;
    all->zeros += part->zeros;
    if (part->count == 0)
        return;
    double count = all->count + part->count, shift = part->mean - all->mean, share = part->count / count;
    all->m2 += part->m2 + shift * shift * all->count * share;
    all->mean = all->count ? all->mean + shift * share : part->mean;
    all->count = count;
    all->min = part->min < all->min ? part->min : all->min;
    all->max = part->max > all->max ? part->max : all->max;
}

/* What a block sums up, in eight lanes. */
typedef struct {
    doubles sum[2 * PARTS], squares[2 * PARTS], min_wide[2 * PARTS], max_wide[2 * PARTS];
    floats min[PARTS], max[PARTS];
    longs zeros_wide;
    ints zeros;
} lanes;

INLINE lanes lanes_of(double pivot)
{
    lanes sums = {0};
    for (int i = 0; i < 2 * PARTS; i++)
        sums.min_wide[i] = sums.max_wide[i] = (doubles){0} + pivot;
    for (int i = 0; i < PARTS; i++)
        sums.min[i] = sums.max[i] = (floats){0} + (float)pivot;
    return sums;
}

INLINE void add(lanes *sums, const values *v, double pivot, int dtype)
{
    for (int i = 0; i < 2 * PARTS; i++) {
        doubles deviation = v->wide[i] - pivot;
        sums->sum[i] += deviation;
        sums->squares[i] += deviation * deviation;
        if (dtype == FLOAT64) {
            sums->min_wide[i] = lower_wide(v->wide[i], sums->min_wide[i]);
            sums->max_wide[i] = higher_wide(v->wide[i], sums->max_wide[i]);
            sums->zeros_wide -= v->wide[i] == 0;
        }
    }
    for (int i = 0; i < PARTS && dtype != FLOAT64; i++) {
        sums->min[i] = lower(v->x[i], sums->min[i]);
        sums->max[i] = higher(v->x[i], sums->max[i]);
        sums->zeros -= v->x[i] == 0;
    }
}

/* The row of a block of `n` values, behind which the pivot was added `padding` times. */
INLINE row row_of(const lanes *sums, double pivot, int64_t n, int padding, int dtype)
{
    row found = NOTHING;
    double sum = 0, squares = 0;
    for (int i = 0; i < 8; i++) {
        int wide = i / (WIDTH / 2), place = i % (WIDTH / 2);
        double min = dtype == FLOAT64 ? sums->min_wide[wide][place] : sums->min[i / WIDTH][i % WIDTH];
        double max = dtype == FLOAT64 ? sums->max_wide[wide][place] : sums->max[i / WIDTH][i % WIDTH];
        sum += sums->sum[wide][place];
        squares += sums->squares[wide][place];
        found.min = min < found.min ? min : found.min;
        found.max = max > found.max ? max : found.max;
    }
    for (int i = 0; i < WIDTH; i++)
        found.zeros += dtype != FLOAT64 ? sums->zeros[i] : i < WIDTH / 2 ? sums->zeros_wide[i] : 0;
    if (pivot == 0)
        found.zeros -= padding;
    double m2 = squares - sum * (sum / n);
    found.count = n;
    found.nonfinite = isfinite(sum) ? 0 : 1;
    found.mean = pivot + sum / n;
    found.m2 = m2 > 0 ? m2 : 0;
    return found;
}

/* The row of a block of which some values are not finite, or the sums in double are not. */
static __attribute__((noinline)) row read_again(const char *new, const char *old, int64_t n, int dtype)
{
    row found = NOTHING;
    double pivot = 0, sum = 0, squares = 0;
    int width = width_of(dtype);
    for (int64_t i = 0; i < n; i += 8) {
        int num = n - i < 8 ? (int)(n - i) : 8;
        const char *after = new + i * width, *before = old ? old + i * width : 0;
        values v;
        switch (dtype) { /* the compiler knows each type */
        case FLOAT32: v = read_some(after, before, num, FLOAT32); break;
        case BFLOAT16: v = read_some(after, before, num, BFLOAT16); break;
        case FLOAT16: v = read_some(after, before, num, FLOAT16); break;
        default: v = read_some(after, before, num, FLOAT64);
        }
        for (int j = 0; j < num; j++) {
            double x = value_at(&v, j);
            if (!isfinite(x)) {
                found.nonfinite++;
                found.nans += x != x;
                continue;
            }
            if (!found.count++)
                pivot = x;
            found.zeros += x == 0;
            found.min = x < found.min ? x : found.min;
            found.max = x > found.max ? x : found.max;
            sum += x - pivot;
            squares += (x - pivot) * (x - pivot);
        }
    }
    if (found.count) {
        double m2 = squares - sum * (sum / found.count);
        found.mean = pivot + sum / found.count;
        found.m2 = m2 > 0 ? m2 : 0;
    }
    return found;
}

/* Wellons: Prospecting for hash functions, 2018 (lowbias32). */
INLINE uint32_t hash32(uint32_t x)
{
    x = (x ^ (x >> 16)) * 0x7FEB352Du;
    x = (x ^ (x >> 15)) * 0x846CA68Bu;
    return x ^ (x >> 16);
}

/* The signed sums of a stretch by their lanes, and the signs of a group: bit r of a word is that of its row r. */
typedef struct {
    double sums[LANES] __attribute__((aligned(32)));
    uint32_t signs[LANES] __attribute__((aligned(32)));
} signed_sums;

static void next_group(signed_sums *sketch, uint32_t seed, int64_t first)
{
    uint32_t base = seed + (uint32_t)(first / GROUP) * LANES;
    for (uint32_t i = 0; i < LANES; i++)
        sketch->signs[i] = hash32(base + i);
}

/* Adds the sums of the stretch that begins at `first` to those of the tensor, and clears them. */
static void end_stretch(signed_sums *sketch, double *sums, uint32_t seed, int64_t first)
{
    uint32_t swap = hash32(seed + 0x85EBCA6Bu * (uint32_t)(first / STRETCH + 1)) & 7;
    for (uint32_t i = 0; i < SIZE; i++)
        sums[i] += sketch->sums[i ^ swap] + sketch->sums[SIZE + (i ^ swap)];
    memset(sketch->sums, 0, sizeof sketch->sums);
}

/* Eight values whose lanes begin at `place`. */
INLINE void add_signed(signed_sums *sketch, const values *v, int place, int shift)
{
    for (int i = 0; i < PARTS; i++) {
        words bits = (words)v->x[i], flips = *(words *)(sketch->signs + place + i * WIDTH) << shift;
        words finite = (words)((bits & 0x7f800000) != 0x7f800000);
        floats x = (floats)((bits & finite) ^ (flips & 0x80000000));
        doubles *sums = (doubles *)(sketch->sums + place + i * WIDTH);
        sums[0] += widen_low(x);
        sums[1] += widen_high(x);
    }
}

/* A line of the cache apart: stores and loads that are 4,096 bytes apart are taken for the same ones. */
typedef uint32_t counts[TABLES][BINS + 16];

/* What there is to measure, and where it goes. */
typedef struct {
    int64_t num;
    const char *const *new, *const *old;
    const int64_t *numels;
    const int32_t *dtypes;
    const uint32_t *seeds;
    double *rows, *norms;
    int32_t *histograms;
    float *sketches;
} request;

/* A part of a tensor: what a thread takes at a time. */
typedef struct {
    int64_t tensor, begin, end;
    row row;
    double *sums; /* of the sketch */
} chunk;

/* Memory of one thread. */
typedef struct {
    counts counts;
    signed_sums sketch;
} room;

INLINE int skip_of(int64_t numel)
{
    int skip = 0;
    for (int64_t n = numel / MIN_COUNTED; n > 1 && skip < MAX_SKIP; n >>= 1)
        skip++;
    return skip;
}

INLINE void count(counts counts, const values *v, int n)
{
    uint32_t bins[8];
    for (int i = 0; i < PARTS; i++) {
        words bin = (words)v->x[i] >> 21;
        memcpy(bins + i * WIDTH, &bin, sizeof bin);
    }
    for (int i = 0; i < n; i++)
        counts[i % TABLES][bins[i]]++;
}

/* One block. It is read run by run where histogram or sketch are wanted, which change from run to run. */
INLINE row block(const char *new, const char *old, int64_t first, int64_t n, int skip, uint32_t seed, room *room,
                 const int dtype, const int histogram, const int sketch)
{
    const int width = width_of(dtype), step = histogram || sketch ? RUN : BLOCK;
    values head = n < 8 ? read_some(new, old, (int)n, dtype) : read_eight(new, old, dtype);
    double pivot = value_at(&head, 0);
    if (!isfinite(pivot))
        pivot = 0;
    lanes sums = lanes_of(pivot);
    int padding = 0;
    for (int64_t begin = 0; begin < n; begin += step) {
        int64_t end = begin + step < n ? begin + step : n, i = begin;
        uint64_t run = (uint64_t)(first + begin) / RUN, mask = (1u << skip) - 1;
        uint32_t line = (uint32_t)((first + begin) / LANES);
        int counted = histogram && (run & mask) == (hash32((uint32_t)(run >> skip)) & mask);
        int turn = (int)((line * 0x9E3779B1u + seed) >> 23 & (LANES - 8)), shift = 31 - (int)(line & 31);
        int lane = (int)((first + begin) % LANES);
        for (; i + 8 <= end; i += 8, lane += 8) {
            values v = read_eight(new + i * width, old ? old + i * width : 0, dtype);
            add(&sums, &v, pivot, dtype);
            if (counted)
                count(room->counts, &v, 8);
            if (sketch)
                add_signed(&room->sketch, &v, lane ^ turn, shift);
        }
        if (i < end) { /* the last ones of the tensor */
            int num = (int)(end - i);
            values v = read_some(new + i * width, old ? old + i * width : 0, num, dtype);
            if (counted)
                count(room->counts, &v, num);
            if (sketch)
                add_signed(&room->sketch, &v, lane ^ turn, shift);
            for (int j = num; j < 8; j++) {
                v.x[j / WIDTH][j % WIDTH] = (float)pivot;
                v.wide[j / (WIDTH / 2)][j % (WIDTH / 2)] = pivot;
            }
            padding = 8 - num;
            add(&sums, &v, pivot, dtype);
        }
    }
    row found = row_of(&sums, pivot, n, padding, dtype);
    return found.nonfinite ? read_again(new, old, n, dtype) : found;
}

INLINE void measure_as(const request *all, chunk *part, room *room, const int dtype, const int difference,
                       const int histogram, const int sketch)
{
    int64_t t = part->tensor, numel = all->numels[t];
    const char *new = all->new[t], *old = difference ? all->old[t] : 0;
    uint32_t seed = sketch ? all->seeds[t] : 0;
    int skip = histogram ? skip_of(numel) : 0;
    for (int64_t first = part->begin; first < part->end; first += BLOCK) {
        int64_t n = part->end - first < BLOCK ? part->end - first : BLOCK, at = first * width_of(dtype);
        if (sketch && first % GROUP == 0)
            next_group(&room->sketch, seed, first);
        row found = block(new + at, difference ? old + at : 0, first, n, skip, seed, room, dtype, histogram, sketch);
        fold(&part->row, &found);
        if (sketch && ((first + n) % STRETCH == 0 || first + n == part->end))
            end_stretch(&room->sketch, part->sums, seed, first);
    }
}

#define EXTRAS(dtype, difference) \
    if (all->histograms && all->sketches) \
        measure_as(all, part, room, dtype, difference, 1, 1); \
    else if (all->histograms) \
        measure_as(all, part, room, dtype, difference, 1, 0); \
    else if (all->sketches) \
        measure_as(all, part, room, dtype, difference, 0, 1); \
    else \
        measure_as(all, part, room, dtype, difference, 0, 0);
#define KERNEL(name, dtype) \
    static __attribute__((noinline)) void name(const request *all, chunk *part, room *room) \
    { \
        if (all->old) { \
            EXTRAS(dtype, 1) \
        } else { \
            EXTRAS(dtype, 0) \
        } \
    }
KERNEL(measure_float32, FLOAT32)
KERNEL(measure_bfloat16, BFLOAT16)
KERNEL(measure_float16, FLOAT16)
KERNEL(measure_float64, FLOAT64)

/* The chunk's counts, added to those of its tensor; other threads may do so at the same time. */
static void give_counts(const request *all, const chunk *part, counts counts)
{
    int32_t *histogram = all->histograms + part->tensor * BINS;
    uint32_t *sums = counts[0];
    for (int i = 0; i < BINS; i++)
        sums[i] += counts[1][i] + counts[2][i] + counts[3][i];
    memset(sums + BINS / 2 - 4, 0, 4 * sizeof *sums); /* the exponent of NaN and infinity */
    memset(sums + BINS - 4, 0, 4 * sizeof *sums);
    if (part->begin == 0 && part->end == all->numels[part->tensor])
        memcpy(histogram, sums, BINS * sizeof *sums);
    else
        for (int i = 0; i < BINS; i++)
            if (sums[i])
                __atomic_fetch_add(histogram + i, (int32_t)sums[i], __ATOMIC_RELAXED);
    memset(counts, 0, TABLES * sizeof counts[0]);
}

static void measure(const request *all, chunk *part, room *room)
{
    switch (all->dtypes[part->tensor]) {
    case FLOAT32: measure_float32(all, part, room); break;
    case BFLOAT16: measure_bfloat16(all, part, room); break;
    case FLOAT16: measure_float16(all, part, room); break;
    default: measure_float64(all, part, room);
    }
    if (all->histograms)
        give_counts(all, part, room->counts);
}

static int64_t chunk_size(int64_t numel)
{
    int64_t stretches = (numel + STRETCH - 1) / STRETCH;
    return STRETCH * ((stretches + MOST_CHUNKS - 1) / MOST_CHUNKS);
}

static void give_row(const request *all, int64_t tensor, const row *found)
{
    const double columns[COLUMNS] = {found->count, found->nonfinite, found->zeros, found->mean,
                                     found->m2,    found->min,       found->max};
    memcpy(all->rows + COLUMNS * tensor, columns, sizeof columns);
    double square = found->m2 + found->count * found->mean * found->mean;
    all->norms[tensor] = found->nans ? NAN : found->nonfinite ? INFINITY : sqrt(square);
}

static void give_sketch(const request *all, int64_t tensor, const double *sums)
{
    for (int i = 0; i < SIZE; i++)
        all->sketches[SIZE * tensor + i] = (float)sums[i];
}

/* Subnormal values count, whatever the thread does with them elsewhere; nothing of its state is changed. */
#if defined(__x86_64__)
typedef unsigned int modes;
INLINE modes plain_modes(void) { modes m = _mm_getcsr(); _mm_setcsr(0x1f80); return m; }
INLINE void restore_modes(modes m) { _mm_setcsr(m); }
#elif defined(__aarch64__)
typedef uint64_t modes;
INLINE modes plain_modes(void)
{
    modes m;
    __asm__ volatile("mrs %0, fpcr" : "=r"(m));
    __asm__ volatile("msr fpcr, %0" : : "r"((modes)0));
    return m;
}
INLINE void restore_modes(modes m) { __asm__ volatile("msr fpcr, %0" : : "r"(m)); }
#else
typedef int modes;
INLINE modes plain_modes(void) { return 0; }
INLINE void restore_modes(modes m) { (void)m; }
#endif

static void clear(room *room, const request *all)
{
    if (all->histograms)
        memset(room->counts, 0, sizeof room->counts);
    if (all->sketches)
        memset(room->sketch.sums, 0, sizeof room->sketch.sums);
}

static void one_by_one(const request *all)
{
    room room;
    double total[SIZE], sums[SIZE];
    clear(&room, all);
    for (int64_t t = 0; t < all->num; t++) {
        int64_t size = chunk_size(all->numels[t]), numel = all->numels[t];
        row found = NOTHING;
        memset(total, 0, sizeof total);
        for (int64_t begin = 0; begin < numel; begin += size) {
            chunk part = {t, begin, begin + size < numel ? begin + size : numel, NOTHING, sums};
            memset(sums, 0, all->sketches ? sizeof sums : 0);
            measure(all, &part, &room);
            fold(&found, &part.row);
            for (int i = 0; all->sketches && i < SIZE; i++)
                total[i] += sums[i];
        }
        give_row(all, t, &found);
        if (all->sketches)
            give_sketch(all, t, total);
    }
}

typedef struct {
    const request *all;
    chunk *chunks;
    int64_t num, next;
} queue;

static void *work(void *given)
{
    queue *queue = given;
    room room;
    modes before = plain_modes();
    clear(&room, queue->all);
    for (;;) {
        int64_t i = __atomic_fetch_add(&queue->next, 1, __ATOMIC_RELAXED);
        if (i >= queue->num)
            break;
        measure(queue->all, &queue->chunks[i], &room);
    }
    restore_modes(before);
    return 0;
}

/* Chunks are claimed by threads as they come, and folded in their order. 0 where there is no memory. */
static int together(const request *all, int num_threads)
{
    queue queue = {all, 0, 0, 0};
    for (int64_t t = 0; t < all->num; t++) {
        int64_t size = chunk_size(all->numels[t]);
        queue.num += size ? (all->numels[t] + size - 1) / size : 0;
    }
    chunk *chunks = queue.chunks = malloc(queue.num * sizeof *chunks);
    double *sums = all->sketches ? calloc(queue.num, SIZE * sizeof *sums) : 0;
    if (!chunks || (all->sketches && !sums)) {
        free(chunks);
        free(sums);
        return 0;
    }
    for (int64_t t = 0, i = 0; t < all->num; t++) {
        int64_t size = chunk_size(all->numels[t]), numel = all->numels[t];
        for (int64_t begin = 0; begin < numel; begin += size, i++) {
            double *own = all->sketches ? sums + i * SIZE : 0;
            chunks[i] = (chunk){t, begin, begin + size < numel ? begin + size : numel, NOTHING, own};
        }
    }

    pthread_t threads[MOST_THREADS];
    int started = 0;
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before); /* signals are for the training's own threads */
    while (started < num_threads - 1 && started < MOST_THREADS && !pthread_create(&threads[started], 0, work, &queue))
        started++;
    pthread_sigmask(SIG_SETMASK, &before, 0);
    work(&queue);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], 0);

    for (int64_t t = 0, i = 0; t < all->num; t++) {
        row found = NOTHING;
        double total[SIZE] = {0};
        for (; i < queue.num && chunks[i].tensor == t; i++) {
            fold(&found, &chunks[i].row);
            for (int j = 0; all->sketches && j < SIZE; j++)
                total[j] += chunks[i].sums[j];
        }
        give_row(all, t, &found);
        if (all->sketches)
            give_sketch(all, t, total);
    }
    free(chunks);
    free(sums);
    return 1;
}

/* All statistics of `num` tensors, or of new - old where `old` is given.
 *
 * rows is (num, 7); norms (num) are of all values: NaN where one is NaN, else infinite where one is infinite.
 * histograms (num, 2048) and sketches (num, 256) are made where they are given. Returns 0, or 1 + the number of the
 * tensor whose address is missing, in which case nothing is measured.
 */
EXPORTED int64_t STATISTICS(int64_t num, const char *const *new, const char *const *old, const int64_t *numels,
                            const int32_t *dtypes, const uint32_t *seeds, double *rows, double *norms,
                            int32_t *histograms, float *sketches, int64_t num_threads)
{
    const request all = {num, new, old, numels, dtypes, seeds, rows, norms, histograms, sketches};
    for (int64_t t = 0; t < num; t++)
        if (numels[t] && (!new[t] || (old && !old[t])))
            return t + 1;
    modes before = plain_modes();
    for (int64_t t = 0; histograms && t < num; t++)
        if (numels[t] == 0 || numels[t] > chunk_size(numels[t]))
            memset(histograms + t * BINS, 0, BINS * sizeof *histograms);
    if (num_threads < 2 || !together(&all, (int)num_threads))
        one_by_one(&all);
    restore_modes(before);
    return 0;
}

#ifdef IS_BASELINE
#ifndef SOURCE
#define SOURCE ""
#endif

/* Which version of this file it was compiled from. */
EXPORTED const char *sonde_source(void) { return SOURCE; }

/* Whether the machine has all that x86-64-v3 asks for, and its system keeps the wide registers. */
EXPORTED int sonde_has_v3(void)
{
#if defined(__x86_64__)
    const unsigned first = bit_FMA | bit_MOVBE | bit_OSXSAVE | bit_AVX | bit_F16C;
    const unsigned seventh = bit_BMI | bit_AVX2 | bit_BMI2;
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & first) != first)
        return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 6) != 6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || (b & seventh) != seventh)
        return 0;
    return __get_cpuid(0x80000001, &a, &b, &c, &d) && (c & 1u << 5); /* LZCNT */
#else
    return 0;
#endif
}
#endif
