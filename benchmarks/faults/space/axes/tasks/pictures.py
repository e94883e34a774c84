"""Tasks over images: which pattern is shown, or the image itself."""

import torch
from benchmarks.faults.space.axes.shapes import Shape
from benchmarks.faults.space.axes.tasks.problem import NUM_VALIDATION, Problem, generator, supervised
from benchmarks.faults.space.recipe import Training
from torch import Tensor
from torch.nn import functional

SIDE = 12


def patterns(training: Training, draw: torch.Generator, *, turned: float = 0.0) -> tuple[Tensor, Tensor]:
    """A smooth pattern a class, moved a little."""
    data = training.data
    coarse = torch.randn(data.classes, 1, 4, 4, generator=draw)
    coarse = coarse + turned * torch.randn(coarse.shape, generator=draw)
    shown = functional.interpolate(coarse, size=(SIDE + 4, SIDE + 4), mode="bilinear")
    num = data.num + NUM_VALIDATION
    labels = torch.randint(data.classes, (num,), generator=draw)
    moves = torch.randint(5, (num, 2), generator=draw).tolist()
    cut = [shown[label, :, y : y + SIDE, x : x + SIDE] for label, (y, x) in zip(labels.tolist(), moves, strict=True)]
    images = torch.stack(cut)
    return images + 0.6 * data.noise * torch.randn(images.shape, generator=draw), labels


def images(training: Training) -> Problem:
    """Which pattern is shown."""
    shown, labels = patterns(training, generator(training))
    return supervised(training, Shape(kind="image", length=SIDE, outputs=training.data.classes), shown, labels)


def image_autoencoding(training: Training) -> Problem:
    """The image itself, through a narrow middle."""
    draw, data = generator(training), training.data
    coarse = torch.randn(data.num + NUM_VALIDATION, 1, 4, 4, generator=draw)
    shown = functional.interpolate(coarse, size=(SIDE, SIDE), mode="bilinear")
    shown = shown / shown.std() + 0.1 * data.noise * torch.randn(shown.shape, generator=draw)
    return supervised(training, Shape(kind="image", length=SIDE, outputs=1, each=True), shown, shown.clone())


def image_fine_tuning(training: Training) -> Problem:
    """Patterns near those that the model was trained on before."""
    draw = generator(training)
    start = draw.get_state()
    before = patterns(training, draw)
    draw.set_state(start)
    shown, labels = patterns(training, draw, turned=0.7)
    shape = Shape(kind="image", length=SIDE, outputs=training.data.classes)
    return supervised(training, shape, shown, labels, pretrain=before)
