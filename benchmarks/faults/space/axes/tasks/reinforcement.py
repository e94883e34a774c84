"""Learning from reward: a bandit with contexts, by policy gradient, and values by a target network."""

import copy

import torch
from benchmarks.faults.space.axes.shapes import Shape
from benchmarks.faults.space.axes.tasks.problem import NUM_VALIDATION, Problem, generator
from benchmarks.faults.space.recipe import Training
from torch import Tensor, nn
from torch.nn import functional

ACTIONS = 4
STATES = 24
DISCOUNT = 0.8


def bandit(training: Training) -> Problem:
    """Which of four arms pays in a context; only the arm that was tried tells its reward."""
    draw, data = generator(training), training.data
    contexts = torch.randn(data.num + NUM_VALIDATION, data.size, generator=draw)
    first, second = torch.randn(data.size, 8, generator=draw), torch.randn(8, ACTIONS, generator=draw)

    def rewards(x: Tensor) -> Tensor:
        return torch.tanh(torch.tanh(x @ first) @ second)

    sampler = torch.Generator().manual_seed(training.randomness + 3)

    def answer(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            tried = torch.multinomial(torch.softmax(model(x).float(), -1).nan_to_num(1 / ACTIONS), 1, generator=sampler)
        noise = 0.2 * data.noise * torch.randn(tried.shape, generator=sampler)
        gained = rewards(x).gather(1, tried) + noise
        return torch.cat([tried.float(), gained - gained.mean()], 1)

    def loss(model: nn.Module, x: Tensor, y: Tensor, reduction: str) -> Tensor:
        chances = torch.log_softmax(model(x), -1)
        gain = -chances.gather(1, y[:, :1].long())[:, 0] * y[:, 1]
        return gain.mean() if reduction == "mean" else gain.sum()

    held = contexts[data.num :]
    best, mean = rewards(held).max(1).values.mean(), rewards(held).mean()

    def score(model: nn.Module) -> float:
        gained = (torch.softmax(model(held).float(), -1) * rewards(held)).sum(1).mean()
        return float((best - gained) / (best - mean))

    nothing = torch.zeros(len(contexts), 2)
    return Problem(shape=Shape(kind="vector", dim=data.size, outputs=ACTIONS), inputs=contexts[: data.num],
                   targets=nothing[: data.num], val_inputs=held, val_targets=nothing[data.num :], trivial=1.0,
                   loss=loss, score=score, answer=answer)  # fmt: skip


def values(training: Training) -> Problem:
    """The worth of actions in a random world of 24 states, from moves seen, by a target network."""
    draw, data = generator(training), training.data
    features = torch.randn(STATES, data.size, generator=draw)
    following = torch.randint(STATES, (STATES, ACTIONS), generator=draw)
    rewards = torch.randn(STATES, ACTIONS, generator=draw)
    true = torch.zeros(STATES, ACTIONS)
    for _ in range(100):
        true = rewards + DISCOUNT * true.max(1).values[following]
    num = data.num + NUM_VALIDATION
    states = torch.randint(STATES, (num,), generator=draw)
    actions = torch.randint(ACTIONS, (num,), generator=draw)
    gained = rewards[states, actions] + 0.1 * data.noise * torch.randn(num, generator=draw)
    moves = torch.stack([actions.float(), gained, following[states, actions].float()], 1)
    slow: list[nn.Module] = []

    def copy_model(model: nn.Module) -> None:
        slow[:] = [copy.deepcopy(model).eval()]

    def loss(model: nn.Module, x: Tensor, y: Tensor, reduction: str) -> Tensor:
        with torch.no_grad():
            later = slow[0](features[y[:, 2].long()]).max(1).values
        found = model(x).gather(1, y[:, :1].long())[:, 0]
        return functional.smooth_l1_loss(found, y[:, 1] + DISCOUNT * later, reduction=reduction)

    def score(model: nn.Module) -> float:
        return float((model(features) - true).square().mean() / true.var())

    inputs = features[states]
    return Problem(shape=Shape(kind="vector", dim=data.size, outputs=ACTIONS), inputs=inputs[: data.num],
                   targets=moves[: data.num], val_inputs=inputs[data.num :], val_targets=moves[data.num :], trivial=1.0,
                   loss=loss, score=score, target_network=copy_model)  # fmt: skip
