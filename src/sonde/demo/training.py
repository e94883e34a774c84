"""The demo's training: a plain PyTorch loop, watched."""

import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

import sonde
from sonde.demo import corpus
from sonde.demo.model import Shape, Transformer, initialise
from sonde.demo.settings import Settings


def train(run: str | Path, settings: Settings, *, on_step: Callable[[int, float], None]) -> str:
    """Train a character transformer, watched into the folder `run`, and return some text that it writes.

    Windows are drawn with replacement; an epoch is over when as many characters were trained on as the text has. The
    global random state is neither read nor changed.

    Args:
        run: Folder of the run.
        settings: How to train.
        on_step: Called with the step (from 1) and its loss.
    """
    generator = torch.Generator().manual_seed(settings.seed)
    text = corpus.text()
    vocabulary = sorted(set(text))
    number = {character: i for i, character in enumerate(vocabulary)}
    ids = torch.tensor([number[character] for character in text])
    train_ids, val_ids = ids[: len(ids) * 9 // 10], ids[len(ids) * 9 // 10 :]

    with torch.random.fork_rng(devices=[]):  # constructors draw weights, which are drawn anew below
        model = Transformer(Shape(vocabulary=len(vocabulary)))
    initialise(model, generator)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr, weight_decay=settings.weight_decay)
    evaluate_every = math.ceil(settings.steps / settings.evaluations)
    epoch_every = math.ceil(len(train_ids) / (settings.batch * model.shape.context))
    batches = (draw(train_ids, settings.batch, model.shape.context, generator) for _ in range(settings.steps))

    config = {**asdict(settings), "model": asdict(model.shape)}
    with sonde.watch(model, optimizer, run=run, config=config, console="quiet") as watch:
        for step, (inputs, targets) in enumerate(watch.data(batches), start=1):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, settings)

            loss = batch_loss(model, inputs, targets)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip_norm)
            optimizer.step()

            watch.step(loss)
            if step % evaluate_every == 0 or step == settings.steps:
                watch.evaluate(loss=evaluate(model, val_ids))
            if step % epoch_every == 0:
                watch.epoch()
            on_step(step, loss.item())
    return sample(model, vocabulary, ids[-model.shape.context :], generator)


def learning_rate(step: int, settings: Settings) -> float:
    """Linear warm-up, then a cosine down to a tenth; `step` counts from 1.

    Example:
        >>> settings = Settings(steps=100, warmup_steps=10, lr=1.0)
        >>> [round(learning_rate(step, settings), 2) for step in (1, 10, 55, 100)]
        [0.1, 1.0, 0.55, 0.1]
    """
    warmup_steps = min(settings.warmup_steps, settings.steps // 2)  # a run of a few steps still has both parts
    if step < warmup_steps:
        return settings.lr * step / warmup_steps
    progress = (step - warmup_steps) / max(1, settings.steps - warmup_steps)
    return settings.lr * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * progress)))


def draw(ids: Tensor, batch: int, context: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Windows of the text, and for each of their characters the next one."""
    starts = torch.randint(len(ids) - context, (batch, 1), generator=generator)
    windows = ids[starts + torch.arange(context + 1)]
    return windows[:, :-1], windows[:, 1:]


def batch_loss(model: Transformer, inputs: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy of each next character, in nats."""
    return functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


@torch.no_grad()
def evaluate(model: Transformer, ids: Tensor) -> float:
    """The loss on windows that are the same at every call."""
    windows = draw(ids, 128, model.shape.context, torch.Generator().manual_seed(0))
    return batch_loss(model, *windows).item()


@torch.no_grad()
def sample(
    model: Transformer, vocabulary: list[str], before: Tensor, generator: torch.Generator, *, num_chars: int = 240
) -> str:
    """What the model writes after the characters `before`, at temperature 0.8: a little calmer than it learned."""
    ids = before
    for _ in range(num_chars):
        logits = model(ids[None, -model.shape.context :])[0, -1]
        ids = torch.cat([ids, torch.multinomial((logits / 0.8).softmax(-1), 1, generator=generator)])
    return "".join(vocabulary[i] for i in ids[len(before) :].tolist())
