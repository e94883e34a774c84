"""Which parameters take part in the training: those without an optimiser, without a gradient, or frozen."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from sonde.core.records import Float64
from sonde.probes.apart import apart
from sonde.probes.facts import Facts
from sonde.probes.hooks import Hooks, first_tensor, readable
from sonde.probes.parameters import embedding_tables, of_groups, of_models, parameter_names
from sonde.probes.settings import on_host
from sonde.probes.stacks import user_line

_STEPS = 3
"""Steps of an optimiser after which something is said."""
_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_RECURRENT = (nn.RNNBase, nn.RNNCellBase)


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
    ±1/√fan_in, and recurrent layers, uniform within ±1/√(hidden size): a frozen layer that was never trained.
    """

    def __init__(self, models: Mapping[str, nn.Module], optimizers: Mapping[str, Optimizer], facts: Facts) -> None:
        self._models, self._optimizers, self._facts = models, optimizers, facts
        self._num_steps: Counter[int] = Counter()
        self._had_gradient: set[int] = set()
        self._versions: dict[int, int] = {}
        self._postponed: list[Tensor] = []
        self._waiting: set[int] = set()
        """Parameters with a gradient, as their `id`, of optimisers that made no step yet."""
        self._members: list[nn.Module] = []
        """Of lists in which some have a gradient and others have none …"""
        self._outputs: dict[int, tuple[int, Tensor]] = {}
        """… by where it lies, what each gave in this iteration (kept, or another may lie there), with its `id` …"""
        self._passed_on: Counter[int] = Counter()
        """… and how often another member got them."""
        self._zero_rate: dict[int, set[int]] = {}
        """Groups, by their place, whose rate was 0 in all steps of an optimiser."""
        self._done = False

    def before_optimizer(self, optimizer: Optimizer) -> None:
        """Called before each step of the iterations that are looked at."""
        if self._done:
            return
        key = id(optimizer)
        self._versions = self._versions or {id(p): p._version for p in of_models(self._models)}
        self._num_steps[key] += 1
        self._had_gradient |= _with_gradient(optimizer)
        zero = {i for i, group in enumerate(optimizer.param_groups) if on_host(group.get("lr")) == 0}
        self._zero_rate[key] = zero & self._zero_rate.get(key, zero)
        if self._num_steps[key] == _STEPS:
            for other in self._optimizers.values():
                if id(other) not in self._num_steps:
                    self._waiting |= _with_gradient(other)
            line = user_line()
            self._tell_disconnected(optimizer, line)
            self._tell_zero_rate(optimizer, line)
            if len(self._num_steps) == 1 or min(self._num_steps.values()) >= _STEPS:
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

    def collect(self) -> None:
        """The iteration is over: whether the graph was seen to be cut between members of a list."""
        self._outputs = {}
        cut = _ids(member for member in self._members if self._passed_on[id(member)] >= _STEPS)
        if found := [p for p in self._idle() if id(p) in cut]:
            self._postponed = [p for p in self._postponed if id(p) not in cut]
            self._members = []
            self._tell("disconnected-parameter", found)

    def finish(self) -> None:
        """No more iterations are looked at in detail: those that had no gradient to the end."""
        self._done = True
        self._tell("idle-parameter", self._idle())
        self._postponed, self._members = [], []
        unmoved = self._waiting & {id(p) for p in self._unmoved()}
        for name, optimizer in self._optimizers.items():
            if id(optimizer) not in self._num_steps:
                self._tell("idle-optimizer", [p for p in of_groups(optimizer) if id(p) in unmoved], name=name)

    def _idle(self) -> list[Tensor]:
        return [p for p in self._postponed if id(p) not in self._had_gradient]

    def _unmoved(self) -> list[Tensor]:
        """Parameters whose values nobody has changed."""
        return [p for p in of_models(self._models) if p._version == self._versions.get(id(p))]

    def _tell_disconnected(self, optimizer: Optimizer, line: str | None) -> None:
        mine = of_groups(optimizer)
        if self._had_gradient.isdisjoint(map(id, mine)):
            return
        missing = [p for p in mine if p.requires_grad and id(p) not in self._had_gradient]
        self._members = self._members_of_live_lists()
        spared = _ids(member for member in self._members if not self._is_alive(member))
        self._postponed += [p for p in missing if id(p) in spared]
        self._tell("disconnected-parameter", [p for p in missing if id(p) not in spared], line)

    def _is_alive(self, member: nn.Module) -> bool:
        return not self._had_gradient.isdisjoint(_ids([member]))

    def _members_of_live_lists(self) -> list[nn.Module]:
        """The members of lists in which some have a gradient and others have none."""
        found: dict[int, nn.Module] = {}
        for module in (module for model in self._models.values() for module in model.modules()):
            if isinstance(module, nn.ModuleList | nn.ModuleDict):
                members = [child for child in module.children() if _ids([child])]
                if len(set(map(self._is_alive, members))) == 2:
                    found |= {id(member): member for member in members}
        return list(found.values())

    def _tell_zero_rate(self, optimizer: Optimizer, line: str | None) -> None:
        zero = self._zero_rate[id(optimizer)]
        # All at 0: the start of a warmup, or a rate that only gradients of another optimiser need.
        if 0 < len(zero) < len(optimizer.param_groups):
            group = [p for i in sorted(zero) for p in optimizer.param_groups[i]["params"]]
            self._tell_frozen("zero-rate", [p for p in group if p.requires_grad], line)

    def _tell_outside(self, line: str | None) -> None:
        inside = {id(p) for optimizer in self._optimizers.values() for p in of_groups(optimizer)}
        unmoved = self._unmoved()
        outside = [p for p in unmoved if p.requires_grad and id(p) not in inside and p.grad is not None]
        self._tell("parameter-not-in-optimizer", outside, line)
        self._tell_frozen("frozen-parameter", [p for p in unmoved if not p.requires_grad], line)

    def _tell_frozen(self, check: str, found: list[Tensor], line: str | None) -> None:
        bounds = _bounds(self._models)
        looked_at = [p for p in found if id(p) in bounds and readable(p) and p.numel() >= 32]
        looked_at = [p for p in looked_at if p.device == looked_at[0].device]
        tables = embedding_tables(self._models)
        total = sum(p.numel() for p in of_models(self._models) if p.dim() > 1 and id(p) not in tables)

        def judge(numbers: Float64) -> None:
            fresh = 0
            for parameter, (std, largest) in zip(looked_at, numbers.reshape(-1, 2), strict=True):
                bound = bounds[id(parameter)]
                if 0.8 * bound < largest <= 1.001 * bound and 0.85 < std * 3**0.5 / bound < 1.15:
                    fresh += parameter.numel()
            self._tell(check, found, line, fresh=fresh / max(1, total))

        tensors = []
        for parameter in looked_at:
            with apart(parameter.device):
                values = parameter.detach().float()
                tensors += [values.std(correction=0).double(), values.abs().amax().double()]
        self._facts.judge(tensors, judge)

    def _tell(self, check: str, found: list[Tensor], line: str | None = None, **more: Any) -> None:
        """Say it of those parameters that a model has, where there are any."""
        names = parameter_names(self._models)
        known = [p for p in found if id(p) in names]
        if known:
            total = sum(p.numel() for p in of_models(self._models))
            share = sum(p.numel() for p in known if not is_lazy(p)) / max(1, total)
            where = [names[id(p)] for p in known]
            self._facts.say(check, where, num=len(where), value=share, line=line, **more)


def _ids(modules: Iterable[nn.Module]) -> set[int]:
    """Of the modules' parameters."""
    return {id(p) for module in modules for p in module.parameters()}


def _with_gradient(optimizer: Optimizer) -> set[int]:
    return {id(p) for p in of_groups(optimizer) if p.grad is not None}


def _bounds(models: Mapping[str, nn.Module]) -> dict[int, float]:
    """How far out torch initialises the weights of layers, by their `id`."""
    bounds = {}
    for module in (module for model in models.values() for module in model.modules()):
        own = vars(module)["_parameters"]  # what a parametrisation computes is none
        if isinstance(module, _LAYERS) and (weight := own.get("weight")) is not None and readable(weight):
            bounds[id(weight)] = (weight.numel() / weight.shape[0]) ** -0.5
        elif isinstance(module, _RECURRENT):
            weights = [p for name, p in own.items() if name.startswith("weight") and p is not None]
            bounds |= dict.fromkeys(map(id, weights), module.hidden_size**-0.5)
    return bounds
