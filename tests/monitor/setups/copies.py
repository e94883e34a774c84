"""Copies of a model and its optimiser, made in the middle of a training."""

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import torch
from tests.monitor.setups.models import Encoder, convolving, mlp
from tests.monitor.setups.setup import (
    Batch,
    Compile,
    Make,
    Setup,
    adam,
    evaluation,
    loss_of,
    plain,
    register,
    sgd,
    train_on,
)
from torch import Tensor, nn
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn


def _deep(net: nn.Module) -> Any:
    return copy.deepcopy(net)


def _pickled(net: nn.Module) -> Any:
    return pickle.loads(pickle.dumps(net))


def _saved(net: nn.Module) -> Any:
    torch.save(net, file := io.BytesIO())
    file.seek(0)
    return torch.load(file, weights_only=False)


def _scripted(net: nn.Module) -> Any:
    return torch.jit.script(net)


def _traced(net: nn.Module) -> Any:
    return torch.jit.trace(net.eval(), torch.ones(8, 6), check_trace=False)  # type: ignore[no-untyped-call]


def _symbolic(net: nn.Module) -> Any:
    return torch.fx.symbolic_trace(net)


_COPIES: dict[str, tuple[Callable[[nn.Module], Any], Callable[[], nn.Module]]] = {
    "deepcopy": (_deep, Encoder),
    "pickle": (_pickled, Encoder),
    "torch.save of the whole": (_saved, convolving),
    "torch.jit.script": (_scripted, convolving),
    "torch.jit.script of a layer": (_scripted, lambda: nn.Linear(6, 3)),
    "torch.jit.trace": (_traced, convolving),
    "torch.fx": (_symbolic, mlp),
}


def hooks_of(net: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in net.modules())


def _of_copy(copied: Callable[[nn.Module], Any], make: Callable[[], nn.Module]) -> Make:
    def setup(_: Compile) -> Setup:
        net = make()
        optimizer = adam(net)
        found: list[Tensor] = []

        def iterate(batch: Batch, _: int) -> Any:
            loss = loss_of(net, batch)
            other = copied(net).eval()
            net.train()
            with torch.no_grad():
                found.append(loss_of(other, batch, "none"))
            return train_on(optimizer, loss)

        def evaluate(batch: Batch) -> Any:
            net.eval()
            other = copied(net).eval()
            net.train()
            if not isinstance(other, torch.jit.ScriptModule):
                assert hooks_of(other) == 0
            with torch.no_grad():
                return loss_of(other, batch, "none")

        return plain(net, optimizer, iterate=iterate, evaluate=evaluate, also=lambda: found)

    return setup


for _name, (_copied, _made) in _COPIES.items():
    register(f"copy: {_name}")(_of_copy(_copied, _made))


@register("copy: weights averaged by hand")
def _ema(_: Compile) -> Setup:
    net = Encoder()
    optimizer = adam(net)
    average = copy.deepcopy(net).eval()

    def iterate(batch: Batch, _: int) -> Any:
        loss = train_on(optimizer, loss_of(net, batch))
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), net.parameters(), strict=True):
                slow.lerp_(fast, 0.1)
        return loss

    return plain(
        net, optimizer, iterate=iterate, evaluate=evaluation(average), also=lambda: list(average.state_dict().values())
    )


@register("copy: averaged model")
def _averaged(_: Compile) -> Setup:
    net = convolving()
    optimizer = sgd(net)
    average_of: Any = get_ema_multi_avg_fn
    average = AveragedModel(net, multi_avg_fn=average_of(0.9), use_buffers=True)

    def iterate(batch: Batch, _: int) -> Any:
        loss = train_on(optimizer, loss_of(net, batch))
        average.update_parameters(net)
        return loss

    return plain(
        net, optimizer, iterate=iterate, evaluate=evaluation(average), also=lambda: list(average.state_dict().values())
    )


@register("copy: averaged model made in the middle, with its batch norms")
def _swa(_: Compile) -> Setup:
    net = convolving()
    optimizer = sgd(net)
    schedule = SWALR(optimizer, swa_lr=0.02)
    averages: list[AveragedModel] = []

    def iterate(batch: Batch, step: int) -> Any:
        loss = loss_of(net, batch)
        if step == 4:
            averages.append(AveragedModel(net))
        loss = train_on(optimizer, loss)
        if averages:
            averages[0].update_parameters(net)
            schedule.step()
        return loss

    def evaluate(batch: Batch) -> Any:
        if not averages:
            return evaluation(net)(batch)
        update_bn([batch], averages[0])
        return evaluation(averages[0])(batch)

    return plain(net, optimizer, iterate=iterate, evaluate=evaluate)


@register("copy: model and optimiser go on as copies of their own")
def _rehearsal(_: Compile) -> Setup:
    """As learning-rate finders do: a few steps of copies, thrown away."""
    net = mlp()
    optimizer = adam(net)
    found: list[Tensor] = []

    def evaluate(batch: Batch) -> Any:
        twin, twins = copy.deepcopy((net, optimizer))
        found.extend(train_on(twins, loss_of(twin, batch)).detach() for _ in range(2))
        thawed = pickle.loads(pickle.dumps(optimizer))
        assert not thawed._optimizer_step_pre_hooks
        assert not twins._optimizer_step_post_hooks
        return evaluation(twin)(batch)

    return plain(net, optimizer, evaluate=evaluate, also=lambda: found)


@register("copy: gone back to a checkpoint")
def _restored(_: Compile) -> Setup:
    net = convolving()
    optimizer = adam(net)
    kept: dict[str, Any] = {}

    def iterate(batch: Batch, step: int) -> Any:
        if step == 3:
            kept.update(net=copy.deepcopy(net.state_dict()), optimizer=copy.deepcopy(optimizer.state_dict()))
        if step == 7:
            net.load_state_dict(kept["net"])
            optimizer.load_state_dict(kept["optimizer"])
        return train_on(optimizer, loss_of(net, batch))

    return plain(net, optimizer, iterate=iterate)
