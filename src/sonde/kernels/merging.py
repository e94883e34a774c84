"""Statistics of a whole tensor from those of its pieces, which may lie on several processes."""

from collections.abc import Sequence

import torch
from torch import Tensor

from sonde.kernels.columns import NUM_COLUMNS, Column
from sonde.kernels.histograms import skip


def merge_rows(parts: Tensor) -> Tensor:
    """The rows of n tensors from those of their pieces (Chan's formula), on the rows' device, without waiting for it.

    With a piece's count c, mean m and M2 s, and C = Σc:

    - MEAN = Σcm / C
    - M2 = Σs + Σc(m − MEAN)²

    Both are right to 1e-12 as far as the pieces are, for means of up to 10⁹ standard deviations: the rounding of MEAN,
    δ, adds Cδ² to M2. Counts are added; of the extremes the outermost is taken. A piece without a finite value changes
    nothing but the counts. A piece whose mean is NaN or infinite makes mean and M2 NaN.

    Args:
        parts: float64 (pieces, n, 7), at least one piece; the same n tensors in every one.

    Returns:
        float64 (n, 7).

    Example:
        >>> low, high = [[2.0, 0, 0, 1.5, 0.5, 1, 2]], [[1.0, 1, 0, 6.0, 0.0, 6, 6]]  # 1, 2 and 6, NaN
        >>> merge_rows(torch.tensor([low, high]).double()).tolist()
        [[3.0, 1.0, 0.0, 3.0, 14.0, 1.0, 6.0]]

    References:
        Chan, Golub, LeVeque: Updating Formulae and a Pairwise Algorithm for Computing Sample Variances, COMPSTAT 1982.
    """
    # On a GPU each line costs more for its launch than for its arithmetic: as few as there can be.
    count = parts[..., Column.COUNT]
    merged = parts.sum(0)
    mean = torch.sum(count * parts[..., Column.MEAN], 0).div_(merged[:, Column.COUNT].clamp(min=1))
    shift = parts[..., Column.MEAN] - mean
    merged[:, Column.MEAN].copy_(mean)
    merged[:, Column.M2].add_(torch.sum((count * shift).mul_(shift), 0))
    torch.amin(parts[..., Column.MIN], 0, out=merged[:, Column.MIN])
    torch.amax(parts[..., Column.MAX], 0, out=merged[:, Column.MAX])
    return merged


def absent_rows(num: int, device: torch.device | str = "cpu") -> Tensor:
    """Rows of tensors that have no value here: they change nothing where they are merged.

    Example:
        >>> absent_rows(1).tolist()
        [[0.0, 0.0, 0.0, 0.0, 0.0, inf, -inf]]
    """
    rows = torch.zeros(num, NUM_COLUMNS, dtype=torch.float64, device=device)
    rows[:, Column.MIN] = torch.inf
    rows[:, Column.MAX] = -torch.inf
    return rows


def norm_rows(norms: Tensor) -> Tensor:
    """Rows of one value each, the norm: where only norms of pieces are known, those of the wholes come of their merge.

    `columns.norm` of the merged rows is √Σ‖piece‖², NaN where a piece's norm is not finite; nothing else in them
    means anything.

    Args:
        norms: (n,), of any floating-point type.

    Example:
        >>> from sonde.kernels.columns import norm
        >>> norm(merge_rows(torch.stack([norm_rows(torch.tensor([3.0])), norm_rows(torch.tensor([4.0]))])).numpy())
        array([5.])
    """
    rows = torch.zeros(len(norms), NUM_COLUMNS, dtype=torch.float64, device=norms.device)
    rows[:, Column.COUNT] = 1
    rows[:, Column.MEAN] = norms
    return rows


def all_counts(histogram: Tensor, numels: Sequence[int]) -> Tensor:
    """Histograms as if every value had been counted: those of pieces, added up, are then one of the whole.

    Of a large piece one run of 2ˢ is counted (see `sonde.kernels.histograms`), of a small one all: added up as they
    are, the values of the small one would weigh 2ˢ times as much.

    Args:
        histogram: int32 (n, 2048).
        numels: Of the n pieces, in values (two for a complex number).

    Returns:
        int64 (n, 2048).
    """
    skips = [skip(numel) for numel in numels]
    counts = histogram.long()
    if len(set(skips)) == 1:
        return counts << skips[0]
    # Row by row, since a tensor of the shifts would have to be copied to the device.
    for row, shift in zip(counts, skips, strict=True):
        if shift:
            row <<= shift
    return counts
