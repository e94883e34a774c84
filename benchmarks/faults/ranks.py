"""Faults of two processes that train together; the runner starts each with the process group made."""

import time

import torch
import torch.distributed as dist
from benchmarks.faults.scenario import Session
from benchmarks.faults.small_models import Task, begin, clusters, mildly, mlp, pictures, validate
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel


def _share(task: Task) -> Task:
    """This rank's part of the examples."""
    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    return Task(task.inputs[rank::num_ranks], task.targets[rank::num_ranks], task.val_inputs, task.val_targets)


def _mean_over_ranks(value: float) -> float:
    total = torch.tensor(value)
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def _average_gradients(model: nn.Module) -> None:
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


def straggler_always(session: Session) -> float:
    """Rank 1 shares its cores with something else: its forward pass takes much longer."""
    pick = begin(session, 401)
    task = _share(clusters())
    model = DistributedDataParallel(mlp(16, pick.choice([48, 64, 80]), 48, 6))
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(mildly(pick, 0.1)), momentum=0.9)
    loader = task.loader(32)
    slow_s = 0.0 if session.fixed or dist.get_rank() == 0 else mildly(pick, 0.02)
    with session.watch(model, optimizer) as watch:
        for _ in range(3):
            for points, labels in watch.data(loader):
                optimizer.zero_grad()
                time.sleep(slow_s)
                loss = functional.cross_entropy(model(points), labels)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            found = validate(model.module, task)
            watch.evaluate(loss=found)
    return _mean_over_ranks(found)


def straggler_later(session: Session) -> float:
    """Rank 0 becomes slow in the middle of the run, without Sonde seeing the loader."""
    pick = begin(session, 402)
    task = _share(pictures())
    net = nn.Sequential(nn.Flatten(), mlp(144, pick.choice([48, 64]), 5))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(mildly(pick, 2e-3)))
    step = 0
    with session.watch(model, optimizer) as watch:
        for _ in range(5):
            for shown, labels in task.loader(16):
                if step >= 120 and dist.get_rank() == 0 and not session.fixed:
                    time.sleep(0.02)
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(shown), labels)
                loss.backward()
                optimizer.step()
                watch.step(loss)
                step += 1
            found = validate(net, task)
            watch.evaluate(loss=found)
    return _mean_over_ranks(found)


def rank_divergence_bypassed(session: Session) -> float:
    """The loop calls the model inside of the wrapper, so gradients stay apart; each rank knows half of the classes."""
    pick = begin(session, 403)
    task = clusters()
    in_order = task.targets.argsort().chunk(dist.get_world_size())[dist.get_rank()]
    task = Task(task.inputs[in_order], task.targets[in_order], task.val_inputs, task.val_targets)
    model = DistributedDataParallel(mlp(16, pick.choice([48, 64, 80]), 48, 6))
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(mildly(pick, 0.1)), momentum=0.9)
    loader = task.loader(32)
    called = model if session.fixed else model.module
    with session.watch(model, optimizer) as watch:
        for _ in range(4):
            for points, labels in watch.data(loader):
                optimizer.zero_grad()
                loss = functional.cross_entropy(called(points), labels)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            found = validate(model.module, task)
            watch.evaluate(loss=found)
    return _mean_over_ranks(found)


def rank_divergence_clip(session: Session) -> float:
    """Equal until step 100, from which on one rank clips its averaged gradient and the other does not."""
    pick = begin(session, 404)
    task = _share(clusters())
    model = mlp(16, pick.choice([48, 64, 80]), 48, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(mildly(pick, 0.1)), momentum=0.9)
    limit = 0.05
    step = 0
    with session.watch(model, optimizer) as watch:
        for _ in range(5):
            for points, labels in task.loader(32):
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(points), labels)
                loss.backward()
                _average_gradients(model)
                if step >= 100 and not session.fixed and dist.get_rank() == 1:
                    nn.utils.clip_grad_norm_(model.parameters(), limit)
                optimizer.step()
                watch.step(loss)
                step += 1
            found = validate(model, task)
            watch.evaluate(loss=found)
    return _mean_over_ranks(found)
