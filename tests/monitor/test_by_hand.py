"""A stand-in for the optimiser where weights are updated by hand."""

import math
from pathlib import Path

import pytest
import torch
from torch import nn

import sonde
from sonde.monitor.by_hand import UpdatedByHand


def test_what_was_read_after_the_last_backward_counts(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Linear(4, 2)
    by_hand = UpdatedByHand(net.parameters())
    norms, changes = [], []
    with sonde.watch(
        net, by_hand, run=tmp_path / "run", console="quiet", settings={"doctor": "off"}, strict=True
    ) as watch:
        for i in range(8):
            for _ in range(2):  # two losses, each differentiated
                net(torch.randn(8, 4)).square().mean().backward()
                by_hand.announce()
            norms.append(math.sqrt(sum(p.grad.double().square().sum() for p in net.parameters() if p.grad is not None)))
            before = [p.detach().double().clone() for p in net.parameters()]
            for p in net.parameters():
                assert p.grad is not None
                p.data.add_(p.grad, alpha=-0.1)
                p.grad = None
            pairs = zip(net.parameters(), before, strict=True)
            changes.append(math.sqrt(sum((p.detach().double() - b).square().sum() for p, b in pairs)))
            by_hand.conclude(rate=0.1 if i % 2 else None)
            watch.step(1.0)
    run = sonde.load(tmp_path / "run")
    assert list(run.series("grad/norm").value) == pytest.approx(norms, rel=1e-5)
    assert list(run.series("lr").step) == [2, 4, 6, 8]
    update = run.series("update/norm")
    assert len(update.step)
    assert list(update.value) == pytest.approx([changes[step - 1] for step in update.step], rel=1e-5)
    assert "time/optimizer" not in run.tags()
