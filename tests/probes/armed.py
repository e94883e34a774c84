"""A probe at work, without a monitor."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from sonde.probes.probe import Probe


def iteration(probe: Probe, work: Callable[[], Any], slots: Sequence[int] | None = None) -> dict[str, float]:
    """One iteration of a training loop with some slots armed (all where left out): what was found, by tag."""
    probe.arm(range(probe.num_slots) if slots is None else slots)
    work()
    found: dict[str, float] = {}
    for reading in probe.collect():
        numbers = torch.cat(
            [torch.empty(0, dtype=torch.float64), *(t.detach().double().reshape(-1) for t in reading.tensors)]
        )
        for row in reading.report(numbers.numpy()):
            assert len(row.values) == row.columns.width
            found.update(zip(row.columns.tags, map(float, row.values), strict=True))
    return found
