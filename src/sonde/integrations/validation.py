"""Whether a loss that a script computes is one of the training or of a validation."""

import itertools
from typing import Any, final

import torch
from torch import Tensor, nn

from sonde.integrations.evaluations import Evaluations, is_training_data, split_in
from sonde.integrations.finding import user_frames
from sonde.integrations.losses import Call, Origin
from sonde.integrations.passes import Passes

_MOST_CALLERS = 8


@final
class Validation:
    """Finds the validation loss: what computes the training's loss, called without gradients or in eval mode.

    An evaluation that keeps gradients is one where no `backward` follows. What is computed from an output of the
    training itself (a number to be printed), on the data set of the training, or where a variable of the function says
    `"train"`, is none. Evaluations of different loaders, and of different calls of `model.eval()` where there is no
    loader, are kept apart.

    Args:
        passes: Over loaders.
    """

    def __init__(self, passes: Passes) -> None:
        self._passes, self._evaluations = passes, Evaluations()
        self._source: Call | None = None
        """How the training computes its loss."""
        self._factor = 1.0
        self._why_unknown = ""
        self._unclaimed: tuple[Any, Call, Tensor] | None = None
        self._in_eval_mode = self._in_evaluation = self._is_followed = False
        self._num_eval_calls = 0
        self._seen = self._found = False

    @property
    def source(self) -> str:
        """What computes the loss of the training; empty where that is not known."""
        return "" if self._source is None else self._source.source

    def may_be_one(self, value: Any) -> bool:
        """Whether a loss that was computed may be one of an evaluation."""
        return self._in_eval_mode or not (isinstance(value, Tensor) and value.requires_grad)

    @property
    def is_in_doubt(self) -> bool:
        """Whether a loss was computed in eval mode that `backward` may be called on."""
        return self._unclaimed is not None

    def trained(self, origin: Origin | None) -> None:
        """`backward` is called on a loss of this origin; None where nobody asked, which they must in doubt."""
        self._in_evaluation = False
        if origin is None:
            return
        if self._unclaimed is not None and self._unclaimed[1] is not origin.call:
            self._evaluations.add(*self._unclaimed)
        self._unclaimed = None
        if origin.call is None:
            self._why_unknown = self._why_unknown or origin.reason
        else:
            self._source, self._factor = origin.call, origin.factor

    def give_up(self, reason: str) -> None:
        """There is no one loss of the training."""
        self._source, self._why_unknown = None, reason

    def called(self, model: nn.Module) -> bool:
        """A whole model is about to be called; whether that is an evaluation."""
        self._is_followed = True
        self._in_eval_mode = not model.training
        self._in_evaluation = self._in_eval_mode or not torch.is_grad_enabled()
        self._seen |= not torch.is_grad_enabled()
        return self._in_evaluation

    def eval_called(self) -> None:
        """A model was put into eval mode."""
        self._num_eval_calls += 1

    def computed(self, call: Call, value: Tensor) -> None:
        """A loss was computed, by the training or by an evaluation."""
        if self._source is None:
            # Before the first step nobody knows yet which of them is the training's: that is told when they are taken.
            if self._why_unknown or torch.is_grad_enabled():
                return
        elif call.source != self.source or (value.requires_grad and not self._in_eval_mode):
            return
        if self._is_followed and not self._in_evaluation:
            return
        # Variables of the whole script live too long to say what is being done now.
        frames = (f for f in itertools.islice(user_frames(), _MOST_CALLERS) if f.f_code.co_name != "<module>")
        split = next((word for frame in frames if (word := split_in(frame.f_locals))), "")
        now, training = self._passes.current, self._passes.training
        is_fit = training is not None and now is not training and now is not None and now.reads_like(training)
        if is_fit or is_training_data(split):
            return
        where = now if now is not None and now is not training else (self._num_eval_calls, split)
        if self._unclaimed is not None:
            self._evaluations.add(*self._unclaimed)
            self._unclaimed = None
        if value.requires_grad:
            self._unclaimed = where, call, value.detach()
        else:
            self._evaluations.add(where, call, value)

    def finish(self) -> None:
        """No `backward` follows any more."""
        if self._unclaimed is not None:
            self._evaluations.add(*self._unclaimed)
            self._unclaimed = None

    def take(self, num_micro: int) -> dict[str, Tensor]:
        """The losses of the evaluations since the last call, in the unit of the training's; `loss` is the first.

        Args:
            num_micro: Calls of `backward` to a step, whose losses are added up.
        """
        if self._source is None or not len(self._evaluations):
            return {}
        factor = self._factor * num_micro
        # Not by the rounding of 8 × 1/8.
        found = self._evaluations.take(self._source, 1.0 if abs(factor - 1) < 1e-6 else factor)
        self._found |= bool(found)
        return found

    @property
    def trouble(self) -> str:
        """Why no validation loss was found though the model was evaluated; empty where one was, or it was not."""
        if self._found or not self._seen:
            return ""
        return self._why_unknown or "the loss of the training was not seen in an evaluation"
