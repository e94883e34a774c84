"""Whether two noisy curves go apart, since when, and by how much.

What noise means here: the scatter of a curve's values around its own smoothed course, with the memory that this scatter
has. That is what one run can tell about itself: mostly which batches it happened to draw. It cannot tell what another
seed would have given. Two seeds of one configuration commonly end some fraction of that scatter apart, and with
thousands of points such a fraction is "significant"; so a difference must also be as large as the scatter of a single
value (`min_size`) before it counts. Where curves hardly scatter (full batches, long moving averages) the smallest
difference that lasts separates them, and a curve that wanders more slowly than over a tenth of its length has that as
its course: there only several seeds can tell.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from sonde.core.records import Float64
from sonde.signals.p_values import critical_t

# 32 are enough to say when, and each one more costs power; fewer than 6 cannot tell what lasts from a slow wave.
_NUMS_OF_BLOCKS = (32, 16, 8, 6)
_MIN_POINTS_A_BLOCK = 5
_MIN_POINTS = _NUMS_OF_BLOCKS[-1] * _MIN_POINTS_A_BLOCK
_MEMORIES_A_BLOCK = 4.0  # below, the course follows the noise, and both scatter and memory come out too small
_LASTING_BLOCKS = 2  # the last block alone may be a bump that has not ended yet
_LASTING_SHARE = 0.9  # a spike of either run may hide a separation for a while
_MAD_TO_SIGMA = 1.4826
_MEDIAN_TO_MEAN = math.sqrt(math.pi / 2)  # standard error of a median over that of a mean, normal noise


@dataclass(frozen=True, kw_only=True, slots=True)
class Separation:
    """From where on two curves stay apart.

    Args:
        since: Where on the axis (a step, unless the curves were aligned by something else).
        resolution: How exactly that is known: the length of a block on the axis.
        difference: Median of the second curve less the first from there on; negative where the second is lower.
        scatters: The same in units of the scatter of a single value.
    """

    since: float
    resolution: float
    difference: float
    scatters: float


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Contrast:
    """Two curves side by side: their smoothed courses, how much they scatter, and whether they go apart.

    Args:
        num_points: Points that both curves have.
        at: Middle of each block on the axis; every point is a block of its own where there are too few to judge.
        first: Median of the first curve in each block.
        second: Median of the second.
        scatter: Of a single value around its course, for each block (both curves' scatters, in the root of their mean
            square); NaN where it could not be judged.
        separation: Since when they stay apart; None where they don't, or where it could not be judged.
        undecided: Why it could not be judged; empty where it could.
    """

    num_points: int
    at: Float64
    first: Float64
    second: Float64
    scatter: Float64
    separation: Separation | None = None
    undecided: str = ""

    @property
    def difference(self) -> Float64:
        """Second less first, for each block."""
        return self.second - self.first

    @property
    def end_difference(self) -> float:
        """Second less first in the last block; NaN where the curves have no point in common."""
        return float(self.second[-1] - self.first[-1]) if len(self.at) else math.nan


def contrast(
    x: npt.ArrayLike,
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    *,
    false_alarms: float = 0.01,
    min_size: float = 1.0,
) -> Contrast:
    """Where two curves that were measured at the same places separate for good, beyond their own noise.

    The n points are cut into K blocks of m. In block i the medians of the curves differ by d_i. The scatter σ of each
    curve is the robust deviation (1.4826 · MAD) from the line through its own block medians, over the block and its two
    neighbours; its memory τ = 1 + 2 Σ ρ_k is summed from the autocorrelation of those deviations. The curves are
    separated since the first block j for which both hold:

    - *it lasts*: in block j, in the last two and in nine of ten between them, |d_i| exceeds `min_size` scatters of a
      single value, √((σ_a² + σ_b²)/2), on one side, and in none on the other;
    - *it is beyond chance*: the mean of d_j … d_K exceeds c times its standard error, which is built from those of the
      medians, √(π/2) · √((τ_a σ_a² + τ_b σ_b²)/m). c is Student's quantile for `false_alarms`/K: whichever j it is, two
      curves with the same mean separate with at most that probability (Bonferroni over the K possible beginnings).

    K is the largest of 32, 16, 8, 6 with m ≥ 4τ and m ≥ 5. Where the memory is too long even for 6 blocks, a slow wave
    cannot be told from the course, and a block counts as a single value (τ = m): only a difference of many scatters is
    then found. The place inside of block j is where splitting the differences of it and the block before into two
    levels leaves the smallest residue.

    Pairs in which either value is NaN or infinite are left out. A spike is outweighed by the medians. Noise that both
    curves share (the same batches in the same order) is not subtracted: less is then found than could be.

    Args:
        x: Where the points are, rising.
        first: Values of the reference.
        second: Values of the other curve.
        false_alarms: Probability that curves with the same mean separate; smaller finds less.
        min_size: Smallest difference that counts, in scatters of a single value; larger finds less.

    Example:
        >>> noise = np.random.default_rng(0).normal(size=(2, 1000))
        >>> x = np.arange(1000)
        >>> contrast(x, noise[0], noise[1]).separation is None
        True
        >>> found = contrast(x, noise[0], noise[1] - 3.0 * (x >= 400)).separation
        >>> round(found.since), round(found.difference, 1)
        (400, -3.0)

    References:
        The memory is the integrated autocorrelation time of Sokal, Monte Carlo methods in statistical mechanics, 1997,
        section 3.
    """
    if not 0 < false_alarms < 1:
        raise ValueError(f"`contrast(false_alarms=...)` must be in (0, 1), got {false_alarms}.")
    if not min_size >= 0:
        raise ValueError(f"`contrast(min_size=...)` must be at least 0, got {min_size}.")
    place, a, b = (np.asarray(values, np.float64) for values in (x, first, second))
    if not place.shape == a.shape == b.shape or place.ndim != 1:
        raise ValueError(f"`contrast` needs three equally long rows, got {place.shape}, {a.shape} and {b.shape}.")
    both = np.isfinite(a) & np.isfinite(b)
    place, a, b = place[both], a[both], b[both]
    if len(place) < _MIN_POINTS:
        why = f"{len(place)} common points; at least {_MIN_POINTS} are needed"
        unknown = np.full(len(place), math.nan)
        return Contrast(num_points=len(place), at=place, first=a, second=b, scatter=unknown, undecided=why)
    for num_blocks in _NUMS_OF_BLOCKS:
        if len(place) < num_blocks * _MIN_POINTS_A_BLOCK:
            continue
        blocks = _Blocks(len(place), num_blocks)
        noise = _Noise(blocks, a), _Noise(blocks, b)
        if _MEMORIES_A_BLOCK * max(curve.memory for curve in noise) <= blocks.length:
            break
    return _judge(blocks, place, (a, b), noise, false_alarms, min_size)


def aligned(first_x: Float64, first: Float64, second_x: Float64, second: Float64) -> tuple[Float64, Float64, Float64]:
    """Two curves at the same places: (places, first, second).

    The places that both have, where these are at least half of what the sparser curve has in the common range; else
    those of the sparser curve there, the other one drawn as a line between its points. Values that are NaN or infinite
    are left out; a place that occurs twice counts with its last value.

    Example:
        >>> x, a, b = aligned(np.arange(6.0), np.arange(6.0), np.array([0.5, 4.5]), np.array([7.0, 8.0]))
        >>> x.tolist(), a.tolist(), b.tolist()
        ([0.5, 4.5], [0.5, 4.5], [7.0, 8.0])
    """
    (a_x, a), (b_x, b) = _rising(first_x, first), _rising(second_x, second)
    if not len(a_x) or not len(b_x):
        return np.empty(0), np.empty(0), np.empty(0)
    low, high = max(a_x[0], b_x[0]), min(a_x[-1], b_x[-1])
    within = [x[(x >= low) & (x <= high)] for x in (a_x, b_x)]
    sparser = min(within, key=len)
    common, of_a, of_b = np.intersect1d(a_x, b_x, assume_unique=True, return_indices=True)
    if 2 * len(common) >= len(sparser):
        return common, a[of_a], b[of_b]
    return sparser, np.interp(sparser, a_x, a), np.interp(sparser, b_x, b)


def _rising(x: Float64, values: Float64) -> tuple[Float64, Float64]:
    finite = np.isfinite(x) & np.isfinite(values)
    x, values = x[finite], values[finite]
    places, at = np.unique(x[::-1], return_index=True)
    return places, values[::-1][at]


class _Blocks:
    """Stretches of equally many points, to one; what is measured in each."""

    def __init__(self, num_points: int, num_blocks: int) -> None:
        self.cuts = np.linspace(0, num_points, num_blocks + 1).astype(np.int64)
        self.length = num_points // num_blocks
        self.middles = (self.cuts[:-1] + self.cuts[1:] - 1) / 2
        self._index = np.arange(num_points)

    def medians(self, values: Float64) -> Float64:
        return np.array([np.median(part) for part in np.split(values, self.cuts[1:-1])])

    def course(self, medians: Float64) -> Float64:
        """The line through the medians, drawn on to both ends."""
        inside = np.interp(self._index, self.middles, medians)
        before, behind = self._index < self.middles[0], self._index > self.middles[-1]
        slope = np.diff(medians) / np.diff(self.middles)
        inside[before] += slope[0] * (self._index[before] - self.middles[0])
        inside[behind] += slope[-1] * (self._index[behind] - self.middles[-1])
        return inside

    def around(self, block: int) -> slice:
        """A block and its neighbours."""
        last = len(self.cuts) - 1
        return slice(int(self.cuts[max(0, block - 1)]), int(self.cuts[min(last, block + 2)]))


class _Noise:
    """How a curve scatters around its own course."""

    def __init__(self, blocks: _Blocks, values: Float64) -> None:
        self.medians = blocks.medians(values)
        rest = values - blocks.course(self.medians)
        num_blocks = len(self.medians)
        self.scatter = np.array([_MAD_TO_SIGMA * np.median(np.abs(rest[blocks.around(i)])) for i in range(num_blocks)])
        counts = np.diff(blocks.cuts)
        scale = np.repeat(np.where(self.scatter > 0, self.scatter, 1.0), counts)
        # A spike is one event, not a memory: what lies beyond four scatters counts as four.
        self.memory = _memory(np.clip(rest / scale, -4, 4), blocks.length)


def _memory(rest: Float64, max_lag: int) -> float:
    """1 + 2 Σ ρ_k up to the first lag whose autocorrelation is lost in its own error; at least 1."""
    size = 1 << (2 * len(rest) - 1).bit_length()
    power = np.abs(np.fft.rfft(rest, size)) ** 2
    products = np.fft.irfft(power, size)[: max_lag + 1]
    if products[0] <= 0:
        return 1.0
    correlations = products[1:] / products[0]
    lost = np.flatnonzero(correlations < 2 / math.sqrt(len(rest)))
    end = int(lost[0]) if len(lost) else len(correlations)
    return max(1.0, 1.0 + 2.0 * float(correlations[:end].sum()))


def _judge(
    blocks: _Blocks,
    place: Float64,
    values: tuple[Float64, Float64],
    noise: tuple[_Noise, _Noise],
    false_alarms: float,
    min_size: float,
) -> Contrast:
    a, b = noise
    memories = [curve.memory if _MEMORIES_A_BLOCK * curve.memory <= blocks.length else blocks.length for curve in noise]
    error = _MEDIAN_TO_MEAN * np.sqrt((memories[0] * a.scatter**2 + memories[1] * b.scatter**2) / blocks.length)
    scatter = np.sqrt((a.scatter**2 + b.scatter**2) / 2)
    difference = b.medians - a.medians
    independent = blocks.length / max(memories)
    separation = None
    if (block := _lasting_from(difference, error, min_size * scatter, independent, false_alarms)) is not None:
        typical = float(np.median(difference[block:]))
        usual = float(np.median(scatter[block:]))
        separation = Separation(
            since=float(place[_split(values[1] - values[0], blocks, block)]),
            resolution=float(place[blocks.cuts[block + 1] - 1] - place[blocks.cuts[block]]),
            difference=typical,
            scatters=abs(typical) / usual if usual > 0 else math.inf,
        )
    return Contrast(
        num_points=len(place),
        at=blocks.medians(place),
        first=a.medians,
        second=b.medians,
        scatter=scatter,
        separation=separation,
    )


def _lasting_from(
    difference: Float64, error: Float64, least: Float64, independent: float, false_alarms: float
) -> int | None:
    """The first block from which on the curves stay apart, on one side and beyond chance."""
    num_blocks = len(difference)
    z = NormalDist().inv_cdf(1 - false_alarms / (2 * num_blocks))
    side = np.where(np.abs(difference) > least, np.sign(difference), 0.0)
    for block in range(num_blocks - _LASTING_BLOCKS + 1):
        rest, num = side[block:], num_blocks - block
        if not rest[-1] or (rest[-_LASTING_BLOCKS:] != rest[-1]).any() or rest[0] != rest[-1]:
            continue
        if (rest == -rest[-1]).any() or np.mean(rest == rest[-1]) < _LASTING_SHARE:
            continue
        limit = critical_t(z, np.array([num * independent]))[0] * math.sqrt(float(np.sum(error[block:] ** 2))) / num
        if abs(float(np.mean(difference[block:]))) > limit:
            return block
    return None


def _split(difference: Float64, blocks: _Blocks, block: int) -> int:
    """Where, in a block or the one before, the difference steps from one level to another; 0 if from the start."""
    if block == 0:
        return 0
    low, high = int(blocks.cuts[block - 1]), int(blocks.cuts[block + 1])
    part = difference[low:high]
    # Clipped, so that a spike does not look like the step, which fills a quarter of the two blocks at the least.
    part = np.clip(part, *np.quantile(part, (0.1, 0.9)))
    count = np.arange(1, len(part))
    total = np.cumsum(part)
    gain = (total[:-1] - count * total[-1] / len(part)) ** 2 / (count * (len(part) - count))
    # The first of equal ones: which of two rounds higher may depend on the order of the curves.
    return low + 1 + int(np.flatnonzero(gain >= gain.max() * (1 - 1e-9))[0])
