"""Statistics of a tensor that is given to a model: numbers taken on its device, and what follows from them.

Nothing here waits for the device, and no shape depends on values.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sonde.core.frames import MISSING
from sonde.core.records import Float64

_NUM_CLASSES = 1024

# Values of which features' statistics are taken, and how many of each dimension are kept at least. With 2¹⁸ values a
# feature of an image (3 channels) is known to 0.3%, one of a table of 1,000 columns to 5%.
_SAMPLE = 2**18
_KEPT = 16
# Taken at every step: 0.1 ms on a core, and a deviation is known to 0.3%.
_WHOLE_SAMPLE = 2**16
# With 2¹⁶ values the entropy of 1,000 classes is known to 0.01 nats.
_CLASSES_SAMPLE = 2**16
_COMPARABLE = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
# Below this part of a feature's mean a deviation is rounding: the spacing of float32 is 6e-8 of a value.
_CONSTANT = 1e-7


class Statistic(NamedTuple):
    """Two halves of a measurement."""

    take: Callable[[Tensor], Tensor]
    """On the device, from a tensor with at least one value: a few numbers."""
    values: Callable[[Float64], dict[str, float]]
    """On the host, from these numbers in one vector: values by name."""


def thinned(tensor: Tensor, dims: Sequence[int], most: int = _SAMPLE) -> Tensor:
    """Every n-th value along some dimensions, the first of them first, so that about `most` are left.

    At least 16 are kept along each dimension: with many dimensions it may be more.

    Example:
        >>> thinned(torch.zeros(1000, 30), [0], most=3000).shape
        torch.Size([100, 30])
    """
    for dim in dims:
        size = tensor.shape[dim]
        step = min(-(-tensor.numel() // most), max(1, size // _KEPT))
        if step > 1:
            tensor = tensor[(slice(None),) * dim + (slice(None, None, step),)]
    return tensor


def _extremes(tensor: Tensor) -> Tensor:
    if tensor.dtype in (torch.uint16, torch.uint32, torch.uint64):  # torch can do little more with them than convert
        tensor = tensor.long()
    return torch.stack(tensor.aminmax()).double()


def _extreme_values(numbers: Float64) -> dict[str, float]:
    return {"min": float(numbers[0]), "max": float(numbers[1])}


def _whole(tensor: Tensor) -> Tensor:
    """Of a sample: its size, how many are not finite, and four statistics; of all: the smallest and largest value.

    The four are, with zeros in place of what is not finite: the norm of the deviations from the mean, the mean, the
    smallest and the largest. The extremes of all are NaN or infinite where any value is.
    """
    if tensor.dtype not in _COMPARABLE:
        tensor = tensor.float()
    smallest, largest = tensor.aminmax()
    sample = thinned(tensor, range(tensor.dim()), _WHOLE_SAMPLE)
    if sample.dtype not in (torch.float32, torch.float64):
        sample = sample.float()
    # `where` with a plain number would copy it to the device and wait; `isfinite` is four launches, this is one.
    filled = sample.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    mean = filled.mean()
    deviation = torch.linalg.vector_norm(filled - mean)  # six times as fast on a CPU as torch's variance
    others = (deviation, mean, *filled.aminmax(), smallest, largest)  # the maximum norm takes 20 times as long on a CPU
    counts = (filled.new_full((), filled.numel()), filled.ne(sample).count_nonzero())
    return torch.stack([number.to(filled.dtype) for number in (*counts, *others)]).double()


def _whole_values(numbers: Float64) -> dict[str, float]:
    num, nonfinite, deviation, mean, *sampled, smallest, largest = numbers.tolist()
    found = {"nonfinite": nonfinite, **dict.fromkeys(("mean", "std", "absmax"), float(MISSING))}
    if not (math.isfinite(smallest) and math.isfinite(largest)):
        found["nonfinite"] = max(nonfinite, 1.0)
        smallest, largest = sampled
    if nonfinite < num:
        share = num / (num - nonfinite)
        found["mean"] = share * mean
        found["std"] = math.sqrt(max(_unfilled(deviation * deviation / num, mean, share), 0.0))
        found["absmax"] = max(-smallest, largest)
    return found


def _unfilled(variance: Any, mean: Any, share: Any) -> Any:
    """The variance of the finite values from that of all with zeros in place of the others.

    With `share` = all values / finite ones: E x² = share·(variance + mean²) and (E x)² = share²·mean². Written so that
    without non-finite values nothing cancels.
    """
    return share * variance + share * (1 - share) * mean * mean


def feature_dim(tensor: Tensor) -> int:
    """The dimension of a tensor's features, channels or classes: the last one, of images the second."""
    return tensor.dim() - 1 if tensor.dim() <= 3 else 1


def _features(tensor: Tensor) -> Tensor:
    """Largest and smallest non-zero standard deviation of a feature, and largest magnitude of a feature's mean."""
    feature = feature_dim(tensor)
    others = [dim for dim in range(tensor.dim()) if dim != feature]
    sample = thinned(tensor, others).double()
    filled = sample.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    num = sample.numel() / sample.shape[feature]
    share = num / filled.eq(sample).sum(others, dtype=torch.float64)  # infinite for a feature without a finite value
    variance, mean = torch.var_mean(filled, others, correction=0)
    std = _unfilled(variance, mean, share).nan_to_num(nan=0.0, posinf=math.inf).clamp(min=0.0).sqrt()
    centre = (share * mean).abs().nan_to_num(nan=0.0, posinf=math.inf)
    varying = std.masked_fill(std <= _CONSTANT * centre, math.inf)
    return torch.stack([std.max(), varying.min(), centre.max()])


def _feature_values(numbers: Float64) -> dict[str, float]:
    largest, smallest, centre = numbers.tolist()
    return {
        "scale_spread": largest / smallest if math.isfinite(smallest) else float(MISSING),
        "feature_std_max": largest,
        "feature_mean_absmax": centre,
    }


def _class_counts(target: Tensor) -> Tensor:
    """How many targets are of each class; the last number is of those above."""
    classes = thinned(target, range(target.dim()), _CLASSES_SAMPLE).reshape(-1).long().clamp(-1, _NUM_CLASSES) + 1
    counts = torch.zeros(_NUM_CLASSES + 2, dtype=torch.int64, device=classes.device)
    return counts.scatter_add_(0, classes, torch.ones_like(classes))[1:].double()


def _class_values(numbers: Float64) -> dict[str, float]:
    words = ("num_distinct", "share_max", "entropy")
    counts, above = numbers[:-1], numbers[-1]
    total = counts.sum()
    if above > 0 or total == 0:
        return dict.fromkeys(words, float(MISSING))
    shares = counts[counts > 0] / total
    return dict(zip(words, (len(shares), shares.max(), -np.sum(shares * np.log(shares))), strict=True))


WHOLE = Statistic(_whole, _whole_values)
"""Of floating-point values: how many are not finite; mean, standard deviation and largest magnitude of the others.

One pass over all values finds the largest magnitude and whether any is not finite. The rest is of about 65,000 values
that are spread evenly, of all where there are no more: how many are not finite (at least 1 where any is), the mean and
the standard deviation. Where some are not finite, the largest magnitude is of the sample too.
"""

FEATURES = Statistic(_features, _feature_values)
"""Of floating-point values of at least two dimensions: how far the scales of features lie apart, from a sample."""

EXTREMES = Statistic(_extremes, _extreme_values)
"""Of integers: the smallest and the largest."""

CLASSES = Statistic(_class_counts, _class_values)
"""Of integers that are classes, from a sample: how many occur, the share of the commonest, the entropy in nats."""
