"""Whether a language model is asked for the very tokens that it is given."""

from collections.abc import Iterator, Mapping
from typing import Any, final

import torch
from torch import Tensor, nn

from sonde.core.records import Float64
from sonde.probes.apart import apart
from sonde.probes.facts import Facts
from sonde.probes.graph_nodes import saved
from sonde.probes.hooks import Hooks
from sonde.probes.loss_graphs import loss_node
from sonde.probes.seams import BACKWARD, Backward
from sonde.probes.stacks import user_line

_LEAST_TOKENS = 32
_MOST_TOKENS = 2**20
_CONFIRMED = 3  # iterations in a row
_ALL = 0.999


@final
class CopiedTargets:
    """Compares the classes of a cross-entropy, place by place, with what the model was given.

    - `targets-are-inputs`: the model's one integer input of two or more dimensions has as many tokens as the loss has
      targets, and they are the same ones at 99.9% of the places that the loss counts, in three iterations in a row;
      `value` is the share, `num` the targets of one of them.

    Targets are those in the graph of the loss that `backward` is called on.
    """

    def __init__(self, models: Mapping[str, nn.Module], facts: Facts, hooks: Hooks) -> None:
        self._models, self._facts, self._hooks = models, facts, hooks
        self._tokens: list[Tensor] = []
        self._listens = False
        self._in_a_row = 0

    def attach(self) -> None:
        """An iteration begins that is looked at."""
        self._tokens, self._listens = [], False
        if not self._facts.is_said("targets-are-inputs"):
            for model in self._models.values():
                self._hooks.before(model, self._given)

    def _given(self, _model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if torch.is_grad_enabled():
            found = [one for one in _tensors((args, kwargs)) if one.dtype in (torch.int64, torch.int32)]
            self._tokens = [one for one in found if one.dim() >= 2]
            if len(self._tokens) == 1 and not self._listens:
                self._listens = True
                self._hooks.listen(BACKWARD, self._hear)

    def _hear(self, event: Backward) -> None:
        tensors = event.tensors if isinstance(event.tensors, Tensor) else next(iter(event.tensors), None)
        if event.done or len(self._tokens) != 1 or not isinstance(tensors, Tensor) or tensors.numel() != 1:
            return
        (tokens,), self._tokens = self._tokens, []
        kind, node = loss_node(tensors)
        targets = saved(node, "target") if kind == "nll" else None
        if type(targets) is not Tensor or targets.device != tokens.device:
            return
        if targets.numel() != tokens.numel() or not _LEAST_TOKENS <= tokens.numel() <= _MOST_TOKENS:
            self._in_a_row = 0
            return
        line = user_line()
        with apart(tokens.device):
            counted = targets.reshape(-1) != getattr(node, "_saved_ignore_index", -100)
            same = (targets.reshape(-1) == tokens.reshape(-1)) & counted
            numbers = torch.stack([same.sum(), counted.sum()]).double()
        self._facts.judge([numbers], lambda numbers: self._judge(line, numbers))

    def _judge(self, line: str | None, numbers: Float64) -> None:
        same, num = numbers.tolist()
        self._in_a_row = self._in_a_row + 1 if num >= _LEAST_TOKENS and same >= _ALL * num else 0
        if self._in_a_row >= _CONFIRMED:
            self._facts.say_once("targets-are-inputs", value=same / num, num=int(num), line=line)


def _tensors(given: Any) -> Iterator[Tensor]:
    """All tensors in tuples, lists and dictionaries."""
    if isinstance(given, Tensor):
        yield given
    elif isinstance(given, Mapping):
        for one in given.values():
            yield from _tensors(one)
    elif isinstance(given, tuple | list):
        for one in given:
            yield from _tensors(one)
