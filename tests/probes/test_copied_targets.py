"""Whether a language model is asked for the tokens that it is given."""

from collections.abc import Callable

import pytest
import torch
from tests.probes.preflight_loop import Loop
from torch import Tensor, nn
from torch.nn import functional

TOKENS = 20


class Language(nn.Module):
    """Logits of each place, by an embedding and a recurrent layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.layer = nn.Embedding(TOKENS, 8), nn.GRU(8, 8, batch_first=True)
        self.head = nn.Linear(8, TOKENS)

    def forward(self, tokens: Tensor, others: Tensor | None = None) -> Tensor:
        if others is not None:
            tokens = tokens + 0 * others
        logits: Tensor = self.head(self.layer(self.embedding(tokens))[0])
        return logits


def flat(logits: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(logits.reshape(-1, TOKENS), targets.reshape(-1))


def checks(
    given: Callable[[Tensor], tuple[Tensor, ...]],
    wanted: Callable[[Tensor], Tensor],
    loss_of: Callable[[Tensor, Tensor], Tensor] = flat,
    steps: int = 6,
) -> Loop:
    torch.manual_seed(0)
    model = Language()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loop = Loop(model, optimizer)
    for _ in range(steps):
        tokens = torch.randint(0, TOKENS, (4, 12))
        optimizer.zero_grad()
        loss = loss_of(model(*given(tokens)), wanted(tokens))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        loop.close_step(loss)
    loop.close()
    return loop


def whole(tokens: Tensor) -> tuple[Tensor, ...]:
    return (tokens,)


def masked(tokens: Tensor) -> Tensor:
    """Targets of a sixth of the places; the model sees them all the same."""
    return torch.where(torch.arange(12) % 6 == 0, tokens, -100)


@pytest.mark.parametrize(
    "loss_of", [flat, lambda logits, targets: functional.cross_entropy(logits.mT, targets)], ids=["flat", "images"]
)
@pytest.mark.parametrize("wanted", [lambda tokens: tokens, lambda tokens: tokens.clone()], ids=["same", "copy"])
def test_tokens_that_are_their_own_targets_are_told_at_the_third_step(
    loss_of: Callable[[Tensor, Tensor], Tensor], wanted: Callable[[Tensor], Tensor]
) -> None:
    loop = checks(whole, wanted, loss_of)
    (fact,) = loop.facts["targets-are-inputs"]
    assert loop.said_at["targets-are-inputs"] <= 3
    assert fact["value"] == 1.0
    assert fact["num"] == 48
    assert fact["line"].startswith("test_copied_targets.py:")


def test_only_places_that_the_loss_counts_are_compared() -> None:
    def padded(tokens: Tensor) -> Tensor:
        return torch.where(torch.arange(12) < 10, tokens, -100)

    (fact,) = checks(whole, padded).facts["targets-are-inputs"]
    assert fact["num"] == 40


@pytest.mark.parametrize(
    ("given", "wanted", "loss_of"),
    [
        pytest.param(lambda t: (t[:, :-1],), lambda t: t[:, 1:], flat, id="shifted"),
        pytest.param(whole, lambda t: t.roll(-1, 1), flat, id="rolled"),
        pytest.param(
            whole, lambda t: t, lambda logits, t: flat(logits[:, :-1], t[:, 1:]), id="shifted by the loss itself"
        ),
        pytest.param(lambda t: (t.masked_fill(torch.arange(12) % 6 == 0, 0),), masked, flat, id="masked words"),
        pytest.param(whole, masked, flat, id="too few places"),
        pytest.param(lambda t: (t, t), lambda t: t, flat, id="two inputs"),
        pytest.param(lambda t: (t.where(torch.rand(4, 12) > 0.05, 3),), lambda t: t, flat, id="noise to be taken out"),
        pytest.param(whole, lambda t: t, lambda logits, t: logits.square().mean() + 0 * t.sum(), id="another loss"),
    ],
)
def test_other_tasks_are_not_told(
    given: Callable[[Tensor], tuple[Tensor, ...]],
    wanted: Callable[[Tensor], Tensor],
    loss_of: Callable[[Tensor, Tensor], Tensor],
) -> None:
    assert "targets-are-inputs" not in checks(given, wanted, loss_of).checks()


def test_two_steps_are_not_enough() -> None:
    assert "targets-are-inputs" not in checks(whole, lambda tokens: tokens, steps=2).checks()
