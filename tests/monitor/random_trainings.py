"""Trainings at random: models, optimisers and settings of all kinds, small, each followed by a `Truth`."""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from sonde.core.cadences import every
from sonde.monitor.watch import watch
from sonde.probes.cadences import Cadences

from . import loops
from .truth import Truth

EVERY_STEP = replace(loops.ALWAYS, inputs=every(1))
NUM_CLASSES = 5
VALUES = (math.nan, math.inf, -math.inf, 1e19, -3e18, 1e-24)
"""What now and then stands in a gradient."""


@dataclass
class Settings:
    """Of a training."""

    kind: str
    dtype: torch.dtype
    cadence: Cadences | None
    num_steps: int
    num_micro: int
    clip: str
    autocast: bool
    scaler: bool
    two_optimizers: bool
    schedule: bool
    through_loader: bool
    parts: bool
    poison: float | None
    """Put into a gradient near the end."""
    doctor: str
    magnitude: float
    """What the loss is multiplied by."""
    budget: float = math.inf


def settings_of(seed: int) -> Settings:
    """The settings of a seed."""
    rng = random.Random(seed)
    kind = rng.choice(["mlp", "mlp", "cnn", "lstm", "transformer", "words"])
    dtype = rng.choice([torch.float32] * 5 + [torch.float64, torch.bfloat16]) if kind == "mlp" else torch.float32
    scaler = rng.random() < 0.2 and dtype is torch.float32
    return Settings(
        kind=kind,
        dtype=dtype,
        cadence=rng.choice([EVERY_STEP, EVERY_STEP, None]),
        num_steps=rng.randint(9, 24),
        num_micro=rng.choice([1, 1, 1, 2, 3, 4]),
        clip=rng.choice(["none", "none", "norm", "value", "both"]),
        autocast=rng.random() < 0.25 and dtype is torch.float32,
        scaler=scaler,
        two_optimizers=rng.random() < 0.2 and kind == "mlp",
        schedule=rng.random() < 0.5,
        through_loader=rng.random() < 0.5,
        parts=rng.random() < 0.2,
        poison=rng.choice(VALUES) if rng.random() < 0.5 else None,
        doctor=rng.choice(["off", "off", "thread"]),
        magnitude=1.0 if scaler else rng.choice([1.0] * 6 + [1e-18, 1e15]),
    )


class Encoder(nn.Module):
    """Attention over a few tokens."""

    def __init__(self, width: int, num: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, width)
        layers = [nn.TransformerEncoderLayer(width, 2, 2 * width, 0.0, batch_first=True) for _ in range(num)]
        self.blocks = nn.ModuleList(layers)
        self.head = nn.Linear(width, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embedding(x)
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.head(x.mean(1))
        return out


class Recurrent(nn.Module):
    """An LSTM and a head on its last output."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, width, batch_first=True)
        self.head = nn.Linear(width, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.lstm(x)[0][:, -1])
        return out


def _model(kind: str, rng: random.Random) -> nn.Module:
    width = rng.choice([4, 6, 10, 20])
    act = rng.choice([nn.ReLU, nn.Tanh, nn.GELU])
    if kind == "mlp":
        inner: list[nn.Module] = []
        for _ in range(rng.randint(0, 2)):
            inner += [nn.Linear(width, width), act(), *([nn.LayerNorm(width)] if rng.random() < 0.4 else [])]
        dropout = [nn.Dropout(0.1)] if rng.random() < 0.3 else []
        return nn.Sequential(nn.Linear(6, width), act(), *inner, *dropout, nn.Linear(width, NUM_CLASSES))
    if kind == "cnn":
        norm = [nn.BatchNorm2d(width)] if rng.random() < 0.7 else []
        return nn.Sequential(
            nn.Conv2d(2, width, 3),
            *norm,
            act(),
            nn.Conv2d(width, 3, 3),
            act(),
            nn.Flatten(),
            nn.Linear(12, NUM_CLASSES),
        )
    if kind == "lstm":
        return Recurrent(width)
    if kind == "transformer":
        return Encoder(2 * width, rng.randint(1, 3))
    return nn.Sequential(nn.Embedding(11, width), nn.Flatten(), nn.Linear(4 * width, NUM_CLASSES))


def _input(kind: str, size: int, generator: torch.Generator) -> Tensor:
    if kind in ("transformer", "words"):
        return torch.randint(0, 11, (size, 4), generator=generator)
    shape = {"mlp": (size, 6), "cnn": (size, 2, 6, 6), "lstm": (size, 5, 6)}[kind]
    return torch.randn(shape, generator=generator) * 2 + 0.5


def _optimizer(groups: Any, rng: random.Random) -> Optimizer:
    makers: list[Callable[[], Optimizer]] = [
        lambda: torch.optim.SGD(groups, lr=0.05),
        lambda: torch.optim.SGD(groups, lr=0.05, momentum=0.9, weight_decay=0.01),
        lambda: torch.optim.Adam(groups, lr=0.01),
        lambda: torch.optim.AdamW(groups, lr=0.01, weight_decay=0.1, betas=(0.8, 0.95)),
        lambda: torch.optim.RMSprop(groups, lr=0.003, momentum=0.5),
        lambda: torch.optim.Adagrad(groups, lr=0.02),
    ]
    return rng.choice(makers)()


def _groups(net: nn.Module, rng: random.Random) -> list[dict[str, Any]]:
    parameters = [p for p in net.parameters() if p.requires_grad]
    cut = rng.randint(0, len(parameters) - 1) if rng.random() < 0.4 else 0
    groups: list[dict[str, Any]] = [{"params": parameters[cut:]}]
    if cut:
        groups.append({"params": parameters[:cut], "lr": 0.002})
    return groups


class Training:
    """A training that can be run once, watched and followed."""

    def __init__(self, seed: int, settings: Settings | None = None) -> None:
        self.settings = s = settings or settings_of(seed)
        self._rng = rng = random.Random(seed + 1_000_000)
        torch.manual_seed(seed)
        if s.two_optimizers:
            width = rng.choice([4, 8])
            body = nn.Sequential(nn.Linear(6, width), nn.Tanh(), nn.Linear(width, width))
            head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, NUM_CLASSES))
            self.models: dict[str, nn.Module] = {"body": body.to(s.dtype), "head": head.to(s.dtype)}
        else:
            self.models = {"": _model(s.kind, rng).to(s.dtype)}
            if rng.random() < 0.25:
                first = next(
                    m for m in self.models[""].modules() if next(m.parameters(recurse=False), None) is not None
                )
                first.requires_grad_(False)
        self.optimizers = {name: _optimizer(_groups(net, rng), rng) for name, net in self.models.items()}
        self.truth = Truth(self.models, self.optimizers)
        self._applied = False
        for name, optimizer in self.optimizers.items():
            optimizer.register_step_pre_hook(lambda *_, name=name: self.truth.entered(name))
            optimizer.register_step_post_hook(self._note_applied)
        self._generator = torch.Generator().manual_seed(seed)

    def _note_applied(self, *_: Any) -> None:
        self._applied = True

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        s, generator = self.settings, self._generator
        for _ in range(s.num_steps * s.num_micro):
            size = 3 if s.kind == "transformer" else self._rng.choice([4, 7])
            x = _input(s.kind, size, generator)
            x = x.to(s.dtype) if x.is_floating_point() else x
            yield x, torch.randint(0, NUM_CLASSES, (size,), generator=generator)

    def run(self, folder: Path) -> Truth:
        """Train, recording into a folder."""
        s, truth = self.settings, self.truth
        alone = "" in self.models
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=5, enabled=s.scaler)
        schedules = [torch.optim.lr_scheduler.ExponentialLR(o, 0.9) for o in self.optimizers.values() if s.schedule]
        watched = watch(
            self.models[""] if alone else self.models,
            self.optimizers[""] if alone else self.optimizers,
            run=folder,
            strict=True,
            console="quiet",
            budget=s.budget,
            cadence=s.cadence,
            settings={"doctor": s.doctor},
        )
        with watched:
            pairs: Any = list(self._batches())
            for number, (x, y) in enumerate(watched.data(pairs) if s.through_loader else pairs, 1):
                with torch.autocast("cpu", torch.bfloat16, enabled=s.autocast):
                    logits = x
                    for net in self.models.values():
                        logits = net(logits)
                    loss = functional.cross_entropy(logits, y)
                loss = loss * s.magnitude
                parts = {"task": loss, "penalty": 0.1 * logits.float().square().mean()} if s.parts else {}
                loss = sum(parts.values()) if parts else loss
                truth.loss(loss, parts, logits, y if s.through_loader else None, y)
                scaler.scale(loss / s.num_micro).backward()
                if number % s.num_micro == 0:
                    self._step(scaler, number // s.num_micro)
                    for schedule in schedules if self._applied else ():
                        schedule.step()
                watched.step(loss, parts=parts or None)
                if number % (5 * s.num_micro) == 0 and self._applied:
                    watched.evaluate(loss=float(number), metrics={"accuracy": 0.25})
                    truth.steps[-1].evaluations = {"loss": float(number), "accuracy": 0.25}
        return truth

    def _step(self, scaler: torch.amp.GradScaler, number: int) -> None:
        s, truth = self.settings, self.truth
        parameters = [p for _, p in truth.parameters]
        if s.poison is not None and number == s.num_steps - 2:
            some = self._rng.choice([p for p in parameters if p.grad is not None])
            assert some.grad is not None
            some.grad.view(-1)[0] = s.poison
        scale = scaler.get_scale() if s.scaler else 1.0
        truth.accumulated(scale)
        if s.clip != "none" and s.scaler:
            for optimizer in self.optimizers.values():
                scaler.unscale_(optimizer)
        for name, optimizer in self.optimizers.items() if s.clip != "none" else ():
            own = [p for group in optimizer.param_groups for p in group["params"]]
            if s.clip in ("value", "both"):
                torch.nn.utils.clip_grad_value_(own, 0.05)
                truth.clipped(name, 0.05, None)
            if s.clip in ("norm", "both"):
                truth.clip_by_norm(name, 0.3)
                torch.nn.utils.clip_grad_norm_(own, 0.3)
        self._applied = False
        for optimizer in self.optimizers.values():
            scaler.step(optimizer)
        scaler.update()
        if self._applied:
            truth.now.scale = scale if s.scaler else None
            truth.stepped()
        else:
            truth.skipped()
        for optimizer in self.optimizers.values():
            optimizer.zero_grad()
