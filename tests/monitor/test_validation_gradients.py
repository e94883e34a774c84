"""The gradient of a validation batch: its norm is right, and asking for it changes nothing."""

import copy
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

import sonde

from . import loops


def trained(run: Path, *, asks: bool) -> tuple[list[Tensor], list[float]]:
    """The weights and losses of a training with dropout and running statistics, and what the norms should be."""
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.Dropout(0.5), nn.Linear(12, 3))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    held_out = next(loops.batches(1, seed=9))
    losses, wanted = [], []
    with loops.watching(net, optimizer, run, settings={"doctor": "off"}, console="quiet") as watch:
        for batch in watch.data(loops.batches(6)):
            loss = loops.loss_of(net, batch)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
            watch.step(loss)
            if asks and len(losses) % 2:
                net.eval()
                double = copy.deepcopy(net).double()
                found = torch.autograd.grad(
                    nn.functional.cross_entropy(double(held_out[0].double()), held_out[1]), list(double.parameters())
                )
                wanted.append(loops.norm_of(list(found)))
                watch.evaluate(loss=1.0, gradient_of=lambda: loops.loss_of(net, held_out))
                net.train()
                watch.evaluate(gradient_of=lambda: loops.loss_of(net, held_out))  # draws random numbers
            optimizer.zero_grad()
    return [*losses, *(tensor.clone() for tensor in net.state_dict().values())], wanted


class Trained(NamedTuple):
    run: Path
    tensors: list[Tensor]
    wanted: list[float]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("asked") / "run"
    return Trained(folder, *trained(folder, asks=True))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("plain") / "run"
    return Trained(folder, *trained(folder, asks=False))


def test_the_norm_and_its_ratio_are_those_of_a_plain_backward(asked: Trained) -> None:
    run = sonde.load(asked.run)
    norms = run.series("val/grad_norm")
    assert norms.value[::2].tolist() == pytest.approx(asked.wanted, rel=1e-4)
    own = dict(zip(run.series("grad/norm").step.tolist(), run.series("grad/norm").value, strict=True))
    ratios = [norm / own[step] for step, norm in zip(norms.step.tolist(), norms.value, strict=True)]
    assert run.series("val/grad_norm_ratio").value.tolist() == pytest.approx(ratios, rel=1e-5)


def test_the_training_is_bit_identical(asked: Trained, plain: Trained) -> None:
    for one, other in zip(asked.tensors, plain.tensors, strict=True):
        assert torch.equal(one, other)


def test_nothing_of_the_validation_batch_is_taken_for_the_training(asked: Trained, plain: Trained) -> None:
    found, wanted = (sonde.load(one.run).series("act/mean@0") for one in (asked, plain))
    own = dict(zip(wanted.step.tolist(), wanted.value.tolist(), strict=True))
    assert len(found.step)
    assert all(own[step] == value for step, value in zip(found.step.tolist(), found.value.tolist(), strict=True))
