"""What listens to a training, put together."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from torch import nn
from torch.optim import Optimizer

from sonde.config.schema import Config
from sonde.core.model_table import ModelTable
from sonde.kernels.dispatch import trouble_on
from sonde.monitor import ranks
from sonde.monitor.guard import Guard
from sonde.monitor.iteration import Iteration
from sonde.monitor.mailbox import Mailbox
from sonde.monitor.model_description import ModelDescription
from sonde.monitor.notices import Notices
from sonde.monitor.optimizer_hooks import OptimizerHooks, share_between_ranks
from sonde.monitor.probe_set import ProbeSet
from sonde.probes import walks
from sonde.probes.events import Events
from sonde.probes.module_shapes import ModuleShapes
from sonde.probes.optimizers import WatchedOptimizer
from sonde.probes.parameters import device_of, parameter_names
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


class Shared(NamedTuple):
    """What all that listens has in common."""

    schedule: Schedule
    """What has its turn."""
    mailbox: Mailbox
    """Where what is found goes."""
    notices: Notices
    """Say what is not measured."""
    guard: Guard
    """Keeps our faults from the training."""


def listen(
    models: dict[str, nn.Module],
    optimizers: dict[str, Optimizer],
    shared: Shared,
    settings: Config,
    call: ranks.Call,
    describe: Callable[[ModelTable], None],
) -> Listening:
    """Hook everything that is listened to.

    Args:
        models: By name; who empties it lets all go of them.
        optimizers: By name, likewise.
        shared: What all of it has in common.
        settings: How much the watching may take, and which probes measure.
        call: Of `watch`, as the other ranks see it.
        describe: Given the model table, and again where it has changed.
    """
    schedule, mailbox, notices, guard = shared
    device = device_of(optimizers)
    description = ModelDescription(models, optimizers, describe)

    def names() -> dict[int, str]:
        return parameter_names(models)

    def names_anew() -> dict[int, str]:  # parameters have come, or have got their shape
        with guard:
            description.refresh()
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
    iteration = Iteration(device, watched, schedule, mailbox, guard, share=settings.budget, floor_s=settings.floor_s)
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
            shapes=ModuleShapes(of, description.add_shapes),
            on=settings.probes.on,
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
