"""A probe at work, without a monitor."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from sonde.probes.calls import CALLS
from sonde.probes.probe import Probe


def num_told(net: nn.Module) -> int:
    """Of how many of its modules somebody is told when they are called. On the modules there is nothing at any time."""
    for module in net.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
    return sum(module in CALLS for module in net.modules())


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
            if row.columns.bins == 1:
                found.update(zip(row.columns.tags, map(float, row.values), strict=True))
    return found
