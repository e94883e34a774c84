"""Statistics of many tensors in one pass: moments, extremes, histograms and sketches, on the tensors' own device."""

from sonde.kernels import columns, histograms, sketches
from sonde.kernels.columns import Column
from sonde.kernels.dispatch import TensorStats, tensor_stats
from sonde.kernels.stats import Stats

__all__ = ["Column", "Stats", "TensorStats", "columns", "histograms", "sketches", "tensor_stats"]
