"""Tiny trainings for the tests of the monitor."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import sonde
from sonde.core.cadences import every
from sonde.monitor.watch import Watch, watch
from sonde.probes.cadences import Cadences

ALWAYS = Cadences(
    layers=every(1),
    cosines=every(1),
    rotating=every(1),
    histograms=every(1),
    blocks=every(1),
    process=every(1),
    resources=every(1),
    batches=every(1),
    spectra=every(1),
)

Batch = tuple[Tensor, Tensor]


def model(*, dropout: float = 0.0, inplace: bool = False) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 12), nn.ReLU(inplace=inplace), nn.Dropout(dropout), nn.Linear(12, 3))


def batches(num: int, *, size: int = 8, seed: int = 2) -> Iterator[Batch]:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(num):
        yield torch.randn(size, 6, generator=generator), torch.randint(0, 3, (size,), generator=generator)


def loss_of(net: Callable[[Tensor], Tensor], batch: Batch) -> Any:  # a tensor; torch's `backward` has no types
    return nn.functional.cross_entropy(net(batch[0]), batch[1])


def watching(net: Any, optimizer: Any, run: Path, **settings: Any) -> Watch:
    return watch(net, optimizer, run=run, strict=True, **{"cadence": ALWAYS, "budget": math.inf, **settings})


def values(run: Path, tag: str) -> list[float]:
    """A series' values; it is measured at every step from the first on."""
    series = sonde.load(run).series(tag)
    np.testing.assert_array_equal(series.step, np.arange(1, len(series.step) + 1))
    return [float(value) for value in series.value]


def norm_of(tensors: list[Tensor]) -> float:
    """The L2 norm of all tensors together, in float64."""
    parts = [torch.view_as_real(t.detach()) if t.is_complex() else t.detach() for t in tensors]
    return float(torch.cat([part.double().reshape(-1) for part in parts]).norm())


def gradients(net: nn.Module) -> list[Tensor]:
    return [p.grad.detach().clone() for p in net.parameters() if p.grad is not None]
