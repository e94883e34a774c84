"""Kinds of evaluations between and within steps."""

from typing import Any

import torch
from tests.monitor.setups.models import Attending, Encoder, frozen, mlp, shut
from tests.monitor.setups.setup import Batch, Compile, Setup, adam, evaluation, loss_of, plain, register, train_on
from torch import Tensor, nn


@register("evaluation: in inference mode")
def _inference(_: Compile) -> Setup:
    net = Encoder()
    return plain(net, evaluate=evaluation(net, guard=torch.inference_mode))


@register("evaluation: with gradients on, for the inputs")
def _saliency(_: Compile) -> Setup:
    net = Attending()

    def evaluate(batch: Batch) -> Any:
        x = batch[0].clone().requires_grad_()
        net.eval()
        (gradient,) = torch.autograd.grad(loss_of(net, (x, batch[1])), x)
        net.train()
        return gradient.abs().sum()

    return plain(net, evaluate=evaluate)


@register("evaluation: with gradients on, of a frozen encoder")
def _frozen_evaluation(_: Compile) -> Setup:
    net = frozen()
    net.requires_grad_(False)
    net.head.requires_grad_(True)
    return plain(net, evaluate=evaluation(net, guard=torch.enable_grad))


@register("evaluation: a layer of the encoder by itself")
def _layer(_: Compile) -> Setup:
    torch.manual_seed(1)
    net = nn.TransformerEncoderLayer(6, 2, 12, 0.1, batch_first=True)

    def call(x: Tensor) -> Any:
        return net(torch.stack([x, x.roll(1, 1), x.roll(2, 1)], 1), src_key_padding_mask=shut(x[:, :3]))

    return plain(net, call=call)


@register("evaluation: between forward and backward")
def _between(_: Compile) -> Setup:
    net = Encoder()
    optimizer = adam(net)
    evaluated = evaluation(net)
    found: list[Tensor] = []

    def iterate(batch: Batch, _: int) -> Any:
        loss = loss_of(net, batch)
        found.append(evaluated(batch))
        return train_on(optimizer, loss)

    return plain(net, optimizer, iterate=iterate, also=lambda: found)


@register("evaluation: dropout left on, many times")
def _monte_carlo(_: Compile) -> Setup:
    net = mlp()

    def evaluate(batch: Batch) -> Any:
        with torch.no_grad():
            return torch.stack([loss_of(net, batch) for _ in range(3)]).std()

    return plain(net, evaluate=evaluate)
