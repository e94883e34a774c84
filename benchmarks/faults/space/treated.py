"""A training with a remedy, as a user would carry it out, and with its fault still in it.

Where the recipe has a knob for it, another value in the recipe; otherwise what can be done around the model and the
optimiser (`benchmarks.faults.treatment`). Nothing here knows what is wrong with the training.
"""

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.faults.space.recipe import Training

Args = Mapping[str, Any]
Changes = Mapping[str, Any]
Turn = Callable[[Training, Args], Changes | None]
"""Other values in a recipe; None where it has no knob for that."""

_NORMED = frozenset({"mlp", "residual", "mixture", "siamese", "embedding", "deep-set"})
"""Architectures that `model.norm` means something for."""
_DROPPING = _NORMED | {"cnn", "cnn-norm", "resnet", "rnn", "lstm", "gru", "encoder", "decoder"}
_OF_TWO_PLAYERS = frozenset({"optimiser.rate", "loop.steps", "loop.batch", "model.width"})
_AROUND_HERE = frozenset({"early-stop", "add-label-smoothing"})
"""Actions that are carried out by `training` below."""


def _rate(training: Training, args: Args) -> Changes | None:
    if "parameters" in args:
        return None
    return {"optimiser.rate": training.optimiser.rate * args["factor"]}


def _bigger_batch(training: Training, args: Args) -> Changes:
    """As many updates as before; a schedule that counts epochs falls by as much in each of them."""
    old, schedule = training.loop.batch, training.schedule
    new = max(old, min(round(old * args["factor"]), training.data.num))
    return {
        "loop.batch": new,
        "schedule.gamma": schedule.gamma if schedule.each_batch else schedule.gamma ** (old / new),
    }


def _smaller_batch(training: Training, args: Args) -> Changes:
    """As many epochs as before."""
    loop = training.loop
    batch = max(1, round(loop.batch * args["factor"]))
    return {"loop.batch": batch, "loop.steps": round(loop.steps * loop.batch / batch)}


def _norm(training: Training, args: Args) -> Changes | None:
    return {"model.norm": "layer"} if training.architecture in _NORMED else None


def _dropout(training: Training, share: float) -> Changes | None:
    return {"model.dropout": share} if training.architecture in _DROPPING else None


def _half_precision(training: Training, args: Args) -> Changes:
    cast = "bfloat16" if training.precision.autocast == "float16" else training.precision.autocast
    return {"precision.autocast": cast, "precision.scaler": False}


def _larger(training: Training, args: Args) -> Changes:
    """Half as wide again; even, for two heads of attention."""
    return {"model.width": 2 * math.ceil(3 * training.model.width / 4)}


def _shorter(training: Training, args: Args) -> Changes | None:
    return {"data.size": max(2, training.data.size // 2)} if training.task in ("sequences", "text") else None


def _accumulate(training: Training, args: Args) -> Changes:
    return {"loop.accumulate": 2 * training.loop.accumulate, "loop.batch": max(1, training.loop.batch // 2)}


TURNS: dict[str, Turn] = {
    "lower-lr": _rate,
    "raise-lr": _rate,
    "clip": lambda t, args: {"loop.clip": args["max_norm"], "loop.closure": False},
    "lengthen-warmup": lambda t, args: {"schedule.warmup_steps": args["steps"]},
    "decay-lr": lambda t, args: {"schedule.kind": "cosine", "schedule.final": 0.1},
    "add-weight-decay": lambda t, args: {"optimiser.weight_decay": args["weight_decay"]},
    "lower-weight-decay": lambda t, args: {"optimiser.weight_decay": t.optimiser.weight_decay * args["factor"]},
    "bigger-batch": _bigger_batch,
    "smaller-batch": _smaller_batch,
    "accumulate-gradients": _accumulate,
    "add-dropout": lambda t, args: _dropout(t, max(args["p"], t.model.dropout)),
    "less-dropout": lambda t, args: _dropout(t, t.model.dropout / 2),
    "add-layernorm": _norm,
    "more-capacity": _larger,
    "train-longer": lambda t, args: {"loop.steps": 2 * t.loop.steps},
    "shorter-sequences": _shorter,
    "use-bf16": _half_precision,
    "use-fp32": lambda t, args: {"precision.autocast": "none", "precision.weights": "float32",
                                 "precision.scaler": False},
    "use-loss-scaling": lambda t, args: {"precision.scaler": True, "precision.unscaled": True},
    "fix-loop": lambda t, args: {"optimiser.eps": args["eps"]} if "eps" in args else None,
}  # fmt: skip
"""What turns a remedy into another recipe, by its action."""


def prescribed(training: Training, action: str, args: Args) -> tuple[Training, bool] | None:
    """The recipe with the remedy, and whether something is left to be done around the model and the optimiser.

    None for what only a person can do.

    Example:
        >>> training = Training(family="regression/mlp", seed=1)
        >>> prescribed(training, "clip", {"max_norm": 0.5})[0].loop.clip
        0.5
        >>> prescribed(training, "fix-loop", {}) is None
        True
    """
    from benchmarks.faults.treatment import can_be_given

    turn = TURNS.get(action)
    changes = turn(training, args) if turn else None
    plays = training.task == "two-player"
    if changes is not None and not (plays and set(changes) - _OF_TWO_PLAYERS):
        return training.changed(changes), False
    if can_be_given(action, args) or (action in _AROUND_HERE and not plays):
        # A closure computes gradients within the step, where a remedy around the step does not see them.
        return training.changed({"loop.closure": False}), True
    return None


def train(recipe: dict[str, Any], run: Path | None, *, action: str, args: Args) -> dict[str, Any]:
    """Train a recipe with a remedy around its model and its optimiser."""
    from benchmarks.faults.scenario import Session
    from benchmarks.faults.space import loop
    from benchmarks.faults.space.recipe import from_json
    from benchmarks.faults.treatment import Treatment

    training = from_json(recipe)
    if action == "add-label-smoothing" and training.loss.kind == "nll":
        training = training.changed({"loss.kind": "cross-entropy"})  # the same, in one step
    treatment = Treatment(action, args, num_steps=training.loop.steps)
    monitor = _keeps_best if action == "early-stop" else treatment
    with treatment.functions(), _smoothed(args["amount"] if action == "add-label-smoothing" else 0.0):
        outcome = loop.train(training, Session(seed=0, folder=Path("unused"), monitor=monitor))
    return {name: getattr(outcome, name) for name in ("quality", "reported", "step_ms", "losses")}


def _keeps_best(model: Any, optimizer: Any, **settings: Any) -> Any:
    """Ends with the weights of the best evaluation."""
    from benchmarks.faults.seat import Seat

    best, kept = math.inf, None

    def look(found: Mapping[str, Any]) -> None:
        nonlocal best, kept
        loss = float(found["loss"]) if "loss" in found else -float(found["metrics"]["score"])
        if loss < best:
            best, kept = loss, copy.deepcopy(model.state_dict())

    def close() -> None:
        if kept is not None:
            model.load_state_dict(kept)

    return Seat(on_evaluate=look, on_close=close)


@contextmanager
def _smoothed(amount: float) -> Iterator[None]:
    """Smooth labels where gradients are wanted, and not where a model is judged."""
    from torch.nn import functional

    plain = functional.cross_entropy

    def smoothed(logits: Any, *args: Any, **kwargs: Any) -> Any:
        return plain(logits, *args, **{**kwargs, "label_smoothing": amount} if logits.requires_grad else kwargs)

    if amount:
        functional.cross_entropy = smoothed
    try:
        yield
    finally:
        functional.cross_entropy = plain
