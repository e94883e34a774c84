"""Train and eval mode of a model, where it makes a difference, at the moment of its forwards."""

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any, final

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from sonde.core.tags import clean_name
from sonde.probes.facts import Facts
from sonde.probes.hooks import Hooks
from sonde.probes.stacks import user_line

_CONFIRMED = 2  # iterations in a row


@final
class Modes:
    """Looks at the flags of dropout and batch norm when a whole model is called.

    - `eval-mode-in-training`: a model with such modules was in eval mode, itself and all of them, in every forward that
      gradients were wanted for, and its optimiser made a step, two iterations in a row. Where only some are in eval
      mode (batch norms of a fine-tuned model), that is taken for intent.
    - `train-mode-in-evaluation`: between a step and `evaluated()` the model was called without gradients, always with
      dropout or batch norm in train mode. Where no call could be seen, a batch norm that counted a batch in that time
      says the same.

    Args:
        models: By name; those that must not be hooked are left out.
    """

    def __init__(self, models: Mapping[str, nn.Module], facts: Facts, hooks: Hooks) -> None:
        self._models, self._facts, self._hooks = models, facts, hooks
        self._training: dict[str, list[bool]] = {}
        self._evaluating: dict[str, list[bool]] = {}
        self._lines: dict[str, str | None] = {}
        self._in_a_row: Counter[str] = Counter()
        self._heeds = {name: bool(_by_mode(model)) for name, model in models.items()}
        self._counters = {name: counter for name, model in models.items() if (counter := _counter(model)) is not None}
        self._counted: dict[str, int] = {}
        self._is_attached = self._only_evaluations = False
        self.missed = False
        """Whether the last evaluation was not seen, though a model heeds its mode."""

    def attach(self, *, only_evaluations: bool = False) -> None:
        """See the forwards, or those without gradients only, until the next `collect`."""
        self._only_evaluations = only_evaluations and (self._only_evaluations or not self._is_attached)
        if self._is_attached:
            return
        for name, model in self._models.items():
            if self._heeds[name]:
                self._is_attached = True
                self._hooks.before(model, partial(self._called, name))

    def _called(self, name: str, model: nn.Module, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
        if self._only_evaluations and torch.is_grad_enabled():
            return
        is_training = any(module.training for module in _by_mode(model).values())
        if torch.is_grad_enabled():
            seen = self._training.setdefault(name, [])
            is_training |= model.training
        else:
            seen = self._evaluating.setdefault(name, [])
        seen.append(is_training)
        if len(seen) == 1:
            self._lines[name] = user_line()

    def collect(self, stepped: bool) -> None:
        """An iteration is over; `stepped` is whether an optimiser made a step in it."""
        for name, training in self._training.items() if stepped else ():
            self._in_a_row[name] = 0 if any(training) else self._in_a_row[name] + 1
            if self._in_a_row[name] >= _CONFIRMED:
                self._tell("eval-mode-in-training", name, self._lines[name])
        self._training, self._evaluating, self._is_attached = {}, {}, False

    def mark(self) -> None:
        """A training iteration, or a part of one, is over: what batch norms count from now on is evaluation."""
        for name, counter in self._counters.items():
            self._counted[name] = _num_changes(counter)

    def evaluated(self) -> None:
        """An evaluation of the models as they are was just reported."""
        self.missed = not self._is_attached and any(self._heeds.values())
        for name in self._models:
            modes = self._evaluating.get(name)
            if modes is None and name in self._counted and name not in self._training:
                is_wrong = -1 != _num_changes(self._counters[name]) != self._counted[name]
            else:
                is_wrong = modes is not None and all(modes)
            if is_wrong:  # without a call that was seen, the last line is not the evaluation's
                self._tell("train-mode-in-evaluation", name, self._lines[name] if modes else None)

    def _tell(self, check: str, name: str, line: str | None) -> None:
        found = _by_mode(self._models[name], prefix=name)
        self._facts.say_once(check, map(clean_name, found), about=name, value=len(found), line=line)


def _by_mode(model: nn.Module, prefix: str = "") -> dict[str, nn.Module]:
    """The modules that compute otherwise in eval mode."""
    return {
        name: module
        for name, module in model.named_modules(prefix=prefix)
        if (isinstance(module, _DropoutNd) and module.p > 0)
        or (isinstance(module, _BatchNorm) and module.track_running_stats)
    }


def _counter(model: nn.Module) -> _BatchNorm | None:
    """A batch norm that counts the batches it takes into its statistics."""
    norms = (module for module in model.modules() if isinstance(module, _BatchNorm))
    return next((norm for norm in norms if norm.num_batches_tracked is not None), None)


def _num_changes(counter: _BatchNorm) -> int:
    """How often its count has changed; -1 where it counts no more."""
    counted = counter._buffers.get("num_batches_tracked")
    return -1 if counted is None else int(counted._version)
