"""The whole recipe of a training as plain data: what is trained on what, how, and with which slips in the loop.

A fault is nothing but other values in here, so that a training and its twin can be laid side by side.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Data:
    """What is learnt from.

    Args:
        num: Examples to learn from.
        size: Of the task: dimensions, pixels to a side, length of sequences or number of nodes.
        classes: To tell apart, where there are any.
        noise: In inputs, relative to what the task calls usual.
        label_noise: Share of wrong training labels; for numbers, noise in standard deviations.
        order: `shuffled` anew each epoch, or `sorted` by target.
        targets: `right`, `permuted` among examples, `constant`, of the `neighbour`, or `not-shifted` (of a language
            model: the token itself instead of the next one).
        scale: Factor of a third of the inputs.
        offset: Added to all inputs.
        outliers: Share of training targets that are 30 times too large.
        drift_step: From here on inputs drift, by `drift` standard deviations in all, reached 50 steps later.
        drift: See `drift_step`.
        bad_step: At this step inputs are multiplied by `bad_factor` and targets are shuffled; -1 for never.
        bad_factor: See `bad_step`.
        nan_step: At this step an input is NaN; -1 for never.
        wait_s: Each batch takes that long to come.
    """

    num: int = 1024
    size: int = 12
    classes: int = 4
    noise: float = 1.0
    label_noise: float = 0.0
    order: str = "shuffled"
    targets: str = "right"
    scale: float = 1.0
    offset: float = 0.0
    outliers: float = 0.0
    drift_step: int = -1
    drift: float = 0.0
    bad_step: int = -1
    bad_factor: float = 1.0
    nan_step: int = -1
    wait_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Model:
    """What learns.

    Args:
        width: Units or channels of a hidden layer.
        depth: Hidden layers or blocks.
        activation: `relu`, `gelu`, `tanh`, `silu` or `sigmoid`.
        norm: `none`, `batch` or `layer`, where the architecture leaves a choice.
        dropout: Share of units dropped.
        init: `default`, `scaled` (all matrices by `init_scale`), `constant` (all matrices are it) or `biased` (hidden
            biases are minus it).
        init_scale: See `init`.
        recurrent_scale: Factor of recurrent matrices.
        attention_scale: Factor of attention logits.
        norm_momentum: Of running statistics of batch normalisation.
        detached: Whether the graph is cut behind the first layer.
    """

    width: int = 48
    depth: int = 2
    activation: str = "relu"
    norm: str = "none"
    dropout: float = 0.0
    init: str = "default"
    init_scale: float = 1.0
    recurrent_scale: float = 1.0
    attention_scale: float = 1.0
    norm_momentum: float = 0.1
    detached: bool = False


@dataclass(frozen=True, kw_only=True)
class Loss:
    """What is minimised.

    Args:
        kind: A name in `axes.losses`.
        reduction: `mean` or `sum`.
        softmax: Whether the model ends with a softmax although the loss has one.
        unit: The loss is multiplied by it; targets in other units do the same.
    """

    kind: str = "mse"
    reduction: str = "mean"
    softmax: bool = False
    unit: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Optimiser:
    """How weights are moved.

    Args:
        name: A name in `axes.optimisers`.
        rate: Of learning, at its peak.
        momentum: Of those that have one.
        eps: Of those like Adam.
        weight_decay: As the optimiser understands it.
        head_rate: Factor of the last layer's rate; 1 for a single group.
        left_out: Share of parameter tensors, from the input on, that no group holds.
        frozen: Share of parameter tensors, from the input on, that need no gradient.
    """

    name: str = "adam"
    rate: float = 1e-3
    momentum: float = 0.9
    eps: float = 1e-8
    weight_decay: float = 0.0
    head_rate: float = 1.0
    left_out: float = 0.0
    frozen: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How the rate changes.

    Args:
        kind: `constant`, `cosine`, `linear`, `exponential` (to `final` at the end) or `epochs` (by `gamma` at the end
            of each epoch).
        warmup_steps: Linear, from nearly nothing.
        final: Share of the peak that is left at the end.
        gamma: See `kind`.
        each_batch: Whether a schedule of epochs is stepped at each batch.
        spike_step: For `spike_steps` steps from here on the rate is `spike_factor` times as high; -1 for never.
        spike_steps: See `spike_step`.
        spike_factor: See `spike_step`.
    """

    kind: str = "constant"
    warmup_steps: int = 0
    final: float = 0.01
    gamma: float = 0.8
    each_batch: bool = False
    spike_step: int = -1
    spike_steps: int = 3
    spike_factor: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Loop:
    """How the loop is written.

    Args:
        steps: Updates in all.
        batch: Examples to a forward pass.
        accumulate: Forward passes to an update.
        accumulate_scaled: Whether the loss is divided by `accumulate`.
        zero_grad: `before` the forward pass, `after` the update, `never`, or `too-early` (between backward and step).
        clip: Largest norm of the gradient, 0 for none.
        closure: Whether the optimiser is given a closure.
        evaluate_every: Updates from one evaluation to the next; 0 for at the end of each epoch, -1 for never.
        tells_metrics: Whether evaluations tell a metric beside the loss.
        tells_data: Whether batches are drawn through `watch.data`.
        tells_epochs: Whether the end of an epoch is told.
        tells_floats: Whether the loss is told as a float instead of a tensor.
        train_mode: Whether the model is in train mode while it trains.
        eval_mode: Whether it is in eval mode while it is evaluated.
        reset_every: At this interval `reset` is made anew; 0 for never.
        reset: `optimiser` or `model`.
        lost_step: Here the optimiser's state is lost, as by a resume without it; -1 for never.
        jump_step: Here all matrices are multiplied by `jump_factor`; -1 for never.
        jump_factor: See `jump_step`.
        sync_every: Updates from one copy of a target network to the next; 0 for never.
        kept_kb: Memory that each step keeps.
        slower_ms: Each step takes that much longer than the one before.
    """

    steps: int = 300
    batch: int = 32
    accumulate: int = 1
    accumulate_scaled: bool = True
    zero_grad: str = "before"
    clip: float = 0.0
    closure: bool = False
    evaluate_every: int = 0
    tells_metrics: bool = True
    tells_data: bool = True
    tells_epochs: bool = True
    tells_floats: bool = False
    train_mode: bool = True
    eval_mode: bool = True
    reset_every: int = 0
    reset: str = "optimiser"
    lost_step: int = -1
    jump_step: int = -1
    jump_factor: float = 1.0
    sync_every: int = 20
    kept_kb: int = 0
    slower_ms: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Precision:
    """In which numbers.

    Args:
        autocast: `none`, `bfloat16` or `float16`.
        weights: `float32` or `bfloat16`.
        scaler: Whether a `GradScaler` scales the loss.
        unscaled: Whether gradients are unscaled before they are clipped.
    """

    autocast: str = "none"
    weights: str = "float32"
    scaler: bool = False
    unscaled: bool = True


@dataclass(frozen=True, kw_only=True)
class Training:
    """A recipe; `replicate` alone tells those apart that differ in data, initialisation and order only."""

    family: str
    seed: int
    replicate: int = 0
    data: Data = field(default_factory=Data)
    model: Model = field(default_factory=Model)
    loss: Loss = field(default_factory=Loss)
    optimiser: Optimiser = field(default_factory=Optimiser)
    schedule: Schedule = field(default_factory=Schedule)
    loop: Loop = field(default_factory=Loop)
    precision: Precision = field(default_factory=Precision)

    @property
    def task(self) -> str:
        """The first half of the family."""
        return self.family.split("/")[0]

    @property
    def architecture(self) -> str:
        """The second half of the family."""
        return self.family.split("/")[1]

    @property
    def randomness(self) -> int:
        """The seed of everything random in the training: not that of the recipe, equal for a training and its twin."""
        told = f"{self.family} {self.seed} {self.replicate}".encode()
        return int.from_bytes(hashlib.sha256(told).digest()[:4], "big") // 2

    @property
    def key(self) -> str:
        """A short name of exactly this recipe."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:16]

    def changed(self, changes: Mapping[str, Any]) -> "Training":
        """The same with other values, by names such as `optimiser.rate`.

        Example:
            >>> Training(family="regression/mlp", seed=1).changed({"loop.clip": 0.5}).loop.clip
            0.5
        """
        found = self
        for name, value in changes.items():
            part, _, leaf = name.partition(".")
            new = dataclasses.replace(getattr(found, part), **{leaf: value}) if leaf else value
            found = dataclasses.replace(found, **{part: new})
        return found

    def differences(self, other: "Training") -> set[str]:
        """The names of the values that differ."""
        ours, theirs = _flat(self.to_json()), _flat(other.to_json())
        return {name for name in ours if ours[name] != theirs[name]}

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return dataclasses.asdict(self)


def from_json(told: Mapping[str, Any]) -> Training:
    """What `Training.to_json` gave."""
    parts = {"data": Data, "model": Model, "loss": Loss, "optimiser": Optimiser, "schedule": Schedule, "loop": Loop,
             "precision": Precision}  # fmt: skip
    return Training(**{name: parts[name](**value) if name in parts else value for name, value in told.items()})


def _flat(told: Mapping[str, Any]) -> dict[str, Any]:
    flat = {}
    for name, value in told.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{leaf}": inner for leaf, inner in value.items()}
        else:
            flat[name] = value
    return flat
