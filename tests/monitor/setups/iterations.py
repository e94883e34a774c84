"""Kinds of loops."""

import copy
from collections.abc import Generator
from typing import Any

import torch
from tests.monitor import loops
from tests.monitor.setups.models import Attending, Block, Encoder, convolving, mlp
from tests.monitor.setups.setup import Batch, Compile, Setup, adam, evaluation, loss_of, plain, register, sgd, train_on
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.utils.data import DataLoader, TensorDataset


@register("loop: clipping of the norm")
def _clipped(_: Compile) -> Setup:
    net = mlp()
    optimizer = sgd(net)

    def iterate(batch: Batch, step: int) -> Any:
        optimizer.zero_grad()
        loss = loss_of(net, batch)
        loss.backward()
        clip_grad_norm_(net.parameters(), 0.1)
        if step % 2:
            clip_grad_value_(net.parameters(), 0.01)
        optimizer.step()
        return loss

    return plain(net, optimizer, iterate=iterate)


@register("loop: accumulation")
def _accumulated(_: Compile) -> Setup:
    net = Encoder()
    optimizer = adam(net)

    def iterate(batch: Batch, step: int) -> Any:
        loss = loss_of(net, batch) / 3
        loss.backward()
        if step % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()
        return loss

    return plain(net, optimizer, iterate=iterate)


@register("loop: bfloat16 by autocast")
def _autocast(_: Compile) -> Setup:
    net = Attending()
    optimizer = adam(net)

    def iterate(batch: Batch, _: int) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(net, batch)
        return train_on(optimizer, loss)

    return plain(net, optimizer, iterate=iterate)


@register("loop: float16 with a scaler")
def _scaled(_: Compile) -> Setup:
    net, scaler = mlp(), torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=3)
    optimizer = adam(net)

    def iterate(batch: Batch, _: int) -> Any:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = loss_of(net, batch)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss

    return plain(net, optimizer, iterate=iterate, also=lambda: [torch.tensor(scaler.get_scale())])


@register("loop: one-cycle schedule")
def _scheduled(_: Compile) -> Setup:
    net = mlp()
    optimizer = sgd(net)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=40)

    def iterate(batch: Batch, _: int) -> Any:
        loss = train_on(optimizer, loss_of(net, batch))
        schedule.step()
        return loss

    return plain(net, optimizer, iterate=iterate, also=lambda: [torch.tensor(schedule.get_last_lr())])


@register("loop: the rate follows the evaluation")
def _plateau(_: Compile) -> Setup:
    net = Encoder()
    optimizer = adam(net)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    evaluated = evaluation(net)

    def evaluate(batch: Batch) -> Any:
        loss = evaluated(batch)
        schedule.step(float(loss.mean()))
        return loss

    return plain(net, optimizer, evaluate=evaluate, also=lambda: [torch.tensor(schedule.get_last_lr())])


def _penalised(net: nn.Module, optimizer: Any, batch: Batch) -> Any:
    x = batch[0].clone().requires_grad_()
    loss = loss_of(net, (x, batch[1]))
    (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
    return train_on(optimizer, loss + gradient.square().sum())


@register("loop: gradient penalty, a double backward")
def _double(_: Compile) -> Setup:
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer = adam(net)
    return plain(net, optimizer, iterate=lambda batch, _: _penalised(net, optimizer, batch))


@register("loop: gradient penalty of attention")
def _double_attention(_: Compile) -> Setup:
    net = Attending(Block(by_hand=True), Block(by_hand=True))
    optimizer = adam(net)
    return plain(net, optimizer, iterate=lambda batch, _: _penalised(net, optimizer, batch))


@register("loop: an inner step that is differentiated")
def _meta(_: Compile) -> Setup:
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer = adam(net)

    def iterate(batch: Batch, _: int) -> Any:
        names, values = zip(*net.named_parameters(), strict=True)
        gradients = torch.autograd.grad(loss_of(net, batch), values, create_graph=True)
        moved = {n: v - 0.1 * g for n, v, g in zip(names, values, gradients, strict=True)}
        return train_on(optimizer, loss_of(lambda x: torch.func.functional_call(net, moved, (x,)), batch))

    return plain(net, optimizer, iterate=iterate)


@register("loop: functional call")
def _functional(_: Compile) -> Setup:
    net = Encoder()
    weights: dict[str, Tensor] = dict(net.named_parameters())
    return plain(net, call=lambda x: torch.func.functional_call(net, weights, (x,)))


@register("loop: gradients of each sample by vmap")
def _per_sample(_: Compile) -> Setup:
    net = loops.model()
    optimizer = sgd(net)

    def one(weights: Any, x: Tensor, y: Tensor) -> Any:
        return functional.cross_entropy(torch.func.functional_call(net, weights, (x[None],)), y[None])

    def iterate(batch: Batch, _: int) -> Any:
        weights = {name: p.detach() for name, p in net.named_parameters()}
        found = torch.func.vmap(torch.func.grad(one), (None, 0, 0))(weights, *batch)
        loss = loss_of(net, batch)
        optimizer.zero_grad()
        for name, p in net.named_parameters():
            p.grad = found[name].clamp(-0.1, 0.1).mean(0)
        optimizer.step()
        return loss

    return plain(net, optimizer, iterate=iterate)


@register("loop: stacked ensemble evaluated by vmap")
def _ensemble(_: Compile) -> Setup:
    net = loops.model()

    def evaluate(batch: Batch) -> Any:
        weights, buffers = torch.func.stack_module_state([net, copy.deepcopy(net)])
        base = copy.deepcopy(net).to("meta")
        call = torch.func.vmap(lambda w, b, x: torch.func.functional_call(base, (w, b), (x,)), (0, 0, None))
        return functional.cross_entropy(call(weights, buffers, batch[0]).mean(0), batch[1]).detach()

    return plain(net, evaluate=evaluate)


@register("loop: a game of two networks")
def _game(_: Compile) -> Setup:
    torch.manual_seed(1)
    g = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 6))
    d = nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.2, inplace=True), nn.Linear(8, 1))
    og, od = torch.optim.Adam(g.parameters(), lr=0.01), torch.optim.Adam(d.parameters(), lr=0.01)

    def iterate(batch: Batch, _: int) -> Any:
        fake = g(torch.randn(len(batch[0]), 4))
        loss = functional.softplus(-d(batch[0])).mean() + functional.softplus(d(fake.detach())).mean()
        train_on(od, loss)
        train_on(og, functional.softplus(-d(fake)).mean())
        return loss

    def evaluate(batch: Batch) -> Any:
        g.eval()
        with torch.inference_mode():
            loss = d(g(torch.ones(4, 4))).mean()
        g.train()
        return loss

    return Setup(watched={"G": g, "D": d}, optimizers={"G": og, "D": od}, iterate=iterate, evaluate=evaluate)


@register("loop: student and teacher")
def _distilled(_: Compile) -> Setup:
    net = mlp()
    teacher = copy.deepcopy(net).eval()
    optimizer = adam(net)

    def iterate(batch: Batch, _: int) -> Any:
        with torch.no_grad():
            wanted = teacher(batch[0]).softmax(-1)
        return train_on(optimizer, functional.cross_entropy(net(batch[0]), wanted))

    return plain(net, optimizer, iterate=iterate)


@register("loop: two views of a batch")
def _contrastive(_: Compile) -> Setup:
    net = Encoder()
    optimizer = adam(net)

    def iterate(batch: Batch, _: int) -> Any:
        a, b = net(batch[0]), net(batch[0] + 0.1 * torch.randn_like(batch[0]))
        return train_on(optimizer, (a - b).square().mean() + functional.cross_entropy(a, batch[1]))

    return plain(net, optimizer, iterate=iterate)


@register("loop: two backward passes through one graph")
def _retained(_: Compile) -> Setup:
    net = mlp()
    optimizer = adam(net)

    def iterate(batch: Batch, _: int) -> Any:
        optimizer.zero_grad()
        output = net(batch[0])
        loss: Any = functional.cross_entropy(output, batch[1])
        loss.backward(retain_graph=True)
        output.square().mean().backward()
        optimizer.step()
        return loss

    return plain(net, optimizer, iterate=iterate)


@register("loop: gradients set by hand")
def _by_hand(_: Compile) -> Setup:
    net = Attending()
    optimizer = adam(net)

    def iterate(batch: Batch, _: int) -> Any:
        loss = loss_of(net, batch)
        for p, gradient in zip(net.parameters(), torch.autograd.grad(loss, list(net.parameters())), strict=True):
            p.grad = gradient.sign() * 0.1 + 0.01 * torch.randn_like(gradient)
        optimizer.step()
        return loss

    return plain(net, optimizer, iterate=iterate)


@register("loop: an attack on the inputs first")
def _adversarial(_: Compile) -> Setup:
    net = convolving()
    optimizer = sgd(net)

    def iterate(batch: Batch, _: int) -> Any:
        x = batch[0].clone().requires_grad_()
        loss_of(net, (x, batch[1])).backward()
        assert x.grad is not None
        return train_on(optimizer, loss_of(net, (batch[0] + 0.1 * x.grad.sign(), batch[1])))

    return plain(net, optimizer, iterate=iterate)


@register("loop: acting before learning")
def _acting(_: Compile) -> Setup:
    net = mlp()
    optimizer = adam(net)

    def iterate(batch: Batch, _: int) -> Any:
        with torch.no_grad():
            actions = torch.multinomial(net(batch[0]).softmax(-1), 1).squeeze(1)
        rewards = (actions == batch[1]).float()
        chosen = net(batch[0]).log_softmax(-1).gather(1, actions[:, None]).squeeze(1)
        return train_on(optimizer, -(chosen * rewards).mean())

    return plain(net, optimizer, iterate=iterate)


@register("loop: a batch that fails is left out")
def _failing(_: Compile) -> Setup:
    net = Encoder()
    optimizer = adam(net)

    def iterate(batch: Batch, step: int) -> Any:
        if step % 4 == 1:
            try:
                net(batch[0].double())
            except RuntimeError:
                pass
            else:
                raise AssertionError
        return train_on(optimizer, loss_of(net, batch))

    return plain(net, optimizer, iterate=iterate)


@register("loop: parts of the model are called, the whole never")
def _parts(_: Compile) -> Setup:
    net = nn.ModuleDict({"body": Encoder(), "head": nn.Linear(3, 3)})
    return plain(net, call=lambda x: net["head"](net["body"](x)))


@register("loop: parameters freed on the way")
def _freed(_: Compile) -> Setup:
    net = mlp()
    net[0].requires_grad_(False)
    optimizer = torch.optim.SGD(net[3].parameters(), lr=0.05)

    def iterate(batch: Batch, step: int) -> Any:
        if step == 5:
            net[0].requires_grad_(True)
            optimizer.add_param_group({"params": list(net[0].parameters()), "lr": 0.01})
        return train_on(optimizer, loss_of(net, batch))

    return plain(net, optimizer, iterate=iterate)


@register("loop: a shuffled loader")
def _loader(_: Compile) -> Setup:
    net = mlp()
    optimizer = adam(net)
    data = DataLoader(TensorDataset(*next(loops.batches(1, size=24))), batch_size=8, shuffle=True)

    def iterate(_: Batch, __: int) -> Any:
        loss: Any = None
        for batch in data:
            loss = train_on(optimizer, loss_of(net, batch))
        return loss

    return plain(net, optimizer, iterate=iterate)


@register("loop: driven by a generator")
def _generated(_: Compile) -> Setup:
    net = convolving()
    optimizer = adam(net)

    def train() -> Generator[Any, Batch, None]:
        loss = None
        while True:
            batch = yield loss
            loss = train_on(optimizer, loss_of(net, batch))

    training: Any = train()
    next(training)
    return plain(net, optimizer, iterate=lambda batch, _: training.send(batch))


@register("loop: batches of all sizes")
def _sizes(_: Compile) -> Setup:
    net = Encoder()
    optimizer = adam(net)
    return plain(
        net,
        optimizer,
        iterate=lambda batch, step: train_on(
            optimizer, loss_of(net, (batch[0][: 1 + step % 7], batch[1][: 1 + step % 7]))
        ),
    )


@register("loop: activations kept by a hook of the user's for the step")
def _features(_: Compile) -> Setup:
    net = Encoder()
    optimizer = adam(net)

    def iterate(batch: Batch, _: int) -> Any:
        kept: list[Tensor] = []
        handle = net.layers[0].register_forward_hook(lambda module, args, output: kept.append(output))
        loss = loss_of(net, batch)
        handle.remove()
        return train_on(optimizer, loss + 0.01 * kept[0].square().mean())

    return plain(net, optimizer, iterate=iterate)


@register("loop: parameters flattened into one vector and back")
def _flattened(_: Compile) -> Setup:
    net = mlp()
    optimizer = sgd(net)

    def iterate(batch: Batch, step: int) -> Any:
        loss = train_on(optimizer, loss_of(net, batch))
        if step % 3 == 2:
            vector = nn.utils.parameters_to_vector(net.parameters())
            nn.utils.vector_to_parameters(vector.detach() * 0.99, net.parameters())
        return loss

    return plain(net, optimizer, iterate=iterate)
