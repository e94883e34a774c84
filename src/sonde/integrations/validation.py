"""Whether a loss that a script computes is one of the training or of a validation."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn

from sonde.integrations.evaluations import Evaluations
from sonde.integrations.losses import Call, Origin, numbers_of, reached
from sonde.integrations.passes import Pass, Passes
from sonde.integrations.splits import Data, Memory, Place, Speech, is_rehearsal, names_of, words

_get_sequence_nr = torch._C._autograd._get_sequence_nr
_MOST_UNCLAIMED = 256  # losses of one step; an evaluation of a large set that keeps gradients has more


class _Unclaimed(NamedTuple):
    """A loss of a model in eval mode, with gradients: of an evaluation, unless it is differentiated."""

    place: Place
    call: Call
    value: Tensor
    nodes: frozenset[int]
    """Of its graph, by autograd's numbers: its own, and those of what it is computed from; none where it has none."""
    start: int
    """Autograd's number when its model was called."""
    memory: Memory
    """What it was computed from."""


@final
class Validation:
    """Finds the validation loss: what computes the training's loss, called without gradients or in eval mode.

    What is differentiated is training, whatever the mode: a loss of a model in eval mode with gradients is one of an
    evaluation if an optimiser makes its next step, and until then neither that loss nor another of the same output of
    the model was differentiated. What is computed from an output of the training itself (a number to be printed) is
    none, and neither is one on the data of the training: on the rows of its data set, or on the memory that its targets
    are read from; or where a variable (`split = "train"`), the names of the loader, or the line of the script say so.
    Evaluations of different loaders, and of different places of the script and calls of `model.eval()` where there is
    no loader, are kept apart.

    Args:
        passes: Over loaders.
    """

    def __init__(self, passes: Passes) -> None:
        self._passes, self._evaluations = passes, Evaluations()
        self._speech, self._memory = Speech(), Memory()
        self._source: Call | None = None
        """How the training computes its loss."""
        self._factor = 1.0
        self._why_unknown = ""
        self._unclaimed: list[_Unclaimed] = []
        self._start = 0
        """Autograd's number when a model was called last."""
        self._in_eval_mode = self._in_evaluation = self._is_followed = self._has_gradients = False
        self._num_eval_calls = 0
        self._seen = self._found = self._is_fit_only = self._is_mixed = False

    @property
    def source(self) -> str:
        """What computes the loss of the training; empty where that is not known."""
        return "" if self._source is None else self._source.source

    def may_be_one(self, value: Any) -> bool:
        """Whether a loss that was computed may be one of an evaluation."""
        return self._in_eval_mode or not (isinstance(value, Tensor) and value.requires_grad)

    @property
    def has_any(self) -> bool:
        """Whether an evaluation is to be taken."""
        return len(self._evaluations) > 0

    @property
    def is_in_doubt(self) -> bool:
        """Whether a loss was computed in eval mode that may yet be differentiated."""
        return bool(self._unclaimed)

    def differentiated(self, tensors: Sequence[Any]) -> None:
        """These are about to be differentiated: what they are computed from is no evaluation."""
        self._in_evaluation = False
        if not self._unclaimed:
            return
        looked_for = frozenset().union(*(one.nodes for one in self._unclaimed))
        for root in (t.grad_fn for t in tensors if isinstance(t, Tensor)):
            if root is None:
                continue
            found = reached(root, looked_for)
            trained = {one.start for one in self._unclaimed if one.nodes & found}
            if root._sequence_nr() >= self._start:  # so is what was detached, of the same output
                trained |= {one.start for one in self._unclaimed if one.start == self._start and not one.nodes}
            for one in self._unclaimed:
                if one.start in trained and one.call.source == self.source:
                    self._memory = one.memory
            self._unclaimed = [one for one in self._unclaimed if one.start not in trained]

    def trained(self, origin: Origin) -> None:
        """`backward` is called on a loss of this origin."""
        if origin.call is None:
            self._why_unknown = self._why_unknown or origin.reason
        else:
            self._source, self._factor = _larger(origin.call, self._source), origin.factor

    def trains_here(self) -> None:
        """Remember what the script says where it trains: it says nothing about an evaluation."""
        self._speech.training()

    def give_up(self, reason: str) -> None:
        """There is no one loss of the training."""
        self._source, self._why_unknown = None, reason

    def called(self, model: nn.Module) -> bool:
        """A whole model is about to be called; whether that is an evaluation for certain."""
        self._is_followed = True
        self._in_eval_mode = not model.training
        self._in_evaluation = self._in_eval_mode or not torch.is_grad_enabled()
        self._start, self._has_gradients = _get_sequence_nr(), torch.is_grad_enabled()
        self._seen |= not self._has_gradients
        return not self._has_gradients

    def eval_called(self) -> None:
        """A model was put into eval mode."""
        self._num_eval_calls += 1

    def read(self, source: str, given: Sequence[Any]) -> None:
        """The training computes a loss from these."""
        if source == self.source or self._source is None:
            self._memory.training(given)

    def computed(
        self, call: Call, value: Tensor, given: Sequence[Any] = (), weigh: Callable[[Call], Call] | None = None
    ) -> None:
        """A loss was computed, by the training or by an evaluation.

        Args:
            call: How.
            value: It.
            given: From what.
            weigh: What its values count together; asked where it is an evaluation's.
        """
        if self._source is None:
            # Before the first step nobody knows yet which of them is the training's: that is told when they are taken.
            if self._why_unknown or torch.is_grad_enabled():
                return
        elif call.source != self.source or (value.requires_grad and not self._in_eval_mode):
            return
        if self._is_followed and not self._in_evaluation:
            return
        data, place = self._place(given)
        # Checkpointing calls a model without gradients, and its outputs have some.
        may_be_trained = self._in_eval_mode and (self._has_gradients or value.requires_grad)
        if not may_be_trained:
            self._is_fit_only |= data == "training"
            self._is_mixed |= data == "unclear"
        if data in ("training", "unclear") or is_rehearsal():
            return
        if weigh is not None:
            call = weigh(call)
        if not may_be_trained:
            self._evaluations.add(place, call, value)
            return
        memory, nodes = Memory(), numbers_of((value, *given)) if value.requires_grad else frozenset[int]()
        memory.remember(given)
        self._unclaimed.append(_Unclaimed(place, call, value.detach(), nodes, self._start, memory))
        if len(self._unclaimed) > _MOST_UNCLAIMED:
            self._evaluations.add(*self._unclaimed.pop(0)[:3])

    def _place(self, given: Sequence[Any]) -> tuple[Data, Place]:
        """Which data this evaluation is on, and what tells it from others."""
        now, training = self._passes.current, self._passes.training
        data, place = self._speech.place()
        if now is None or now is training:
            data = "training" if self._memory.has(given) else data
            if not place.is_known:  # the same lines may be gone through for one set after another
                place = place._replace(what=(self._num_eval_calls, place.what))
        elif data != "training" or not place.is_known:  # the loader says more than a line, and less than a variable
            if now.says is None:
                now.says = words(names_of(now.loader()))
            is_fit = now.says == "training" or (training is not None and now.reads_like(training))
            data, place = ("training" if is_fit else "other"), Place(now, is_known=True)
        return data, place

    def settle(self) -> None:
        """What was not differentiated until now, as an optimiser makes its step or the script ends, never will be."""
        for one in self._unclaimed:
            self._evaluations.add(one.place, one.call, one.value)
        self._unclaimed = []

    def take(self, num_micro: int) -> dict[str, Tensor]:
        """The losses of the evaluations since the last call, in the unit of the training's; `loss` is the first.

        Args:
            num_micro: Calls of `backward` to a step, whose losses are added up.
        """
        if self._source is None or not len(self._evaluations):
            return {}
        if (training := self._passes.training) is not None:
            # What was evaluated before the first step may turn out to be what is trained on.
            self._evaluations.drop(lambda what: isinstance(what, Pass) and what.reads_like(training))
        factor = self._factor * (1 if self._source.reduction == "share" else num_micro)
        # Not by the rounding of 8 × 1/8.
        found = self._evaluations.take(self._source, 1.0 if abs(factor - 1) < 1e-6 else factor)
        self._found |= bool(found)
        return found

    @property
    def trouble(self) -> str:
        """Why no validation loss was found though the model was evaluated; empty where one was, or it was not."""
        if self._found or not self._seen:
            return ""
        if self._why_unknown:
            return self._why_unknown
        if self._is_mixed or self._evaluations.num_ambiguous:
            return "there are several evaluations, and nothing says which is on other data than the training's"
        if self._is_fit_only:
            return "the evaluations are on the data of the training"
        return "the loss of the training was not seen in an evaluation"


def _larger(call: Call, before: Call | None) -> Call:
    """The call, as large as a whole batch: that is the unit of a sum, and the last batch of an epoch may be smaller."""
    if before is None or before[:2] != call[:2] or call.reduction != "sum":
        return call
    weight = call.weight
    if weight is not None and before.weight is not None:
        weight = torch.maximum(weight, before.weight.to(weight.device))
    return call._replace(rows=max(call.rows, before.rows), values=max(call.values, before.values), weight=weight)
