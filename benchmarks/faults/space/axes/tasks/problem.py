"""What a task gives to a loop: examples, a loss, and how good a model is."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from benchmarks.faults.space.axes.losses import CRITERIA
from benchmarks.faults.space.axes.shapes import Shape
from benchmarks.faults.space.recipe import Training
from torch import Tensor, nn

NUM_VALIDATION = 256

Score = Callable[[nn.Module], float]
Answer = Callable[[nn.Module, Tensor, Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Examples to learn from, and others to be judged by.

    Args:
        shape: Of an example.
        inputs: To learn from, [num, ...].
        targets: What belongs to them.
        val_inputs: Others of the same distribution; not touched by what a fault does to labels.
        val_targets: What belongs to them.
        trivial: The loss of the best predictor that does not look at inputs.
        loss: Of the loop: (model, inputs, targets, reduction).
        score: Another measure of quality in place of the validation loss over `trivial`.
        answer: Gives the targets of a batch, asking the model as it is now; None where they are known.
        target_network: Copies the model, where the loss needs a slower copy of it.
        phases: Parts of the examples that come one after another.
        pretrain: Others to train on before the training begins; None where the model is new.
    """

    shape: Shape
    inputs: Tensor
    targets: Tensor
    val_inputs: Tensor
    val_targets: Tensor
    trivial: float
    loss: Callable[[nn.Module, Tensor, Tensor, str], Tensor]
    score: Score | None = None
    answer: Answer | None = None
    target_network: Callable[[nn.Module], None] | None = None
    phases: int = 1
    pretrain: tuple[Tensor, Tensor] | None = None

    def val_loss(self, model: nn.Module) -> float:
        """On the held-out examples, in the model's present mode."""
        with torch.no_grad():
            return float(self.loss(model, self.val_inputs, self.val_targets, "mean"))

    def quality(self, model: nn.Module) -> float:
        """0 is perfect, 1 as good as the trivial predictor; lower is better."""
        was = model.training
        model.eval()
        try:
            with torch.no_grad():
                return self.score(model) if self.score else self.val_loss(model) / self.trivial
        finally:
            model.train(was)


def generator(training: Training) -> torch.Generator:
    """What draws the data."""
    return torch.Generator().manual_seed(training.randomness)


def supervised(training: Training, shape: Shape, inputs: Tensor, targets: Tensor, **further: object) -> Problem:
    """Split, spoil as the recipe says, and measure the trivial predictor.

    The last 256 examples are for validation. Their targets stay as they are; their inputs have the scale of the others.
    """
    num = len(inputs) - NUM_VALIDATION
    draw = torch.Generator().manual_seed(training.randomness + 1)
    data, criterion = training.data, CRITERIA[training.loss.kind]
    if inputs.is_floating_point():
        inputs = _scaled(inputs, data.scale) + data.offset
    learnt = spoilt(training, targets[:num].clone(), draw)
    val_targets = targets[num:]
    if data.order == "sorted":
        keys = learnt.flatten(1)[:, 0] if learnt.dim() > 1 else learnt
        order = keys.argsort(stable=True)
        inputs = torch.cat([inputs[:num][order], inputs[num:]])
        learnt = learnt[order]

    def loss(model: nn.Module, x: Tensor, y: Tensor, reduction: str) -> Tensor:
        return criterion(model(x), y, reduction)

    found = {"loss": loss, "trivial": trivial(training.loss.kind, val_targets, shape), **further}
    return Problem(
        shape=shape, inputs=inputs[:num], targets=learnt, val_inputs=inputs[num:], val_targets=val_targets, **found
    )  # type: ignore[arg-type]


def _scaled(inputs: Tensor, scale: float) -> Tensor:
    factors = torch.ones(inputs.shape[-1])
    factors[::3] = scale
    return inputs * factors


def spoilt(training: Training, targets: Tensor, draw: torch.Generator) -> Tensor:
    """Training targets as the recipe's faults leave them."""
    data, num = training.data, len(targets)
    if data.targets == "permuted":
        targets = targets[torch.randperm(num, generator=draw)]
    elif data.targets == "neighbour":
        targets = targets.roll(1, 0)
    elif data.targets == "constant":
        targets = targets[:1].expand_as(targets).clone()
    if data.label_noise and targets.is_floating_point():
        targets = targets + data.label_noise * torch.randn(targets.shape, generator=draw)
    elif data.label_noise:
        wrong = torch.rand(targets.shape, generator=draw) < data.label_noise
        drawn = torch.randint(int(targets.max()) + 1, targets.shape, generator=draw)
        targets = torch.where(wrong, drawn, targets)
    if data.outliers and targets.is_floating_point():
        far = torch.rand(num, generator=draw) < data.outliers
        targets[far] *= 30
    return targets


def trivial(kind: str, targets: Tensor, shape: Shape) -> float:
    """The loss of the best constant prediction."""
    criterion = CRITERIA[kind]
    if not targets.is_floating_point():
        counts = torch.bincount(targets.flatten(), minlength=shape.outputs).float() + 1e-6
        logits = counts.log().expand(*targets.shape, shape.outputs)
        return float(criterion(logits, targets, "mean"))
    if kind in ("margin", "logistic"):
        return float(criterion(torch.zeros(len(targets), 2), targets, "mean"))
    centre = targets.median(0).values if kind == "l1" else targets.mean(0)
    return float(criterion(centre.expand_as(targets), targets, "mean"))
