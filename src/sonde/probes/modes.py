"""Train and eval mode of a model, where it makes a difference, at the moment of its forwards."""

from collections.abc import Mapping
from typing import Any, final

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from sonde.core.tags import clean_name
from sonde.probes.facts import MOST_PLACES, Say
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

    def __init__(self, models: Mapping[str, nn.Module], say: Say, hooks: Hooks) -> None:
        self._models, self._say, self._hooks = dict(models), say, hooks
        self._training: dict[str, list[bool]] = {}
        self._evaluating: dict[str, list[bool]] = {}
        self._lines: dict[str, str | None] = {}
        self._in_a_row: dict[str, int] = {}
        self._counters: dict[str, _BatchNorm | None] = {}
        self._versions: dict[str, int] = {}
        self._said: set[tuple[str, str]] = set()
        self._attached = False

    def attach(self) -> None:
        """See the forwards until the next `collect`."""
        if self._attached:
            return
        self._attached = True
        for name, model in self._models.items():
            if _by_mode(model):
                self._hooks.before(model, self._called(name))

    def _called(self, name: str) -> Any:
        def called(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            modules = _by_mode(model)
            if torch.is_grad_enabled():
                self._training.setdefault(name, []).append(model.training or any(m.training for m in modules.values()))
                seen = self._training[name]
            else:
                self._evaluating.setdefault(name, []).append(any(m.training for m in modules.values()))
                seen = self._evaluating[name]
            if len(seen) == 1:
                self._lines[name] = user_line()

        return called

    def collect(self, stepped: bool) -> None:
        """An iteration is over; `stepped` is whether an optimiser made a step in it."""
        for name, training in self._training.items() if stepped else ():
            self._in_a_row[name] = 0 if any(training) else self._in_a_row.get(name, 0) + 1
            if self._in_a_row[name] >= _CONFIRMED:
                self._tell("eval-mode-in-training", name)
        self._training, self._evaluating, self._attached = {}, {}, False
        self.mark()

    def mark(self) -> None:
        """A training iteration, or a part of one, is over: what batch norms count from now on is evaluation."""
        for name, model in self._models.items():
            self._versions[name] = self._batches_counted(name, model)

    def evaluated(self) -> None:
        """An evaluation of the models as they are was just reported."""
        for name, model in self._models.items():
            modes = self._evaluating.get(name)
            if modes is not None:
                wrong = all(modes)
            else:
                counted = self._batches_counted(name, model)
                wrong = counted >= 0 and name in self._versions and counted != self._versions[name]
                wrong = wrong and name not in self._training
            if wrong:
                if modes is None:
                    self._lines[name] = None  # the line that was seen last is not the evaluation's
                self._tell("train-mode-in-evaluation", name)

    def _batches_counted(self, name: str, model: nn.Module) -> int:
        """A number that changes when a batch norm takes a batch into its statistics; -1 where none does."""
        if name not in self._counters:  # asked at every step, and walking through a model takes a while
            self._counters[name] = next(
                (m for m in model.modules() if isinstance(m, _BatchNorm) and m.num_batches_tracked is not None), None
            )
        counter = self._counters[name]
        counted = None if counter is None else counter._buffers.get("num_batches_tracked")
        return -1 if counted is None else int(counted._version)

    def _tell(self, check: str, name: str) -> None:
        if (check, name) in self._said:
            return
        self._said.add((check, name))
        found = _by_mode(self._models[name])
        where = [clean_name(".".join(filter(None, (name, inner)))) for inner in found][:MOST_PLACES]
        self._say(check, {"where": where, "value": len(found), "line": self._lines.get(name)})


def _by_mode(model: nn.Module) -> dict[str, nn.Module]:
    """The modules that compute otherwise in eval mode."""
    return {
        name: module
        for name, module in model.named_modules()
        if (isinstance(module, _DropoutNd) and module.p > 0)
        or (isinstance(module, _BatchNorm) and module.track_running_stats)
    }
