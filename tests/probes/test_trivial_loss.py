"""What the best constant answer costs, against a slow search for it in float64."""

import contextlib
import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from sonde.probes.trivial_loss import TrivialLoss

from .armed import iteration, num_told

Loss = Callable[[Tensor, Tensor], Tensor]

OF_NUMBERS: dict[str, Loss] = {
    "mse": functional.mse_loss,
    "summed": lambda y, t: functional.mse_loss(y, t, reduction="sum"),
    "l1": functional.l1_loss,
    "smooth": functional.smooth_l1_loss,
    "huber": lambda y, t: functional.huber_loss(y, t, delta=0.3),
    "written out": lambda y, t: ((y - t) ** 2).mean(),
    "the other way round": lambda y, t: (t - y).pow(2).sum() / 7,
    "absolute": lambda y, t: 3 * (y - t).abs().mean(),
}
"""Each with the loss of one value that it averages, as torch defines it."""

OF_ONE: dict[str, Loss] = {
    "summed": lambda y, t: functional.mse_loss(y, t, reduction="none"),
    "mse": lambda y, t: functional.mse_loss(y, t, reduction="none"),
    "written out": lambda y, t: functional.mse_loss(y, t, reduction="none"),
    "the other way round": lambda y, t: functional.mse_loss(y, t, reduction="none"),
    "l1": lambda y, t: functional.l1_loss(y, t, reduction="none"),
    "absolute": lambda y, t: functional.l1_loss(y, t, reduction="none"),
    "smooth": lambda y, t: functional.smooth_l1_loss(y, t, reduction="none"),
    "huber": lambda y, t: functional.huber_loss(y, t, reduction="none", delta=0.3),
}


def measured(net: nn.Module, *losses: Callable[[], Tensor]) -> dict[str, float]:
    def work() -> None:
        for loss in losses:
            loss().backward()  # type: ignore[no-untyped-call]

    with contextlib.closing(TrivialLoss({"": net})) as probe:
        return iteration(probe, work)


def best_constant(of_one: Loss, targets: Tensor) -> float:
    """By trying many constants for each column."""
    found = []
    for column in targets.double().reshape(len(targets), -1).T:
        tried = torch.linspace(float(column.min()), float(column.max()), 1001, dtype=torch.float64)
        costs = of_one(tried[:, None].expand(-1, len(column)), column.expand(len(tried), -1)).mean(1)
        found.append(float(costs.min()))
    return float(np.mean(found))


@pytest.mark.parametrize("name", OF_NUMBERS)
@settings(max_examples=12)
@given(seed=st.integers(0, 10_000), columns=st.sampled_from([(), (1,), (3,), (2, 2)]))
def test_numbers_cost_what_the_best_constant_of_each_column_costs(
    name: str, seed: int, columns: tuple[int, ...]
) -> None:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(40, 5, generator=generator)
    targets = 2 * torch.randn(40, *columns, generator=generator) + 3
    net = nn.Linear(5, math.prod(columns))

    def loss() -> Tensor:
        return OF_NUMBERS[name](net(inputs).reshape(targets.shape), targets)

    found = measured(net, loss)
    expected = best_constant(OF_ONE[name], targets) * 40 / 39
    # Of Huber's losses the mean or the median is taken, whichever is better: a little above the best one.
    tolerance = 0.05 if name in ("smooth", "huber") else 1e-3
    assert found["loss/trivial"] == pytest.approx(expected, rel=tolerance)
    answers = net(inputs).detach().reshape(targets.shape).double()
    cost = float(OF_ONE[name](answers, targets.double()).mean())
    assert found["loss/relative"] == pytest.approx(cost / found["loss/trivial"], rel=1e-4)
    zeros = float(OF_ONE[name](torch.zeros_like(answers), targets.double()).mean())
    assert found["loss/zeros"] == pytest.approx(zeros, rel=1e-4)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 10_000),
    places=st.sampled_from([(), (6,), (2, 3)]),
    reduction=st.sampled_from(["mean", "sum"]),
    ignored=st.booleans(),
)
def test_classes_cost_their_entropy(seed: int, places: tuple[int, ...], reduction: str, ignored: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(32, 5, generator=generator)
    targets = torch.randint(0, 3, (32, *places), generator=generator)
    if ignored:
        targets.reshape(-1)[::4] = -100
    net = nn.Linear(5, 3 * math.prod(places))

    def loss() -> Tensor:
        logits = net(inputs).reshape(32, 3, *places)
        return functional.cross_entropy(logits, targets, reduction=reduction)

    found = measured(net, loss)
    kept = targets[targets != -100]
    shares = np.bincount(kept.numpy(), minlength=3) / len(kept)
    entropy = -sum(share * math.log(share) for share in shares if share > 0)
    corrected = min(entropy + (np.count_nonzero(shares) - 1) / (2 * len(kept)), math.log(3))
    assert found["loss/trivial"] == pytest.approx(corrected)
    cost = functional.cross_entropy(net(inputs).reshape(32, 3, *places), targets).item()
    assert found["loss/relative"] == pytest.approx(cost / corrected, rel=1e-4)
    assert found["loss/zeros"] == pytest.approx(math.log(3))


@pytest.mark.parametrize("with_logits", [False, True])
def test_two_classes_cost_the_entropy_of_each_column(with_logits: bool) -> None:
    targets = (torch.arange(30)[:, None] % torch.tensor([2, 5]) == 0).float()
    net = nn.Linear(4, 2)
    inputs = torch.randn(30, 4)

    def loss() -> Tensor:
        if with_logits:
            return functional.binary_cross_entropy_with_logits(net(inputs), targets)
        return functional.binary_cross_entropy(net(inputs).sigmoid(), targets)

    found = measured(net, loss)
    entropies = [-(p * math.log(p) + (1 - p) * math.log(1 - p)) for p in (0.5, 0.2)]
    assert found["loss/trivial"] == pytest.approx(np.mean(entropies) + 1 / 60)
    assert found["loss/relative"] == pytest.approx(loss().item() / found["loss/trivial"], rel=1e-4)
    assert found["loss/zeros"] == pytest.approx(math.log(2))


def test_a_trained_model_is_below_one_and_a_wild_one_above() -> None:
    inputs = torch.randn(200, 4)
    targets = inputs.sum(1, keepdim=True)
    net = nn.Linear(4, 1, bias=False)
    with torch.no_grad():
        net.weight.fill_(1.0).add_(0.01)
    assert measured(net, lambda: functional.mse_loss(net(inputs), targets))["loss/relative"] < 0.01
    with torch.no_grad():
        net.weight.fill_(-3.0)
    assert measured(net, lambda: functional.mse_loss(net(inputs), targets))["loss/relative"] > 5


def test_micro_batches_count_alike() -> None:
    net = nn.Linear(3, 1)
    batches = [(torch.randn(8, 3), torch.randn(8, 1)) for _ in range(3)]

    def loss(x: Tensor, t: Tensor) -> Callable[[], Tensor]:
        return lambda: functional.mse_loss(net(x), t) / 3

    alone = [measured(net, loss(x, t))["loss/trivial"] for x, t in batches]
    together = measured(net, *(loss(x, t) for x, t in batches))["loss/trivial"]
    assert together == pytest.approx(np.mean(alone))


def _weighted(net: nn.Module) -> Tensor:
    return functional.cross_entropy(net(torch.randn(8, 3)), torch.arange(8) % 3, weight=torch.ones(3))


def _smoothed(net: nn.Module) -> Tensor:
    return functional.cross_entropy(net(torch.randn(8, 3)), torch.arange(8) % 3, label_smoothing=0.1)


def _summed_terms(net: nn.Module) -> Tensor:
    y = net(torch.randn(8, 3))
    loss: Tensor = functional.mse_loss(y, torch.randn(8, 3)) + y.pow(2).mean()
    return loss


def _policy(net: nn.Module) -> Tensor:
    y: Tensor = net(torch.randn(8, 3))
    return -(y.log_softmax(-1)[:, 0] * torch.randn(8)).mean()


def _rare(net: nn.Module) -> Tensor:
    return functional.cross_entropy(torch.cat([net(torch.randn(2, 3))] * 100, 1), torch.tensor([4, 77]))


def _between_answers(net: nn.Module) -> Tensor:
    y: Tensor = net(torch.randn(8, 3)) - net(torch.randn(8, 3))
    return y.pow(2).mean()


def _penalty(net: nn.Module) -> Tensor:
    hidden: Tensor = net(torch.randn(8, 3)) * 2
    return (hidden - torch.randn(8, 3)).pow(2).mean()  # not of the model's output: y is not known


@pytest.mark.parametrize("loss", [_weighted, _smoothed, _summed_terms, _policy, _rare, _between_answers, _penalty])
def test_what_has_no_constant_answer_is_not_measured(loss: Callable[[nn.Module], Tensor]) -> None:
    net = nn.Linear(3, 3)
    probe = TrivialLoss({"": net})
    for _ in range(10):
        assert iteration(probe, lambda: loss(net).backward()) == {}  # type: ignore[no-untyped-call]
    said = probe.not_measured()
    probe.close()
    assert said == {} or set(said) == set(probe.yields)
    assert bool(said) or loss is _rare  # its loss is known, but not its entropy


def test_a_checkpointed_loss_is_left_alone() -> None:
    net, inputs, targets = nn.Linear(3, 1), torch.randn(8, 3), torch.randn(8, 1)

    def loss() -> Any:
        return checkpoint(lambda x: functional.mse_loss(net(x), targets), inputs, use_reentrant=False)

    assert measured(net, loss) == {}
    assert net.weight.grad is not None


def test_what_was_heard_is_let_go() -> None:
    net = nn.Linear(3, 1)
    probe = TrivialLoss({"": net})
    probe.arm([0])
    assert num_told(net) == 1
    probe.collect()
    assert num_told(net) == 0
    probe.close()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("name", [*OF_NUMBERS, "classes", "two classes"])
def test_a_gpu_gives_the_same_numbers_and_nothing_waits_for_it(name: str) -> None:
    net, inputs = nn.Linear(5, 4), torch.randn(64, 5)
    targets = torch.randint(4, (64,)) if name == "classes" else torch.rand(64, 4).round(decimals=1)
    named: dict[str, Loss] = {
        **OF_NUMBERS,
        "classes": functional.cross_entropy,
        "two classes": functional.binary_cross_entropy_with_logits,
    }

    def found(device: str) -> Tensor:
        there, x, t = copy.deepcopy(net).to(device), inputs.to(device), targets.to(device)
        probe = TrivialLoss({"": there})
        torch.cuda.set_sync_debug_mode("error")
        torch.use_deterministic_algorithms(True)
        try:
            probe.arm([0])
            named[name](there(x), t).backward()  # type: ignore[no-untyped-call]
            (reading,) = probe.collect()
        finally:
            torch.cuda.set_sync_debug_mode("default")
            torch.use_deterministic_algorithms(False)
            probe.close()
        return reading.tensors[0].cpu()

    assert torch.allclose(found("cuda"), found("cpu"), rtol=1e-4)
