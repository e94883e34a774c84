"""Telling that weights were changed by hand, however they lie in memory."""

import pytest
import torch
from torch import nn

from sonde.integrations.first_update import FirstUpdate
from sonde.integrations.hand_updates import HandUpdates
from sonde.monitor.by_hand import UpdatedByHand


def descend(net: nn.Module, style: str) -> None:
    for p in net.parameters():
        assert p.grad is not None
        if style == "data":
            p.data.add_(p.grad, alpha=-0.1)
        elif style == "in place":
            with torch.no_grad():
                p.sub_(0.1 * p.grad)
        else:
            p.data = p.data - 0.1 * p.grad


@pytest.mark.parametrize("style", ["data", "in place", "assigned"])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_every_update_is_seen_and_nothing_else_is(style: str, memory_format: torch.memory_format) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.Conv2d(4, 2, 3, bias=False))
    for p in net.parameters():
        p.data = p.data.contiguous(memory_format=memory_format)
    first = FirstUpdate()

    def differentiate() -> None:
        net(torch.randn(2, 3, 8, 8)).square().mean().backward()

    differentiate()
    first.differentiated([net])
    descend(net, style)
    assert first.has_come()
    by_hand = HandUpdates(UpdatedByHand(net.parameters()), first.tracked(), is_silent=first.is_silent())
    for i in range(4):
        net.zero_grad()
        by_hand.begins()
        assert not by_hand.is_touched()
        differentiate()
        assert by_hand.is_touched()
        by_hand.differentiated()
        assert not by_hand.has_come()
        if i % 2:
            descend(net, style)
            assert by_hand.has_come()
            by_hand.conclude()
            assert by_hand.optimizer.rate == 0.1
            assert not by_hand.has_come()
