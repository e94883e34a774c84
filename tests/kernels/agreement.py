"""How far a path may differ from the reference."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from sonde.kernels import Column, Stats, reference


def assert_agrees(found: Stats, tensors: Sequence[Tensor], ids: Sequence[int]) -> None:
    """Counts, extremes and histograms are equal, the rest is right to 1e-5."""
    assert found.histogram is not None
    assert found.sketch is not None
    assert found.rows.dtype == torch.float64
    for i, tensor in enumerate(tensors):
        got, want = found.rows[i].numpy(), reference.row(tensor).cpu().numpy()
        exact = [Column.COUNT, Column.NONFINITE, Column.ZEROS, Column.MIN, Column.MAX]
        assert np.array_equal(got[exact], want[exact]), f"{i}: {got} {want}"
        count, mean, m2 = want[[Column.COUNT, Column.MEAN, Column.M2]]
        std = np.sqrt(m2 / max(count, 1))
        # The reference itself rounds its mean to 1e-16.
        rounding = count * (1e-14 * max(abs(want[Column.MIN]), abs(want[Column.MAX]))) ** 2 if count else 0.0
        assert abs(got[Column.M2] - m2) <= 1e-5 * m2 + rounding, f"{i}: M2 {got[Column.M2]} {m2}"
        assert abs(got[Column.MEAN] - mean) <= 1e-5 * max(abs(mean), 0.01 * std), f"{i}: {got[Column.MEAN]} {mean}"
        assert torch.equal(found.histogram[i], reference.histogram(tensor).cpu()), i
        sums = reference.sketch(tensor, ids[i]).cpu()
        if sums.abs().max() < 1e37:
            size = np.sqrt((m2 + count * mean**2) / 256)
            assert (found.sketch[i] - sums).abs().max() <= 1e-5 * size + 1e-44, i
