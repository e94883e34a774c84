"""What can be done about a finding: a closed vocabulary of actions, and how safe each proposal is."""

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sonde.core.json_fields import member, one_of, refusals_as_format_errors, text
from sonde.core.strict_json import Json


class Safety(enum.StrEnum):
    """Who may carry out a remedy."""

    AUTOMATIC = "automatic"
    """Sonde may by itself: it cannot change the path of the weights."""
    OPT_IN = "opt-in"
    """It changes the path of the weights: only where the user asked for it."""
    ADVICE = "advice"
    """It is shown only; the user carries it out."""


class Action(enum.StrEnum):
    """What a remedy does; its value is what stands in JSON."""

    LOWER_LR = "lower-lr"
    RAISE_LR = "raise-lr"
    CLIP = "clip"
    LENGTHEN_WARMUP = "lengthen-warmup"
    SMOOTHER_SCHEDULE = "smoother-schedule"
    SLOWER_SCHEDULE = "slower-schedule"
    DECAY_LR = "decay-lr"
    USE_BF16 = "use-bf16"
    USE_FP32 = "use-fp32"
    USE_LOSS_SCALING = "use-loss-scaling"
    ADD_DROPOUT = "add-dropout"
    ADD_WEIGHT_DECAY = "add-weight-decay"
    LOWER_WEIGHT_DECAY = "lower-weight-decay"
    ADD_LABEL_SMOOTHING = "add-label-smoothing"
    MORE_CAPACITY = "more-capacity"
    LESS_CAPACITY = "less-capacity"
    MORE_DATA = "more-data"
    AUGMENT_DATA = "augment-data"
    ADD_RESIDUALS = "add-residuals"
    ADD_LAYERNORM = "add-layernorm"
    REINITIALISE = "reinitialise"
    ADD_QK_NORM = "add-qk-norm"
    ADD_Z_LOSS = "add-z-loss"
    BIGGER_BATCH = "bigger-batch"
    ACCUMULATE_GRADIENTS = "accumulate-gradients"
    FIX_LOOP = "fix-loop"
    NORMALISE_INPUTS = "normalise-inputs"
    SKIP_BATCH = "skip-batch"
    INSPECT_BATCH = "inspect-batch"
    EARLY_STOP = "early-stop"
    TRAIN_LONGER = "train-longer"
    MORE_LOADER_WORKERS = "more-loader-workers"
    FREE_GRAPH = "free-graph"
    SMALLER_BATCH = "smaller-batch"
    SHORTER_SEQUENCES = "shorter-sequences"
    LESS_DROPOUT = "less-dropout"
    CHECK_DATA_LOADING = "check-data-loading"
    CHECK_DATASET_SIZE = "check-dataset-size"
    SAMPLE_MORE_OFTEN = "sample-more-often"
    SAVE_SNAPSHOT = "save-snapshot"

    @property
    def meaning(self) -> str:
        """What it does, in one line."""
        return _MEANINGS[self]


_MEANINGS = {
    Action.LOWER_LR: "multiply the learning rate by a factor below 1",
    Action.RAISE_LR: "multiply the learning rate by a factor above 1",
    Action.CLIP: "clip the gradient norm",
    Action.LENGTHEN_WARMUP: "take more steps to reach the peak of the learning rate",
    Action.SMOOTHER_SCHEDULE: "replace jumps of the learning rate by a smooth curve, such as a cosine",
    Action.SLOWER_SCHEDULE: "let the learning rate fall later or more slowly",
    Action.DECAY_LR: "let the learning rate fall towards the end",
    Action.USE_BF16: "compute in bfloat16 instead of float16",
    Action.USE_FP32: "compute in float32",
    Action.USE_LOSS_SCALING: "scale the loss of float16 training with a `GradScaler`",
    Action.ADD_DROPOUT: "add dropout",
    Action.ADD_WEIGHT_DECAY: "add weight decay",
    Action.LOWER_WEIGHT_DECAY: "use less weight decay",
    Action.ADD_LABEL_SMOOTHING: "smooth the labels of the cross-entropy",
    Action.MORE_CAPACITY: "make the model wider or deeper by one step",
    Action.LESS_CAPACITY: "make the model narrower or shallower by one step",
    Action.MORE_DATA: "train on more data",
    Action.AUGMENT_DATA: "augment the data",
    Action.ADD_RESIDUALS: "add residual connections",
    Action.ADD_LAYERNORM: "add normalisation layers, such as LayerNorm",
    Action.REINITIALISE: "start from another initialisation (He, Xavier or LSUV)",
    Action.ADD_QK_NORM: "normalise the queries and keys of the attention",
    Action.ADD_Z_LOSS: "add a z-loss, which keeps the log-sum-exp of the output near 0",
    Action.BIGGER_BATCH: "use a larger batch",
    Action.ACCUMULATE_GRADIENTS: "accumulate gradients over more micro-batches",
    Action.FIX_LOOP: "correct a line of the training loop",
    Action.NORMALISE_INPUTS: "bring inputs to mean 0 and standard deviation 1",
    Action.SKIP_BATCH: "skip the step of a bad batch",
    Action.INSPECT_BATCH: "look at the inputs and targets of a batch",
    Action.EARLY_STOP: "stop the training, and keep the best checkpoint",
    Action.TRAIN_LONGER: "train for more epochs",
    Action.MORE_LOADER_WORKERS: "give the data loader more workers",
    Action.FREE_GRAPH: "free the autograd graph by detaching what is kept between steps",
    Action.SMALLER_BATCH: "use a smaller batch, which means more steps for the same data",
    Action.SHORTER_SEQUENCES: "train on shorter sequences, at first or for good",
    Action.LESS_DROPOUT: "use less dropout",
    Action.CHECK_DATA_LOADING: "check how examples are read, ordered and put together",
    Action.CHECK_DATASET_SIZE: "count the examples that training really sees",
    Action.SAMPLE_MORE_OFTEN: "measure in more detail for some steps",
    Action.SAVE_SNAPSHOT: "save a snapshot of model and optimiser",
}

# Training is sacred: only these leave the path of the weights as it was, so only these may be automatic.
_HARMLESS = frozenset({Action.SAMPLE_MORE_OFTEN, Action.SAVE_SNAPSHOT})


@dataclass(frozen=True, kw_only=True, slots=True)
class Remedy:
    """A proposal with concrete values. Printed, it says so where Sonde can carry it out by itself.

    Args:
        action: What to do.
        args: Its values, such as `{"factor": 0.3}`: what JSON holds, finite; numpy numbers become plain ones.
        safety: Who may do it. `automatic` only for actions that cannot change the path of the weights.
        text: The proposal as a person reads it.

    Example:
        >>> remedy = Remedy(
        ...     action=Action.LOWER_LR,
        ...     args={"factor": 0.3},
        ...     safety=Safety.OPT_IN,
        ...     text="lower the learning rate from 1e-3 to 3e-4",
        ... )
        >>> print(remedy)
        [opt-in]  lower the learning rate from 1e-3 to 3e-4
        >>> Remedy.from_json(remedy.to_json()) == remedy
        True
    """

    action: Action
    args: Mapping[str, Json] = field(default_factory=dict, hash=False)
    safety: Safety
    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "action", Action(self.action))
        object.__setattr__(self, "safety", Safety(self.safety))
        object.__setattr__(self, "args", _plain_args(self.args))
        if not self.text.strip():
            raise ValueError("`Remedy(text=...)` must say what to do, got nothing.")
        if self.safety is Safety.AUTOMATIC and self.action not in _HARMLESS:
            raise ValueError(
                f"`Remedy(safety='automatic')` is for {' and '.join(sorted(_HARMLESS))} only, "
                f"got {self.action!s}, which can change the path of the weights; use 'opt-in' or 'advice'."
            )

    def __str__(self) -> str:
        return self.text if self.safety is Safety.ADVICE else f"[{self.safety}]  {self.text}"

    def to_json(self) -> dict[str, Json]:
        return {
            "action": self.action.value,
            "args": dict(self.args),
            "safety": self.safety.value,
            "text": self.text,
        }

    @classmethod
    def from_json(cls, data: Json) -> "Remedy":
        """The remedy that `to_json` wrote; further keys are ignored.

        Raises:
            FormatError: a key is missing or holds something else; the message names it.
        """
        with refusals_as_format_errors():
            return cls(
                action=member(data, "action", one_of(Action)),
                args=member(data, "args", lambda value: value),
                safety=member(data, "safety", one_of(Safety)),
                text=member(data, "text", text),
            )


def _plain_args(args: object) -> dict[str, Json]:
    if not isinstance(args, Mapping) or not all(isinstance(key, str) for key in args):
        raise TypeError(f"`Remedy(args=...)` must be a mapping with names as keys, got {args!r}.")
    try:  # there and back: exactly what a reader of the JSON gets, sharing nothing with the caller
        plain: dict[str, Json] = json.loads(json.dumps(dict(args), allow_nan=False, default=_unwrap))
    except (TypeError, ValueError) as error:
        raise ValueError(
            "`Remedy(args=...)` must hold finite numbers, text, booleans, None, lists and mappings, "
            f"got {args!r}: {error}."
        ) from error
    return plain


def _unwrap(value: Any) -> Json:
    import numpy as np  # here: `sonde run` reads its configuration before a script that may have no use for numpy

    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not JSON")
