"""Trainings of which a part is compiled."""

from typing import Any

import torch
from tests.monitor.setups.models import Attending, Block, Calling, Encoder, convolving, mlp
from tests.monitor.setups.setup import Batch, Compile, Setup, adam, evaluation, loss_of, plain, register, train_on
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.checkpoint import checkpoint


@register("compiled: a function, called in steps and evaluations")
def _compiled_function(compiled: Compile) -> Setup:
    net = Attending()
    return plain(net, call=compiled(lambda x: net(x)))


@register("compiled: a function, its graph whole")
def _full_graph(compiled: Compile) -> Setup:
    net = Encoder(dropout=0.0)
    return plain(net, call=compiled(lambda x: net(x), fullgraph=True))


@register("compiled: a function of evaluations alone, its graph whole")
def _compiled_evaluation(compiled: Compile) -> Setup:
    net = Attending()
    return plain(net, evaluate=evaluation(net, compiled(lambda x: net(x), fullgraph=True)))


@register("compiled: a function of evaluations alone, of a convolutional model")
def _compiled_evaluation_of_convolutions(compiled: Compile) -> Setup:
    net = convolving()
    return plain(net, evaluate=evaluation(net, compiled(lambda x: net(x), fullgraph=True)))


@register("compiled: a function that evaluates an average")
def _compiled_average(compiled: Compile) -> Setup:
    net = Attending()
    average = AveragedModel(net)
    call, optimizer = compiled(lambda x: average(x), fullgraph=True), adam(net)

    def iterate(batch: Batch, _: int) -> Any:
        loss = train_on(optimizer, loss_of(net, batch))
        average.update_parameters(net)
        return loss

    return plain(net, optimizer, iterate=iterate, evaluate=evaluation(average, call))


@register("compiled: the model")
def _compiled_model(compiled: Compile) -> Setup:
    net = Attending()
    whole = compiled(net)
    return plain(whole)


@register("compiled: the model, its graph whole")
def _compiled_whole(compiled: Compile) -> Setup:
    whole = compiled(mlp(0.0), fullgraph=True)
    return plain(whole)


@register("compiled: the model, unknown to us")
def _hidden(compiled: Compile) -> Setup:
    net = Attending()
    return plain(net, call=compiled(net))


@register("compiled: the model in place")
def _in_place(compiled: Compile) -> Setup:
    net = Attending()
    compiled(net, in_place=True)
    return plain(net)


@register("compiled: a block")
def _compiled_block(compiled: Compile) -> Setup:
    net = Attending()
    net.blocks[1] = compiled(net.blocks[1], fullgraph=True)
    return plain(net)


@register("compiled: each block in place")
def _compiled_blocks(compiled: Compile) -> Setup:
    net = Attending()
    for block in net.blocks:
        compiled(block, in_place=True)
    return plain(net)


@register("compiled: a small function inside attention")
def _compiled_inside(compiled: Compile) -> Setup:
    turn = compiled(lambda x: x.roll(1, -1) * 1.5, fullgraph=True)
    net = Attending(Block(around=lambda f, x: turn(f(turn(x)))), Block(by_hand=True))
    return plain(net)


@register("compiled: a function that calls a part of the model")
def _compiled_part(compiled: Compile) -> Setup:
    net = Attending()
    blocks = compiled(lambda x: net.blocks(x), fullgraph=True)
    return plain(net, call=lambda x: net.head(blocks(net.embed(x.unsqueeze(-1))).mean(1)))


@register("compiled: the loss and its backward pass")
def _compiled_loss(compiled: Compile) -> Setup:
    net = mlp(0.0)
    optimizer, compiled_loss = adam(net), compiled(lambda batch: loss_of(net, batch), fullgraph=True)
    return plain(net, optimizer, iterate=lambda batch, _: train_on(optimizer, compiled_loss(batch)))


@register("compiled: the whole step")
def _compiled_step(compiled: Compile) -> Setup:
    net = mlp(0.0)
    optimizer = adam(net)
    step = compiled(lambda batch: train_on(optimizer, loss_of(net, batch)))
    return plain(net, optimizer, iterate=lambda batch, _: step(batch))


@register("compiled: the optimiser's step")
def _compiled_optimizer(compiled: Compile) -> Setup:
    net = mlp(0.0)
    optimizer = adam(net)
    step = compiled(optimizer.step)

    def iterate(batch: Batch, _: int) -> Any:
        optimizer.zero_grad()
        loss = loss_of(net, batch)
        loss.backward()
        step()
        return loss

    return plain(net, optimizer, iterate=iterate)


class Breaking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = mlp(0.0)

    def forward(self, x: Tensor) -> Any:
        y = self.body[:2](x)
        torch._dynamo.graph_break()
        return self.body[2:](y)


@register("compiled: a function with broken graphs")
def _broken(compiled: Compile) -> Setup:
    net = Breaking()
    return plain(net, call=compiled(lambda x: net(x) * 1.0))


@register("compiled: modules with a call of their own")
def _compiled_calling(compiled: Compile) -> Setup:
    net = Calling(*mlp(0.0))
    return plain(net, call=compiled(lambda x: net(x) * 1.0, fullgraph=True))


@register("compiled: modules with hooks of their own")
def _compiled_hooks(compiled: Compile) -> Setup:
    net = mlp(0.0)
    net[0].register_forward_hook(lambda module, args, output: output * 1.5)
    return plain(net, call=compiled(lambda x: net(x) * 1.0, fullgraph=True))


@register("compiled: through autograd's own compiler")
def _ahead_of_time(compiled: Compile) -> Setup:
    net = Attending()
    return plain(net, call=compiled(lambda x: net(x), backend="aot_eager", fullgraph=True))


@register("compiled: checkpoints inside")
def _compiled_checkpoint(compiled: Compile) -> Setup:
    net = Attending(Block(around=lambda f, x: checkpoint(f, x, use_reentrant=False)))
    return plain(net, call=compiled(lambda x: net(x)))


@register("compiled: batches of two sizes")
def _compiled_sizes(compiled: Compile) -> Setup:
    net = mlp(0.0)
    call, optimizer = compiled(lambda x: net(x) * 1.0), adam(net)
    return plain(
        net,
        optimizer,
        iterate=lambda batch, step: train_on(
            optimizer, loss_of(call, (batch[0][: 8 - step % 2], batch[1][: 8 - step % 2]))
        ),
    )
