"""What a loss's format and graph, and the outputs it is computed of, say about where its numbers end."""

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
from tests.probes.armed import num_told
from tests.probes.preflight_loop import Loop
from torch import Tensor, nn
from torch.nn import functional

Loss = Callable[[Tensor, Tensor], Tensor]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 5))


def train(model: nn.Module, loss_of: Loss, *, steps: int = 4, lr: float = 0.01, grow: float = 1.0) -> Loop:
    """Train on random batches; `grow` multiplies the last weights at each step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    loop = Loop(model, optimizer)
    dtype = next(model.parameters()).dtype
    for _ in range(steps):
        x, y = torch.randn(32, 8, dtype=dtype), torch.randint(0, 5, (32,))
        loss = loss_of(model(x), y)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        with torch.no_grad():
            list(model.parameters())[-2].mul_(grow)
        loop.close_step(loss)
    loop.close()
    return loop


def picked(shares: Tensor, y: Tensor) -> Tensor:
    return -shares.gather(1, y[:, None])[:, 0].log().mean()


def of_softmax(out: Tensor, y: Tensor) -> Tensor:
    return picked(out.softmax(1), y)


def of_quotient(out: Tensor, y: Tensor) -> Tensor:
    return picked(out.exp() / out.exp().sum(1, keepdim=True), y)


def of_sum(out: Tensor, y: Tensor) -> Tensor:
    return (out.exp().sum(1).log() - out.gather(1, y[:, None])[:, 0]).mean()


def test_a_loss_in_float16_is_said_to_be_so_however_it_is_given() -> None:
    def summed(out: Tensor, y: Tensor) -> Tensor:
        return out.square().sum()

    assert train(net().half(), summed).facts["half-loss"] == [{"where": [], "value": 65504.0}]
    assert "half-loss" in train(net().half(), lambda out, y: summed(out, y).float()).facts
    assert "half-loss" in train(net(), lambda out, y: summed(out, y).half()).facts
    assert "half-loss" not in train(net(), summed).facts
    assert "half-loss" not in train(net().half(), lambda out, y: summed(out.float(), y)).facts
    assert "half-loss" not in train(net().bfloat16(), summed).facts


@pytest.mark.parametrize(
    ("loss_of", "of"),
    [
        (of_softmax, "softmax"),
        (of_quotient, "quotient"),
        (of_sum, "sum"),
        (lambda out, y: functional.nll_loss(out.softmax(1).log(), y), "softmax"),
        (lambda out, y: 0.1 * out.square().mean() + of_softmax(out, y), "softmax"),
    ],
)
def test_bare_logarithms_are_found(loss_of: Loss, of: str) -> None:
    assert train(net(), loss_of).facts["log-of-probabilities"] == [{"where": [], "value": of}]


@pytest.mark.parametrize(
    "loss_of",
    [
        functional.cross_entropy,
        lambda out, y: picked(out.softmax(1) + 1e-8, y),
        lambda out, y: picked(out.softmax(1).clamp(min=1e-8), y),
        lambda out, y: of_sum(out - out.amax(1, keepdim=True).detach(), y),
        lambda out, y: (out.logsumexp(1) - out.gather(1, y[:, None])[:, 0]).mean(),
        lambda out, y: (1 + out.square()).log().mean(),
    ],
)
def test_logarithms_that_something_guards_are_not(loss_of: Loss) -> None:
    assert "log-of-probabilities" not in train(net(), loss_of).facts


@pytest.mark.parametrize(("loss_of", "which"), [(of_softmax, "spread"), (of_quotient, None), (of_sum, "largest")])
def test_outputs_that_run_towards_the_end_of_exponentials_are_found_before_they_are_there(
    loss_of: Loss, which: str | None
) -> None:
    loop = train(net(), loss_of, steps=20, grow=1.4)
    (fact,) = loop.facts["probabilities-vanish"]
    assert 0.6 * fact["limit"] < fact["value"]
    assert which is None or fact["which"] == which
    assert fact["limit"] == pytest.approx(103.28 if fact["which"] == "spread" else 88.72, abs=0.01)


def test_they_are_found_after_the_first_steps_as_well() -> None:
    loop = train(net(), of_softmax, steps=160, grow=1.04)
    assert loop.said_at["probabilities-vanish"] > 40


def test_models_that_give_probabilities_are_judged_by_the_smallest() -> None:
    loop = train(net().append(nn.Softmax(1)), picked, steps=20, grow=1.4)
    assert loop.facts["probabilities-vanish"][0]["which"] == "spread"


def test_large_outputs_that_stay_are_not() -> None:
    model = net()
    with torch.no_grad():
        model[2].get_parameter("weight").mul_(300)
    assert "probabilities-vanish" not in train(model, of_softmax, steps=25, lr=1e-6).facts


def test_masked_classes_are_not_near_anything() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.calls = net(), 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            out: Tensor = self.inner(x)
            mask = torch.zeros(5)
            mask[4] = -torch.inf if self.calls > 5 else 0.0
            return out + mask

    def of_some(out: Tensor, y: Tensor) -> Tensor:
        return of_softmax(out, y.clamp(max=3))

    assert "probabilities-vanish" not in train(Masked(), of_some, steps=20).facts


def test_outputs_that_the_loss_does_not_exponentiate_are_not_looked_at() -> None:
    loop = train(net(), lambda out, y: of_softmax(functional.normalize(out), y), steps=20, grow=1.4)
    assert "log-of-probabilities" in loop.facts
    assert "probabilities-vanish" not in loop.facts


def test_training_is_the_same_bit_for_bit_and_no_hook_stays() -> None:
    watched, alone = net(), net()
    alone.load_state_dict(copy.deepcopy(watched.state_dict()))
    torch.manual_seed(1)
    train(watched, of_softmax, steps=35)
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.01)
    for _ in range(35):
        x, y = torch.randn(32, 8), torch.randint(0, 5, (32,))
        optimizer.zero_grad()
        of_softmax(alone(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(watched.parameters(), alone.parameters(), strict=True))
    assert num_told(watched) == 0
