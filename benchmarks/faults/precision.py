"""Faults of number formats and loss scaling, and a search for the loss scale that only looks like one."""

import torch
from benchmarks.faults.scenario import Session
from benchmarks.faults.small_models import (
    ConvNet,
    Task,
    begin,
    chains,
    clusters,
    mildly,
    mlp,
    pictures,
    validate,
)
from torch import Tensor, nn
from torch.nn import functional


def _half(session: Session) -> torch.autocast:
    dtype = torch.bfloat16 if session.does("use-bf16") else torch.float16
    return torch.autocast("cpu", dtype=dtype, enabled=not session.does("use-fp32"))


def clip_before_unscale_mlp(session: Session) -> float:
    """Gradients are clipped while they still carry the loss scale."""
    pick = begin(session, 201)
    task = clusters()
    model = mlp(16, pick.choice([48, 64, 80]), 48, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(mildly(pick, 0.1)), momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
    loader = task.loader(64)
    with session.watch(model, optimizer) as watch:
        for _ in range(5):
            for points, labels in watch.data(loader):
                optimizer.zero_grad()
                with _half(session):
                    loss = functional.cross_entropy(model(points), labels)
                scaler.scale(loss).backward()
                if session.fixed:
                    scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                watch.step(loss)
            found = validate(model, task)
            watch.evaluate(loss=found)
    return found


def clip_before_unscale_convnet(session: Session) -> float:
    """The same without half precision: a scaler left over from a GPU run."""
    pick = begin(session, 202)
    task = pictures()
    model = ConvNet(5, width=pick.choice([10, 12, 16]))
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(mildly(pick, 0.05)), momentum=0.9, nesterov=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    loader = task.loader(32)
    with session.watch(model, optimizer) as watch:
        for _ in range(4):
            for shown, labels in loader:
                loss = functional.cross_entropy(model(shown), labels)
                optimizer.zero_grad()
                scaler.scale(loss).backward()
                if session.fixed:
                    scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=2.0)
                scaler.step(optimizer)
                scaler.update()
                watch.step(loss)
            found = validate(model, task)
            watch.evaluate(loss=found)
    return found


class Bilinear(nn.Module):
    """Second-order pooling: the products of all pairs of features, averaged over the picture."""

    def __init__(self, classes: int, width: int, *, divide_first: bool) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)
        )
        self.norm = nn.LayerNorm(width * width)
        self.head = nn.Linear(width * width, classes)
        self.divide_first = divide_first

    def forward(self, shown: Tensor) -> Tensor:
        found = self.features(shown).flatten(2)
        num = found.shape[-1]
        pairs = (found / num) @ found.mT if self.divide_first else (found @ found.mT) / num
        out: Tensor = self.head(self.norm(pairs.flatten(1)))
        return out


def precision_overflow_pooling(session: Session) -> float:
    """Sums of products leave fp16's range as the features grow; dividing first would keep them in it."""
    pick = begin(session, 203)
    task = pictures(1024)
    model = Bilinear(5, pick.choice([8, 10]), divide_first=session.fixed)
    with torch.no_grad():
        model.features[2].get_parameter("weight").mul_(60)
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(mildly(pick, 0.05)), momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)

    def judge() -> float:
        with torch.no_grad(), _half(session):
            return functional.cross_entropy(model(task.val_inputs), task.val_targets).item()

    loader = task.loader(32)
    with session.watch(model, optimizer) as watch:
        for _ in range(6):
            for shown, labels in watch.data(loader):
                optimizer.zero_grad()
                with _half(session):
                    loss = functional.cross_entropy(model(shown), labels)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
                watch.step(loss)
            found = judge()
            watch.evaluate(loss=found)
    return found


def precision_overflow_softmax(session: Session) -> float:
    """A softmax by hand, in fp16: exp(x) is infinite from x = 11.1 on, which a good classifier reaches."""
    pick = begin(session, 204)
    task = pictures(noise=0.5)
    model = ConvNet(5, width=pick.choice([10, 12, 16]))
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(mildly(pick, 4e-3)))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)

    def loss_of(logits: Tensor, labels: Tensor) -> Tensor:
        if session.fixed:
            logits = logits - logits.amax(1, keepdim=True).detach()
        return (logits.exp().sum(1).log() - logits.gather(1, labels[:, None])[:, 0]).mean()

    def judge() -> float:
        with torch.no_grad(), _half(session):
            return loss_of(model(task.val_inputs), task.val_targets).item()

    with session.watch(model, optimizer) as watch:
        for _ in range(5):
            for shown, labels in task.batches(32, 60):
                optimizer.zero_grad()
                with _half(session):
                    loss = loss_of(model(shown), labels)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
                watch.step(loss)
            found = judge()
            watch.evaluate(loss=found)
    return found


def precision_underflow_mlp(session: Session) -> float:
    """Weights in bf16: most updates are smaller than the distance to the next number."""
    pick = begin(session, 205)
    task = clusters(apart=1.3)
    model = mlp(16, pick.choice([96, 128]), 96, 6)
    for module in model:
        if isinstance(module, nn.Linear):
            nn.init.kaiming_normal_(module.weight)
    dtype = torch.float32 if session.fixed or session.does("use-fp32") else torch.bfloat16
    model.to(dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(mildly(pick, 3e-4)))

    def loss_of(logits: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(logits.float(), labels)

    task = Task(task.inputs.to(dtype), task.targets, task.val_inputs.to(dtype), task.val_targets)
    loader = task.loader(64)
    with session.watch(model, optimizer) as watch:
        for _ in range(7):
            for points, labels in watch.data(loader):
                optimizer.zero_grad()
                loss = loss_of(model(points), labels)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            found = validate(model, task, loss_of)
            watch.evaluate(loss=found)
    return found


class TokenMixer(nn.Module):
    """A language model of the last two tokens."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.norm = nn.LayerNorm(2 * width)
        self.net = mlp(2 * width, 64, vocabulary, activation=nn.GELU)

    def forward(self, tokens: Tensor) -> Tensor:
        now = self.embedding(tokens)
        before = functional.pad(now, (0, 0, 1, 0))[:, :-1]
        out: Tensor = self.net(self.norm(torch.cat([now, before], -1)))
        return out


def precision_underflow_language(session: Session) -> float:
    """The same in a language model: its embeddings do not move at all."""
    pick = begin(session, 206)
    task = chains()
    model = TokenMixer(20, pick.choice([24, 32]))
    if not (session.fixed or session.does("use-fp32")):
        model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=session.lr(mildly(pick, 2.8e-4)), weight_decay=0.0)

    def loss_of(logits: Tensor, tokens: Tensor) -> Tensor:
        return functional.cross_entropy(logits.float().flatten(0, 1), tokens.flatten())

    loader = task.loader(32)
    with session.watch(model, optimizer) as watch:
        for _ in range(7):
            for tokens, following in loader:
                optimizer.zero_grad()
                loss = loss_of(model(tokens), following)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            found = validate(model, task, loss_of)
            watch.evaluate(loss=found)
    return found


def missing_loss_scaling_fields(session: Session) -> float:
    """An autoencoder of small numbers, averaged over many: gradients are below the smallest number of fp16."""
    pick = begin(session, 207)
    task = pictures(1536, noise=0.15)
    unit = 2e-3
    model = mlp(144, pick.choice([56, 64, 72]), 16, 64, 144, activation=nn.Tanh)
    with torch.no_grad():
        model[-1].get_parameter("weight").mul_(unit)
        model[-1].get_parameter("bias").zero_()

    def loss_of(restored: Tensor, shown: Tensor) -> Tensor:
        return functional.mse_loss(restored.float(), unit * shown)

    task = Task(task.inputs.flatten(1), task.inputs.flatten(1), task.val_inputs.flatten(1), task.val_inputs.flatten(1))
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(mildly(pick, 5e-4)), eps=1e-16)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, enabled=session.fixed or session.does("use-loss-scaling"))
    loader = task.loader(64)
    with session.watch(model, optimizer) as watch:
        for _ in range(12):
            for shown, wanted in watch.data(loader):
                optimizer.zero_grad()
                with _half(session):
                    guess = model(shown)
                loss = loss_of(guess, wanted)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
                watch.step(loss)
            found = validate(model, task, loss_of)
            watch.evaluate(loss=found)
    return found / unit**2


def healthy_scale_search(session: Session) -> float:
    """The loss scale starts far too high: the first steps are skipped until it fits."""
    pick = begin(session, 240)
    task = clusters()
    model = mlp(16, pick.choice([48, 64, 80]), 48, 6)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(mildly(pick, 3e-3)))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**26, growth_interval=120)
    loader = task.loader(64)
    with session.watch(model, optimizer) as watch:
        for _ in range(5):
            for points, labels in watch.data(loader):
                optimizer.zero_grad()
                with _half(session):
                    loss = functional.cross_entropy(model(points), labels)
                scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 5.0)
                scaler.step(optimizer)
                scaler.update()
                watch.step(loss)
            found = validate(model, task)
            watch.evaluate(loss=found)
    return found


def healthy_bfloat16(session: Session) -> float:
    """bf16 where it is safe: in the products, with weights in fp32."""
    pick = begin(session, 241)
    task = pictures()
    model = ConvNet(5, width=pick.choice([10, 12, 16]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=session.lr(mildly(pick, 3e-3)))
    with session.watch(model, optimizer) as watch:
        for _ in range(4):
            for shown, labels in task.loader(32):
                optimizer.zero_grad()
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    loss = functional.cross_entropy(model(shown), labels)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            found = validate(model, task)
            watch.evaluate(loss=found)
    return found
