"""What a pass over a list of tensors gives."""

from typing import NamedTuple

import torch


class Stats(NamedTuple):
    """Statistics of n tensors, on the tensors' device; nothing has waited for the device to finish them."""

    rows: torch.Tensor
    """float64 (n, 7), laid out as `Column` says."""
    histogram: torch.Tensor | None = None
    """int32 (n, 2048), where asked for; see `sonde.kernels.histograms`."""
    sketch: torch.Tensor | None = None
    """float32 (n, 256), where asked for; see `sonde.kernels.sketches`."""
    norms: torch.Tensor | None = None
    """float64 (n,), L2 norms of all values: NaN where one is NaN, else infinite where one is. The native path alone
    gives them; `columns.norm` of the rows does not tell NaN from infinity."""
