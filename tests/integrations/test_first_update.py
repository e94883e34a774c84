"""Whether a script that has no optimiser has updated its weights."""

import contextlib

import pytest
import torch
from torch import nn

from sonde.integrations.first_update import FirstUpdate


@pytest.fixture
def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))


def differentiate(net: nn.Module, first: FirstUpdate) -> None:
    net(torch.randn(16, 8)).square().mean().backward()
    first.differentiated([net])


def adam(net: nn.Module) -> None:
    for p in net.parameters():
        assert p.grad is not None
        p.data.sub_(0.01 * p.grad / (p.grad.abs() + 1e-8))
        p.grad.zero_()


def decayed(net: nn.Module) -> None:
    for p in net.parameters():
        assert p.grad is not None
        p.data = p.data * 0.9999 - 0.1 * p.grad


def uphill(net: nn.Module) -> None:
    for p in net.parameters():
        assert p.grad is not None
        p.data.add_(p.grad, alpha=0.1)


def exploded(net: nn.Module) -> None:
    for p in net.parameters():
        p.data.fill_(torch.nan)


@pytest.mark.parametrize("update", [adam, decayed, uphill, exploded])
def test_updates_with_the_gradients_are_found(net: nn.Module, update: object) -> None:
    first = FirstUpdate()
    differentiate(net, first)
    assert not first.has_come()
    assert callable(update)
    update(net)
    assert first.has_come()
    assert first.tracked()


def test_weights_that_are_set_otherwise_are_no_update(net: nn.Module) -> None:
    first = FirstUpdate()
    assert not first.has_come()
    for _ in range(3):
        differentiate(net, first)
        net.load_state_dict(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2)).state_dict())
        assert not first.has_come()


def test_gradients_are_added_up_until_the_update(net: nn.Module) -> None:
    first = FirstUpdate()
    differentiate(net, first)
    weights = [p.detach().clone() for p in net.parameters()]
    differentiate(net, first)
    gradients = [p.grad.clone() for p in net.parameters() if p.grad is not None]
    adam(net)
    assert first.has_come()
    with first.as_before() as is_known:
        assert is_known
        for p, weight, gradient in zip(net.parameters(), weights, gradients, strict=True):
            assert torch.equal(p, weight)
            assert p.grad is not None
            assert torch.equal(p.grad, gradient)


def test_weights_and_gradients_come_back_as_the_same_objects(net: nn.Module) -> None:
    first = FirstUpdate()
    differentiate(net, first)
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1e-3)
    adam(net)
    assert first.has_come()
    parameter = next(net.parameters())
    parameter.grad = None
    before = [(p.data_ptr(), p._version, p.grad, p.detach().clone()) for p in net.parameters()]
    with contextlib.suppress(ZeroDivisionError), first.as_before():
        first.clip_again()
        raise ZeroDivisionError
    for p, (place, version, gradient, weight) in zip(net.parameters(), before, strict=True):
        assert (p.data_ptr(), p._version) == (place, version)
        assert p.grad is gradient
        assert torch.equal(p, weight)
