"""Small trainings that record the same numbers each time, on one machine.

Each takes the folder of its run. Cadences are fixed (no budget stretches them, nothing rests). Where findings are made
while the training runs, each step is judged before the next begins: an alarm asks for a closer look at the next steps.
"""

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from sonde.core.cadences import Every, every
from sonde.monitor.watch import Watch, watch
from sonde.probes.cadences import ON_CPU, ON_GPU, Cadences

EVERY_STEP = Cadences(
    layers=every(1),
    cosines=every(1),
    updates=every(1),
    rotating=every(1),
    histograms=every(1),
    blocks=every(1),
    process=every(1),
    resources=every(1),
    inputs=every(1),
    batches=every(1),
    spectra=every(1),
)
"""All families at once."""
APART = Cadences(
    layers=every(3),
    cosines=every(7),
    updates=Every(11, offset=2),
    rotating=every(4),
    histograms=every(6),
    blocks=Every(5, offset=1),
    process=Every(4, offset=1),
    resources=Every(9, offset=1),
    inputs=every(2),
    batches=Every(6, offset=1),
    spectra=Every(8, offset=3),
    early_steps=10,
)
"""Each family has its turn at other steps."""
LEFT_OUT_RULES: dict[str, Any] = dict.fromkeys(
    ("data-bound", "memory-leak", "memory-near-limit", "step-time-grows", "throughput-drop", "straggler"), False
)
"""They judge the speed and the memory of the machine."""

NUM_CLASSES = 4


def _watching(
    model: Any,
    optimizer: Any,
    run: Path,
    *,
    cadence: Cadences | None = None,
    settings: Mapping[str, Any] = MappingProxyType({}),
) -> Watch:
    """The one place that says how a training is watched: nothing of what time it takes counts."""
    return watch(
        model,
        optimizer,
        run=run,
        budget=math.inf,
        cadence=cadence or ON_CPU,
        console="quiet",
        strict=True,
        settings={"doctor": "off", "rules": LEFT_OUT_RULES, **settings},
    )


def _settle(watched: Watch) -> None:
    """Have the steps so far consumed and judged before the next."""
    watched.state_dict()


def _mlp(*, width: int = 12, act: Callable[[], nn.Module] = nn.ReLU) -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, width), act(), nn.Linear(width, width), act(), nn.Linear(width, NUM_CLASSES))


def _batches(num: int, *shape: int, seed: int = 2) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(num):
        x = torch.randn(8, *(shape or (6,)), generator=generator)
        yield x, (x.flatten(1).sum(1).abs() * 2).long() % NUM_CLASSES


def _words(num: int, *, seed: int = 3) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(num):
        x = torch.randint(0, 11, (6, 5), generator=generator)
        yield x, x.sum(1) % NUM_CLASSES


def _train(
    watched: Watch,
    net: nn.Module,
    optimizer: Any,
    batches: Iterator[tuple[Tensor, Tensor]],
    *,
    before_step: Callable[[int], None] = lambda number: None,
    after_step: Callable[[int], None] = lambda number: None,
) -> None:
    """The plain loop: a batch, a step."""
    for number, (x, y) in enumerate(batches, 1):
        loss: Any = functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        before_step(number)
        optimizer.step()
        after_step(number)
        watched.step(loss)
        _settle(watched)


def plain(run: Path) -> None:
    """An MLP and SGD at default cadences; rows are consumed many at a time."""
    net = _mlp()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    with _watching(net, optimizer, run) as watched:
        for x, y in _batches(60):
            loss: Any = functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watched.step(loss)


def groups(run: Path) -> None:
    """Adam with three groups, each with settings of its own; one is added later."""
    net = _mlp(act=nn.GELU)
    first, _, second, _, third = net
    optimizer = torch.optim.AdamW(
        [
            {"params": first.parameters(), "lr": 0.01, "weight_decay": 0.1},
            {"params": second.parameters(), "lr": 0.002, "betas": (0.8, 0.95), "eps": 1e-6},
        ]
    )

    def add(number: int) -> None:
        if number == 12:
            optimizer.add_param_group({"params": third.parameters(), "lr": 0.005})

    with _watching(net, optimizer, run, cadence=EVERY_STEP, settings={"doctor": "thread"}) as watched:
        _train(watched, net, optimizer, _batches(24), after_step=add)


def accumulation(run: Path) -> None:
    """Three micro-steps a step, whose losses are added up."""
    net = _mlp()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    with _watching(net, optimizer, run, cadence=APART, settings={"loss.micro": "sum"}) as watched:
        for number, (x, y) in enumerate(_batches(75), 1):
            loss: Any = functional.cross_entropy(net(x), y) / 3
            loss.backward()
            if number % 3 == 0:
                optimizer.step()
                optimizer.zero_grad()
            watched.step(loss, samples=len(x))
            _settle(watched)


def clipping(run: Path) -> None:
    """By norm at every step, at some by value as well, and once by hand."""
    net = _mlp(act=nn.Tanh)
    with torch.no_grad():
        net.get_parameter("0.weight").mul_(6.0)  # some units are saturated
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)

    def clip(number: int) -> None:
        if number % 5 == 0:
            torch.nn.utils.clip_grad_value_(net.parameters(), 0.05)
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.2)
        if number == 13:
            for parameter in net.parameters():
                assert parameter.grad is not None
                parameter.grad.mul_(0.5)

    with _watching(net, optimizer, run, cadence=APART, settings={"doctor": "thread"}) as watched:
        _train(watched, net, optimizer, _batches(40), before_step=clip)


def scaler(run: Path) -> None:
    """A gradient scaler under autocast; two steps overflow and are skipped."""
    net = _mlp()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=6)
    with _watching(net, optimizer, run, cadence=EVERY_STEP) as watched:
        for number, (x, y) in enumerate(_batches(26), 1):
            with torch.autocast("cpu", torch.bfloat16):
                loss = functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            scaled: Any = scaler.scale(loss * (math.inf if number in (9, 17) else 1.0))
            scaled.backward()
            if number % 2:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
            watched.step(loss)
            _settle(watched)


def gan(run: Path) -> None:
    """Dictionaries of models and optimisers."""
    models = {
        "G": nn.Sequential(nn.Linear(3, 10), nn.LeakyReLU(0.2), nn.Linear(10, 6), nn.Tanh()),
        "D": nn.Sequential(nn.Linear(6, 10), nn.LeakyReLU(0.2), nn.Linear(10, 1)),
    }
    optimizers = {name: torch.optim.Adam(net.parameters(), lr=0.01, betas=(0.5, 0.9)) for name, net in models.items()}
    generator = torch.Generator().manual_seed(5)
    with _watching(models, optimizers, run, cadence=EVERY_STEP, settings={"doctor": "thread"}) as watched:
        for real, _ in _batches(24):
            noise = torch.randn(8, 3, generator=generator)
            fake = models["G"](noise)
            told = models["D"](real), models["D"](fake.detach())
            of_d: Any = functional.softplus(-told[0]).mean() + functional.softplus(told[1]).mean()
            optimizers["D"].zero_grad()
            of_d.backward()
            optimizers["D"].step()
            of_g: Any = functional.softplus(-models["D"](fake)).mean()
            optimizers["G"].zero_grad()
            of_g.backward()
            optimizers["G"].step()
            watched.step(of_d + of_g, parts={"d": of_d, "g": of_g})
            _settle(watched)


def lbfgs(run: Path) -> None:
    """Gradients that come into being inside of a step."""
    net = _mlp(act=nn.Tanh)
    optimizer: Any = torch.optim.LBFGS(net.parameters(), lr=0.2, max_iter=3)
    with _watching(net, optimizer, run, cadence=EVERY_STEP) as watched:
        for x, y in _batches(20):

            def closure(x: Tensor = x, y: Tensor = y) -> Any:
                optimizer.zero_grad()
                loss: Any = functional.cross_entropy(net(x), y)
                loss.backward()
                return loss

            watched.step(optimizer.step(closure))


def convolutions(run: Path) -> None:
    """Batch normalisation, and units that are dead from the start."""
    net = nn.Sequential(
        nn.Conv2d(2, 6, 3),
        nn.BatchNorm2d(6),
        nn.ReLU(inplace=True),
        nn.Conv2d(6, 8, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(8, NUM_CLASSES),
    )
    second = net[3]
    assert isinstance(second, nn.Conv2d)
    assert second.bias is not None
    with torch.no_grad():
        second.bias[:3] = -50.0
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3, nesterov=True)
    with _watching(net, optimizer, run, cadence=EVERY_STEP, settings={"doctor": "thread"}) as watched:
        _train(watched, net, optimizer, _batches(24, 2, 7, 7))


class _Scaled(nn.Module):
    """Attention that calls torch's function itself."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self._heads = heads

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, self._heads, -1)).transpose(1, 3).unbind(2)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = x + self.out(y.transpose(1, 2).flatten(2))
        return out


class _Encoder(nn.Module):
    """Attention of both kinds over a few tokens."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, width)
        layers: list[nn.Module] = [
            nn.TransformerEncoderLayer(width, 2, 2 * width, 0.0, batch_first=True) for _ in range(2)
        ]
        self.blocks = nn.ModuleList([*layers, _Scaled(width, 2), _Scaled(width, 2)])
        self.head = nn.Linear(width, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embedding(x)
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.head(x.mean(1))
        return out


def attention(run: Path) -> None:
    """A transformer encoder with a module for attention, and with the function."""
    net = _Encoder()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    with _watching(net, optimizer, run, cadence=APART, settings={"doctor": "thread"}) as watched:
        _train(watched, net, optimizer, _words(30))


class _Recurrent(nn.Module):
    """Words through an LSTM."""

    def __init__(self, *, sparse: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 5, sparse=sparse)
        self.lstm = nn.LSTM(5, 7, batch_first=True)
        self.head = nn.Linear(7, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.lstm(self.embedding(x))[0][:, -1])
        return out


def recurrent(run: Path) -> None:
    """An LSTM over embedded words."""
    net = _Recurrent()
    optimizer = torch.optim.RMSprop(net.parameters(), lr=0.01, momentum=0.5)
    with _watching(net, optimizer, run, cadence=EVERY_STEP) as watched:
        _train(watched, net, optimizer, _words(24))


def sparse(run: Path) -> None:
    """Gradients of an embedding that are sparse."""
    net = _Recurrent(sparse=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with _watching(net, optimizer, run, cadence=APART, settings={"doctor": "thread"}) as watched:
        _train(watched, net, optimizer, _words(30))


class _Partly(nn.Module):
    """A layer that is frozen later, one that is never used, one that is used from some step on."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 8)
        self.late, self.unused = nn.Linear(8, 8), nn.Linear(8, 8)
        self.head = nn.Linear(8, NUM_CLASSES)
        self.uses_late = False

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.second(torch.relu(self.first(x))))
        x = torch.relu(self.late(x)) if self.uses_late else x
        out: Tensor = self.head(x)
        return out


def frozen(run: Path) -> None:
    """Frozen layers, and parameters without a gradient; some have one from step 15 on."""
    net = _Partly()
    net.first.requires_grad_(False)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)

    def change(number: int) -> None:
        net.uses_late = number >= 14
        if number == 20:
            net.second.requires_grad_(False)

    with _watching(net, optimizer, run, cadence=EVERY_STEP, settings={"doctor": "thread"}) as watched:
        _train(watched, net, optimizer, _batches(30), after_step=change)


class _Tied(nn.Module):
    """The embedding is the head as well."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.body = nn.Sequential(nn.Linear(6, 6), nn.GELU())
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(self.embedding(x)).mean(1))
        return out


def tied(run: Path) -> None:
    """One parameter in two places."""
    net = _Tied()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    with _watching(net, optimizer, run, cadence=APART) as watched:
        _train(watched, net, optimizer, _words(30))


class _Numbers(nn.Module):
    """Parameters of many types."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(6, 8, dtype=torch.float64)
        self.phase = nn.Parameter(torch.randn(8, 8, dtype=torch.complex64))
        self.short = nn.Linear(8, 8, dtype=torch.bfloat16)
        self.scales = nn.Parameter(torch.randn(8, dtype=torch.float16))
        self.single = nn.Linear(8, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.wide(x.double())).to(torch.complex64) @ self.phase
        z = torch.relu(self.short(y.abs().to(torch.bfloat16))).float()
        out: Tensor = self.single(z * self.scales.float())
        return out


def dtypes(run: Path) -> None:
    """Float64, complex, bfloat16 and float16 parameters beside float32 ones."""
    net = _Numbers()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.5, foreach=False)
    with _watching(net, optimizer, run, cadence=EVERY_STEP) as watched:
        _train(watched, net, optimizer, _batches(24))


def scheduler(run: Path) -> None:
    """Warm-up, then a cosine, then a jump by hand."""
    net = _mlp()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.02)
    schedule = torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=8),
            torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 30),
        ],
        milestones=[8],
    )

    def follow(number: int) -> None:
        schedule.step()
        if number == 30:
            optimizer.param_groups[0]["lr"] *= 20

    with _watching(net, optimizer, run, settings={"doctor": "thread"}) as watched:
        _train(watched, net, optimizer, _batches(50), after_step=follow)


def evaluation(run: Path) -> None:
    """Epochs over a loader, with evaluations, parts of the loss, samples and tokens."""
    net = _mlp(width=16)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    x, y = (torch.cat(some) for some in zip(*_batches(7), strict=True))
    loader: Any = DataLoader(TensorDataset(x[:48], y[:48]), batch_size=8)
    with _watching(net, optimizer, run, cadence=APART, settings={"doctor": "thread", "total_epochs": 7}) as watched:
        for _ in range(7):
            net.train()
            for number, (images, labels) in enumerate(watched.data(loader)):
                logits = net(images)
                task, penalty = functional.cross_entropy(logits, labels), 1e-3 * logits.square().mean()
                loss: Any = task + penalty
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                counts: dict[str, Any] = {"samples": 8, "tokens": 8 * 6} if number % 2 else {}
                watched.step(loss, parts={"task": task, "penalty": penalty.item()}, **counts)
                _settle(watched)
            net.eval()
            with torch.no_grad():
                told = net(x[48:])
                accuracy = (told.argmax(1) == y[48:]).double().mean()
            watched.evaluate(loss=functional.cross_entropy(told, y[48:]), metrics={"accuracy": float(accuracy)})
            watched.epoch()
            _settle(watched)


def planted_nan(run: Path) -> None:
    """A NaN in a gradient, later an infinite one, at steps with and without detail; weights are healed."""
    net = _mlp()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)

    def plant(number: int) -> None:
        if number in (17, 18, 31, 33):
            weight = net.get_parameter("2.weight" if number < 20 else "0.bias")
            assert weight.grad is not None
            weight.grad.view(-1)[3] = math.nan if number < 20 else -math.inf

    def heal(number: int) -> None:
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.nan_to_num_(0.0, 0.0, 0.0)

    with _watching(net, optimizer, run, settings={"doctor": "thread"}) as watched:
        _train(watched, net, optimizer, _batches(45), before_step=plant, after_step=heal)


def spike(run: Path) -> None:
    """A loss that jumps for some steps, a burst of detail, and what an alarm has measured."""
    net = _mlp()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    with _watching(net, optimizer, run, settings={"doctor": "thread"}) as watched:
        for number, (x, y) in enumerate(_batches(60), 1):
            if number == 21:
                watched.burst(4)
            loss: Any = functional.cross_entropy(net(x), y) * (1e4 if 40 <= number < 43 else 1.0)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            watched.step(loss)
            _settle(watched)


def resumed(run: Path) -> None:
    """A session that goes on, and one that goes back and begins a branch."""
    net = _mlp()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    batches = list(_batches(50))
    state: Any = None
    for start, end in ((0, 20), (15, 35), (35, 50)):
        with _watching(net, optimizer, run, cadence=APART, settings={"doctor": "thread"}) as watched:
            if state is not None:
                net.load_state_dict(state["net"])
                optimizer.load_state_dict(state["optimizer"])
                watched.load_state_dict(state["watch"])
            for number in range(start, end):
                _train(watched, net, optimizer, iter(batches[number : number + 1]))
                if number + 1 in (15, 35):
                    whole = {"net": net.state_dict(), "optimizer": optimizer.state_dict()}
                    state = {**copy.deepcopy(whole), "watch": watched.state_dict()}


def in_eval_mode(run: Path) -> None:
    """Training in eval mode: batch statistics stay as they are, dropout does nothing."""
    net = nn.Sequential(
        nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.5), nn.Linear(12, NUM_CLASSES)
    ).eval()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    with _watching(net, optimizer, run, settings={"doctor": "thread"}) as watched:
        _train(watched, net, optimizer, _batches(30))


class _Nested(torch.optim.Adam):
    """Its step calls that of its base, whose hooks are called as well."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.sub_(parameter.grad.mean())
        return super().step(closure)


def nested(run: Path) -> None:
    """An optimiser whose step calls another's."""
    net = _mlp()
    optimizer = _Nested(net.parameters(), lr=0.01)
    with _watching(net, optimizer, run, cadence=EVERY_STEP, settings={"doctor": "thread"}) as watched:
        _train(watched, net, optimizer, _batches(22))


def players(run: Path) -> None:
    """One module with two players, each with its own optimiser; one makes two steps in an iteration."""
    net = nn.ModuleDict({"actor": _mlp(width=8), "critic": nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))})
    optimizers: dict[str, Any] = {
        "actor": torch.optim.Adam(net["actor"].parameters(), lr=0.005),
        "critic": torch.optim.SGD(net["critic"].parameters(), lr=0.05),
    }
    with _watching(net, optimizers, run, cadence=APART, settings={"doctor": "thread"}) as watched:
        for number, (x, y) in enumerate(_batches(30), 1):
            wanted = (y.double() - 1.5).float()
            for _ in range(2):
                value = net["critic"](x).squeeze(1)
                of_critic: Any = functional.mse_loss(value, wanted)
                optimizers["critic"].zero_grad()
                of_critic.backward()
                optimizers["critic"].step()
            chosen = net["actor"](x).log_softmax(1)[:, 0]
            of_actor: Any = -(chosen * (wanted - value.detach())).mean()
            if number % 3:
                optimizers["actor"].zero_grad()
                of_actor.backward()
                torch.nn.utils.clip_grad_norm_(net["actor"].parameters(), 0.3)
                optimizers["actor"].step()
            watched.step(of_actor + of_critic)
            _settle(watched)


def channels_last(run: Path) -> None:
    """Convolutions whose memory is laid out the other way."""
    net: Any = nn.Sequential(
        nn.Conv2d(3, 6, 3),
        nn.GroupNorm(2, 6),
        nn.SiLU(),
        nn.Conv2d(6, 6, 3, groups=2),
        nn.Sigmoid(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, NUM_CLASSES),
    )
    net = net.to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adagrad(net.parameters(), lr=0.02)
    pairs = ((x.contiguous(memory_format=torch.channels_last), y) for x, y in _batches(24, 3, 7, 7))
    with _watching(net, optimizer, run, cadence=EVERY_STEP) as watched:
        _train(watched, net, optimizer, pairs)


def everything(run: Path) -> None:
    """All families at every step, for as long as the trajectory of the gradients needs to be known."""
    net = _mlp(width=8)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    with _watching(net, optimizer, run, cadence=EVERY_STEP, settings={"doctor": "thread"}) as watched:
        for x, y in watched.data(list(_batches(67))):
            loss: Any = functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watched.step(loss)
            _settle(watched)


def many_tensors(run: Path) -> None:
    """More tensors than there are slots, at the cadences of a GPU, consumed many at a time."""
    net = nn.Sequential(*(nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.Tanh()) for _ in range(11)))
    net.append(nn.Linear(6, NUM_CLASSES))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    often = replace(ON_GPU, histograms=every(20), blocks=Every(15, offset=1), spectra=every(12))
    with _watching(net, optimizer, run, cadence=often) as watched:
        for x, y in _batches(40):
            loss: Any = functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watched.step(loss.item())


def _from_the_same_seed(training: Callable[[Path], None]) -> Callable[[Path], None]:
    def seeded(run: Path) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            training(run)

    return seeded


TRAININGS: dict[str, Callable[[Path], None]] = {
    training.__name__: _from_the_same_seed(training)
    for training in (
        plain,
        groups,
        accumulation,
        clipping,
        scaler,
        gan,
        lbfgs,
        convolutions,
        attention,
        recurrent,
        sparse,
        frozen,
        tied,
        dtypes,
        scheduler,
        evaluation,
        planted_nan,
        spike,
        resumed,
        in_eval_mode,
        nested,
        players,
        channels_last,
        everything,
        many_tensors,
    )
}
"""By name."""
