"""Which parameters take part in the training: those without an optimiser, without a gradient, or frozen."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from sonde.core.records import Float64
from sonde.probes.apart import apart
from sonde.probes.facts import MOST_PLACES, Say, settle
from sonde.probes.hooks import Hooks, first_tensor, readable
from sonde.probes.parameters import parameter_names
from sonde.probes.probe import Reading
from sonde.probes.stacks import user_line

_STEPS = 3
"""Steps of an optimiser after which something is said."""
_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


@final
class Membership:
    """Looks at the parameters when an optimiser makes its step, and says after its third what is odd about them.

    - `parameter-not-in-optimizer`: requires a gradient and has one, is in no group of any watched optimiser, and its
      values were not changed by anyone;
    - `disconnected-parameter`: is in an optimiser, requires a gradient and never had one, while others had. Members of
      a list of modules with another member that had one (experts, heads of tasks) come as `idle-parameter` instead, at
      the end and if they still had none; but not those whose outputs another member of the list was seen to get, three
      times: these are layers in a row, between which the graph is cut;
    - `idle-optimizer`, at the end: its optimiser, `name`, made no step while others did, though it has a gradient, and
      its values were not changed by anyone;
    - `frozen-parameter`: does not require a gradient, and its values were not changed by anyone;
    - `zero-rate`: is in a group of learning rate 0, while another group has one.

    `value` is the share of all elements of the models' parameters; of frozen ones `fresh` is the share of the elements
    of matrices (embeddings apart) that look as torch initialises `Linear` and convolutions, uniform within
    ±1/√fan_in: a frozen layer that was never trained.
    """

    def __init__(self, models: Mapping[str, nn.Module], optimizers: Mapping[str, Optimizer], say: Say) -> None:
        self._models, self._optimizers, self._say = models, optimizers, say
        self._num_steps: dict[int, int] = {}
        self._had_gradient: set[int] = set()
        self._versions: dict[int, int] = {}
        self._postponed: list[tuple[str, Tensor]] = []
        self._waiting: set[int] = set()
        """Parameters with a gradient, as their `id`, of optimisers that made no step yet."""
        self._members: list[nn.Module] = []
        """Of lists in which some have a gradient and others have none …"""
        self._outputs: dict[int, tuple[int, Tensor]] = {}
        """… by where it lies, what each gave in this iteration (kept, or another may lie there), with its `id` …"""
        self._passed_on: Counter[int] = Counter()
        """… and how often another member got them."""
        self._zero_rate: dict[int, set[int]] = {}
        self._readings: list[Reading] = []
        self._done = False

    def before_optimizer(self, optimizer: Optimizer) -> None:
        """Called before each step of the iterations that are looked at."""
        if self._done:
            return
        if not self._versions:
            self._versions = {id(p): p._version for p in self._parameters()}
        num = self._num_steps[id(optimizer)] = self._num_steps.get(id(optimizer), 0) + 1
        mine = [p for group in optimizer.param_groups for p in group["params"]]
        self._had_gradient.update(id(p) for p in mine if p.grad is not None)
        idle = {i for i, group in enumerate(optimizer.param_groups) if _is_zero(group.get("lr"))}
        self._zero_rate[id(optimizer)] = idle if num == 1 else self._zero_rate.get(id(optimizer), idle) & idle
        if num == _STEPS:
            others = [o for o in self._optimizers.values() if id(o) not in self._num_steps]
            self._waiting.update(
                id(p) for o in others for group in o.param_groups for p in group["params"] if p.grad is not None
            )
            line = user_line()
            self._tell_disconnected(optimizer, mine, line)
            self._tell_zero_rate(optimizer, line)
            if len(self._num_steps) == 1 or all(n >= _STEPS for n in self._num_steps.values()):
                self._tell_outside(line)

    def attach(self, hooks: Hooks) -> None:
        """An iteration begins that is looked at."""
        self._outputs = {}
        for member in self._members:
            hooks.before(member, self._entered)
            hooks.after(member, self._left)

    def _entered(self, member: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = first_tensor((args, kwargs))
        if given is not None and torch.is_grad_enabled() and readable(given):
            giver, _ = self._outputs.pop(given.data_ptr(), (id(member), given))
            self._passed_on[giver] += giver != id(member)

    def _left(self, member: nn.Module, _args: Any, output: Any) -> None:
        given = first_tensor(output)
        if given is not None and torch.is_grad_enabled() and readable(given):
            self._outputs[given.data_ptr()] = (id(member), given.detach())

    def _tell_cut(self) -> None:
        cut = {id(p) for member in self._members if self._passed_on[id(member)] >= _STEPS for p in member.parameters()}
        found = [(name, p) for name, p in self._postponed if id(p) in cut and id(p) not in self._had_gradient]
        if found:
            self._postponed = [(name, p) for name, p in self._postponed if id(p) not in cut]
            self._members = []
            self._tell("disconnected-parameter", found, None)

    def collect(self) -> list[Reading]:
        """What is still on its way."""
        self._outputs = {}
        if self._members:
            self._tell_cut()
        readings, self._readings = self._readings, []
        return readings

    def finish(self) -> None:
        """No more iterations are looked at in detail: those that had no gradient to the end."""
        self._done = True
        missing = [(name, p) for name, p in self._postponed if id(p) not in self._had_gradient]
        if missing:
            self._tell("idle-parameter", missing, None)
        self._postponed, self._members = [], []
        self._tell_idle_optimizers()

    def _tell_idle_optimizers(self) -> None:
        names = parameter_names(self._models)
        moved = {id(p) for p in self._parameters() if p._version != self._versions.get(id(p))}
        for name, optimizer in self._optimizers.items():
            mine = [p for group in optimizer.param_groups for p in group["params"]]
            found = [(names[id(p)], p) for p in mine if id(p) in self._waiting - moved and id(p) in names]
            if found and id(optimizer) not in self._num_steps:
                self._tell("idle-optimizer", found, None, name=name)

    def _parameters(self) -> list[Tensor]:
        return [p for model in self._models.values() for p in model.parameters() if not is_lazy(p)]

    def _tell_disconnected(self, optimizer: Optimizer, mine: list[Tensor], line: str | None) -> None:
        if not any(id(p) in self._had_gradient for p in mine):
            return
        names = parameter_names(self._models)
        missing = [
            (names[id(p)], p) for p in mine if p.requires_grad and id(p) not in self._had_gradient and id(p) in names
        ]
        self._members = self._members_of_live_lists()
        dead = [m for m in self._members if not any(id(p) in self._had_gradient for p in m.parameters())]
        spared = {id(p) for member in dead for p in member.parameters()}
        self._postponed += [(name, p) for name, p in missing if id(p) in spared]
        if missing := [(name, p) for name, p in missing if id(p) not in spared]:
            self._tell("disconnected-parameter", missing, line)

    def _members_of_live_lists(self) -> list[nn.Module]:
        """The members of lists in which some have a gradient and others have none."""
        found: dict[int, nn.Module] = {}
        for model in self._models.values():
            for module in model.modules():
                if isinstance(module, nn.ModuleList | nn.ModuleDict):
                    members = [child for child in module.children() if any(True for _ in child.parameters())]
                    alive = [any(id(p) in self._had_gradient for p in member.parameters()) for member in members]
                    if any(alive) and not all(alive):
                        found |= {id(member): member for member in members}
        return list(found.values())

    def _tell_zero_rate(self, optimizer: Optimizer, line: str | None) -> None:
        idle = self._zero_rate[id(optimizer)]
        if not idle or len(idle) == len(optimizer.param_groups):
            return  # all at 0: the start of a warmup, or a rate that only gradients of another optimiser need
        names = parameter_names(self._models)
        group = [p for i in sorted(idle) for p in optimizer.param_groups[i]["params"]]
        found = [(names[id(p)], p) for p in group if p.requires_grad and id(p) in names]
        if found:
            self._tell_frozen("zero-rate", found, line)

    def _tell_outside(self, line: str | None) -> None:
        names = parameter_names(self._models)
        inside = {id(p) for o in self._optimizers.values() for group in o.param_groups for p in group["params"]}
        still = [p for p in self._parameters() if p._version == self._versions.get(id(p))]
        outside = [(names[id(p)], p) for p in _once(still) if p.requires_grad and id(p) not in inside]
        if outside := [(name, p) for name, p in outside if p.grad is not None]:
            self._tell("parameter-not-in-optimizer", outside, line)
        if frozen := [(names[id(p)], p) for p in _once(still) if not p.requires_grad]:
            self._tell_frozen("frozen-parameter", frozen, line)

    def _tell_frozen(self, check: str, found: list[tuple[str, Tensor]], line: str | None) -> None:
        matrices = {
            id(module.weight): module.weight
            for model in self._models.values()
            for module in model.modules()
            if not isinstance(module, nn.Embedding | nn.EmbeddingBag)
            and isinstance(getattr(module, "weight", None), Tensor)
        }
        total = sum(p.numel() for p in _once(self._parameters()) if p.dim() > 1) - sum(
            module.weight.numel()
            for model in self._models.values()
            for module in model.modules()
            if isinstance(module, nn.Embedding | nn.EmbeddingBag)
        )
        kinds = {id(m.weight) for model in self._models.values() for m in model.modules() if isinstance(m, _LAYERS)}
        looked_at = [p for _, p in found if id(p) in matrices and id(p) in kinds and readable(p) and p.numel() >= 32]
        looked_at = [p for p in looked_at if p.device == looked_at[0].device]

        def judge(numbers: Float64) -> None:
            fresh = 0
            for parameter, (std, largest) in zip(looked_at, numbers.reshape(-1, 2), strict=True):
                bound = (parameter.numel() / parameter.shape[0]) ** -0.5
                if 0.8 * bound < largest <= 1.001 * bound and 0.85 < std * 3**0.5 / bound < 1.15:
                    fresh += parameter.numel()
            self._tell(check, found, line, fresh=fresh / max(1, total))

        tensors = []
        for parameter in looked_at:
            with apart(parameter.device):
                values = parameter.detach().float()
                tensors += [values.std(correction=0).double(), values.abs().amax().double()]
        self._readings += settle(tensors, judge)

    def _tell(self, check: str, found: list[tuple[str, Tensor]], line: str | None, **more: Any) -> None:
        total = sum(p.numel() for p in _once(self._parameters()))
        share = sum(p.numel() for _, p in found if not is_lazy(p)) / max(1, total)
        where = [name for name, _ in found]
        self._say(check, {"where": where[:MOST_PLACES], "num": len(where), "value": share, "line": line, **more})


def _once(parameters: list[Tensor]) -> list[Tensor]:
    return list({id(p): p for p in parameters}.values())


def _is_zero(rate: Any) -> bool:
    if isinstance(rate, Tensor):
        return rate.device.type == "cpu" and float(rate) == 0  # on a device it would have to be waited for
    return rate is not None and float(rate) == 0
