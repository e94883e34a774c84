"""How the optimisers are set: weight decay, momentum and the like of each group, and whether their state is there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Any, final

import torch
from torch.optim import Optimizer

from sonde.probes.events import Events
from sonde.probes.facts import Say
from sonde.probes.probe import Reading, table_row

_YIELDS = {
    "optimizer/momentum@": "momentum of a group",
    "optimizer/beta1@": "first beta of a group",
    "optimizer/beta2@": "second beta of a group",
    "optimizer/beta3@": "third beta of a group, where an optimiser has one",
    "optimizer/weight_decay@": "weight decay of a group",
    "optimizer/epsilon@": "epsilon of a group",
}
_REPEATED_STEPS = 100  # a row may be lost with a step that a scaler withholds
_EVENT_STEPS = 100  # schedules of momentum change it at every step, which rows can bear and events cannot
_GROUPS_A_STEP = 8  # reading a group takes 3 µs, and some optimisers have one for each parameter
_MOST_GROUPS = 16  # in an event
_KEYS = ("momentum", "betas", "weight_decay", "eps")
_UNCHANGING = {float, int, bool, tuple, type(None)}


@dataclass(slots=True)
class _Followed:
    """An optimiser and what was last seen of it."""

    name: str
    settings: dict[str, float] = field(default_factory=dict)
    seen: list[Any] = field(default_factory=list)
    """The same as the groups have them."""
    is_unchanging: bool = False
    """Whether the same objects have the same values."""
    num_with_state: int = 0
    num_steps: int = 0
    said_at: int | None = None


@final
class Settings:
    """Notes the settings of every group at an optimiser's first step and where they change, and the loss of its state.

    A row of numbers comes then and at every hundredth step; and an event `optimizer` at the first step and, not more
    often than every hundredth step, where settings have changed: its class (`optimizer`), its `name` where it has one,
    `groups` (the first 16 of `num_groups`) with the learning rate, the settings and the number of parameters of each,
    and `num_with_state`, the parameters that it keeps state for. With more than 8 groups it looks at some steps only.

    Where the state that was there is gone at the beginning of a step, an event `restored` says so, as it does where the
    state was loaded (see `restored`).

    Args:
        optimizers: By name, empty where there is only one.
        say: Told an event's kind and data.
    """

    def __init__(self, optimizers: Mapping[str, Optimizer], say: Say) -> None:
        self._say = say
        self._followed = {id(optimizer): _Followed(name) for name, optimizer in optimizers.items()}
        self._found: dict[str, float] = {}

    @property
    def yields(self) -> Mapping[str, str]:
        """The tags that may come of it; behind `@` the group's place, after the optimiser's name where it has one."""
        return _YIELDS

    def listen(self, events: Events) -> None:
        """Be told of the steps of optimisers, and of states that are loaded."""
        events.optimizer_enters.append(self.before_step)
        events.optimizer_loaded.append(self.restored)

    def not_measured(self) -> Mapping[str, str]:
        """Nothing."""
        return {}

    def before_step(self, optimizer: Optimizer) -> None:
        """An optimiser is about to make its step."""
        followed = self._followed.get(id(optimizer))
        if followed is None:
            return
        num_with_state = len(optimizer.state)
        if num_with_state == 0 and followed.num_with_state > 0:
            self.restored(optimizer)
        followed.num_with_state = num_with_state
        num, followed.num_steps = followed.num_steps, followed.num_steps + 1
        if num % (1 + len(optimizer.param_groups) // _GROUPS_A_STEP):
            return
        seen = [group.get(key) for group in optimizer.param_groups for key in _KEYS]
        is_same = len(seen) == len(followed.seen) and all(map(is_, seen, followed.seen))
        if is_same and num % _REPEATED_STEPS and followed.is_unchanging:
            return
        followed.seen, followed.is_unchanging = seen, set(map(type, seen)) <= _UNCHANGING
        settings = group_settings(optimizer, followed.name)
        is_changed = settings != followed.settings
        if is_changed or num % _REPEATED_STEPS == 0:
            self._found |= settings
        is_due = followed.said_at is None or num - followed.said_at >= _EVENT_STEPS
        if is_due and (is_changed or num == 0):
            followed.said_at = num
            self._say("optimizer", _described(optimizer, followed.name))
        followed.settings = settings

    def restored(self, optimizer: Optimizer) -> None:
        """Its state was loaded, or is gone: an event `restored` tells how much is there now, and how much was.

        What is loaded before its first step is the beginning of a session, and not said.
        """
        followed = self._followed.get(id(optimizer))
        if followed is not None and followed.num_steps > 0:
            data = {"num_with_state": len(optimizer.state), "num_before": followed.num_with_state}
            self._say("restored", {**_named(optimizer, followed.name), **data})
            followed.num_with_state = len(optimizer.state)

    def collect(self) -> Sequence[Reading]:
        """The settings of the optimisers that are due."""
        found, self._found = self._found, {}
        return [Reading((), lambda _: [table_row("optimizer", found)])] if found else []

    def close(self) -> None:
        """Let go of what was noted."""
        self._followed.clear()
        self._found = {}


def _named(optimizer: Optimizer, name: str) -> dict[str, Any]:
    return {"optimizer": type(optimizer).__name__, **({"name": name} if name else {})}


def _described(optimizer: Optimizer, name: str) -> dict[str, Any]:
    groups = []
    for group in optimizer.param_groups[:_MOST_GROUPS]:
        lr = on_host(group.get("lr"))
        own = {**({} if lr is None else {"lr": lr}), **_settings(group)}
        groups.append({**own, "num_parameters": len(group["params"])})
    numbers = {"num_groups": len(optimizer.param_groups), "num_with_state": len(optimizer.state)}
    return {**_named(optimizer, name), **numbers, "groups": groups}


def group_settings(optimizer: Optimizer, name: str = "") -> dict[str, float]:
    """Momentum, betas, weight decay and ε of each group as plain numbers, by tag.

    Behind `@` stands the group's place, after the optimiser's name where it has one. A setting that a group lacks, that
    is no number, or that is on a device and would have to be waited for, is left out.

    Example:
        >>> group_settings(torch.optim.SGD([torch.zeros(1)], lr=0.1, momentum=0.9), "D")
        {'optimizer/momentum@D.0': 0.9, 'optimizer/weight_decay@D.0': 0.0}
    """
    at = f"{name}." if name else ""
    return {
        f"optimizer/{setting}@{at}{place}": number
        for place, group in enumerate(optimizer.param_groups)
        for setting, number in _settings(group).items()
    }


def _settings(group: Mapping[str, Any]) -> dict[str, float]:
    betas = group.get("betas")
    found = {
        "momentum": group.get("momentum"),
        **{f"beta{i}": beta for i, beta in enumerate(betas if isinstance(betas, (tuple, list)) else (), 1)},
        "weight_decay": group.get("weight_decay"),
        "epsilon": group.get("eps"),
    }
    return {setting: number for setting, value in found.items() if (number := on_host(value)) is not None}


def on_host(value: Any) -> float | None:
    """A setting as a number, None where it is none or is on a device."""
    if isinstance(value, torch.Tensor):
        return float(value.detach()) if value.device.type == "cpu" and value.numel() == 1 else None
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
