"""What listens to a training, put together."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer

from sonde.core.model_table import ModelTable
from sonde.kernels.dispatch import trouble_on
from sonde.monitor import ranks
from sonde.monitor.guard import Guard
from sonde.monitor.iteration import Iteration
from sonde.monitor.mailbox import Mailbox
from sonde.monitor.notices import Notices
from sonde.monitor.optimizer_hooks import OptimizerHooks, share_between_ranks
from sonde.monitor.probe_set import ProbeSet
from sonde.probes import walks
from sonde.probes.events import Events
from sonde.probes.model_table import model_table
from sonde.probes.optimizers import WatchedOptimizer
from sonde.probes.parameters import parameter_names
from sonde.probes.schedule import Schedule
from sonde.streams.logs import logger

_log = logger("sonde.monitor")


class Listening(NamedTuple):
    """What listens to a training."""

    watched: list[WatchedOptimizer]
    events: Events
    iteration: Iteration
    hooks: OptimizerHooks
    probes: ProbeSet

    def leave(self) -> None:
        """Take all hooks away, and let go of models and optimisers."""
        self.hooks.leave()
        self.probes.close()
        self.watched.clear()


def device_of(optimizers: Mapping[str, Optimizer]) -> torch.device:
    """Where the first parameter is."""
    given = (p for optimizer in optimizers.values() for group in optimizer.param_groups for p in group["params"])
    return next((p.device for p in given if p.device.type != "meta"), torch.device("cpu"))


def listen(
    models: dict[str, nn.Module],
    optimizers: dict[str, Optimizer],
    schedule: Schedule,
    mailbox: Mailbox,
    notices: Notices,
    guard: Guard,
    call: ranks.Call,
    describe: Callable[[ModelTable], None],
    *,
    share: float,
    floor_s: float | None,
    on: frozenset[str],
) -> Listening:
    """Hook everything that is listened to.

    Args:
        models: By name; who empties it lets all go of them.
        optimizers: By name, likewise.
        schedule: What has its turn.
        mailbox: Where what is found goes.
        notices: Say what is not measured.
        guard: Keeps our faults from the training.
        call: Of `watch`, as the other ranks see it.
        describe: Given the model table, and again where it has changed.
        share: Of the step time that the watching may take.
        floor_s: Seconds a step that it may always take.
        on: The names of the probes that measure.
    """
    device = device_of(optimizers)

    def names() -> dict[int, str]:
        return parameter_names(models)

    def names_anew() -> dict[int, str]:  # parameters have come, or have got their shape
        with guard:
            describe(model_table(models, optimizers))
        return names()

    watched = [
        WatchedOptimizer(name, optimizer, schedule.cadences, device.type == "cuda", names_anew, notices.not_measured)
        for name, optimizer in optimizers.items()
    ]
    for one in watched:
        one.refresh()
    if (trouble := trouble_on(device)) is not None:
        _log.warning("watching costs more than it should: %s", trouble)
        notices.problem(f"watching costs more than it should: {trouble}")
    share_between_ranks(watched, call, schedule.cadences, notices)
    events = Events(guard.failed)
    iteration = Iteration(device, watched, schedule, mailbox, guard, share=share, floor_s=floor_s)
    hooks = OptimizerHooks(watched, events, iteration, guard, mailbox.event)

    def probes(of: Mapping[str, nn.Module]) -> ProbeSet:
        return ProbeSet(
            of,
            optimizers,
            watched,
            device,
            schedule,
            events,
            guard,
            notices,
            names=names,
            put_event=mailbox.event,
            on=on,
        )

    made: ProbeSet | None = None
    with guard:
        made = probes(_walkable(models, notices))
    listening = Listening(watched, events, iteration, hooks, made or probes({}))  # parameters are watched at least
    hooks.attach()
    return listening


def _walkable(models: Mapping[str, nn.Module], notices: Notices) -> dict[str, nn.Module]:
    """The models whose modules can be watched; of the others it is said."""
    troubles = {name: walks.trouble(model) for name, model in models.items()}
    for name, reason in troubles.items():
        if reason is not None:
            _log.warning("modules of %s are left unwatched: %s", name or "the model", reason)
            for family in ("act", "gain", "attn", "logits", "batch"):
                notices.not_measured(f"{family}/*{f'@{name}.*' if name else ''}", reason)
    return {name: model for name, model in models.items() if troubles[name] is None}
