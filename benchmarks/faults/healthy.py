"""Trainings that look odd and are well: none of them deserves an alarm."""

import copy
import math

import torch
from benchmarks.faults import tasks
from benchmarks.faults.models import Recurrent, ResidualCnn, ResidualMlp, Transformer, cnn, linears, mlp
from benchmarks.faults.scenario import Scenario, Session
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.lr_scheduler import CosineAnnealingLR, CosineAnnealingWarmRestarts, LambdaLR, MultiStepLR, OneCycleLR

_cross_entropy, _mse = functional.cross_entropy, functional.mse_loss


def frozen_backbone(session: Session) -> float:
    """A new head on a frozen, pretrained body."""
    draw = tasks.begin(session)
    task = tasks.mixture(session.seed, num=2304, dim=16, classes=4)
    model = mlp([16, 96, draw.choice([64, 96]), 4])
    pretraining = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(3):
        for inputs, targets in task.batches(64):
            pretraining.zero_grad()
            _cross_entropy(model(inputs), targets).backward()
            pretraining.step()
    model.requires_grad_(False)
    head = linears(model)[-1]
    head.reset_parameters()
    head.requires_grad_(True)
    optimizer = torch.optim.Adam((p for p in model.parameters() if p.requires_grad), lr=session.lr(5e-3))
    return tasks.fit(session, model, optimizer, task, _cross_entropy, epochs=8, batch=64)


def relu_zeros(session: Session) -> float:
    """A wide rectified net with slightly negative biases: most activations are zero, and it learns."""
    draw = tasks.begin(session)
    task = tasks.mixture(session.seed, num=2304, dim=16, classes=5)
    model = mlp([16, 256, draw.choice([128, 192]), 5])
    for layer in linears(model)[:-1]:
        nn.init.constant_(layer.bias, -0.25)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(2e-3))
    return tasks.fit(session, model, optimizer, task, _cross_entropy, epochs=8, batch=64, tell_data=False)


def edge_of_stability(session: Session) -> float:
    """Full-batch gradient descent at a rate where the loss rises in a third of the steps, yet falls."""
    draw = tasks.begin(session)
    # Noise in the targets keeps the swings near the size of the loss: without it they are of any ratio.
    task = tasks.regression(session.seed, num=2048, dim=8, noise=0.4, hidden=6)
    model = mlp([8, draw.choice([48, 64]), 48, 1], nn.Tanh)
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(draw.uniform(0.3, 0.36)))
    quality = math.nan
    with session.watch(model, optimizer) as watch:
        for step in range(1, 401):
            loss = _mse(model(task.inputs), task.targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)
            if step % 50 == 0:
                quality = tasks.validate(model, task, _mse)
                watch.evaluate(loss=quality)
    return quality


def cosine_restarts(session: Session) -> float:
    """The loss rises at each restart of the rate, as meant."""
    draw = tasks.begin(session)
    task = tasks.shapes(session.seed, num=1792)
    model = cnn(draw.choice([8, 10]), norm=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(0.05), momentum=0.9)
    restarts = CosineAnnealingWarmRestarts(optimizer, T_0=28 * 3, eta_min=1e-4)
    return tasks.fit(
        session, model, optimizer, task, _cross_entropy, epochs=12, batch=64, tell_data=False, each_step=restarts
    )


def curriculum(session: Session) -> float:
    """Images grow noisier every few epochs, so that the loss jumps up and comes down again."""
    draw = tasks.begin(session)
    model = cnn(draw.choice([8, 10]), norm=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(4e-3))
    stages = [tasks.shapes(session.seed, num=2048, noise=noise) for noise in (0.15, 0.3, 0.5)]
    with session.watch(model, optimizer) as watch:
        for stage in stages:
            for _ in range(4):
                for inputs, targets in watch.data(stage.batches(64)):
                    loss = _cross_entropy(model(inputs), targets)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    watch.step(loss)
                quality = tasks.validate(model, stage, _cross_entropy)
                watch.evaluate(metrics={"loss_now": quality, "accuracy": tasks.accuracy(model, stages[-1])})
                watch.epoch()
    return quality


def sparse_embedding(session: Session) -> float:
    """A large embedding of which each batch touches few rows, some of them hardly ever."""
    draw = tasks.begin(session)
    generator = torch.Generator().manual_seed(11000 + session.seed)
    items = draw.choice([600, 800])
    truth = torch.randn(items, 1, generator=generator)
    ids = (torch.rand(26112, 3, generator=generator).square() * items).long()
    targets = truth[ids[:, 0]] + truth[ids[:, 1]] - truth[ids[:, 2]]
    task = tasks.Task(ids[:25600], targets[:25600], ids[25600:], targets[25600:], session.seed)
    model = nn.Sequential(nn.Embedding(items, 12), nn.Flatten(), nn.Linear(36, 1))
    nn.init.normal_(model[0].weight, std=0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(5e-3))
    return tasks.fit(session, model, optimizer, task, _mse, epochs=4, batch=192)


def gan(session: Session) -> float:
    """Two networks against each other: neither loss falls, and the samples improve."""
    draw = tasks.begin(session)
    noise = 4
    generator = mlp([noise, 48, 48, 2])
    discriminator = mlp([2, 48, 48, 1], lambda: nn.LeakyReLU(0.2))
    models = {"G": generator, "D": discriminator}
    rate = session.lr(1e-3)
    optimizers = {
        "G": torch.optim.Adam(generator.parameters(), lr=rate, betas=(0.5, 0.99)),
        "D": torch.optim.Adam(discriminator.parameters(), lr=2 * rate, betas=(0.5, 0.99)),
    }
    turn = draw.uniform(0.5, 1.0)

    def real(num: int) -> Tensor:
        angles = 2 * math.pi * torch.rand(num, 1)
        return torch.cat([angles.cos(), turn * angles.sin()], 1) + 0.05 * torch.randn(num, 2)

    def distance() -> float:
        with torch.no_grad():
            a, b = real(512), generator(torch.randn(512, noise))
            return (2 * torch.cdist(a, b).mean() - torch.cdist(a, a).mean() - torch.cdist(b, b).mean()).item()

    with session.watch(models, optimizers) as watch:
        for step in range(1, 501):
            truth, fake = real(96), generator(torch.randn(96, noise))
            loss_d = functional.softplus(-discriminator(truth)).mean()
            loss_d = loss_d + functional.softplus(discriminator(fake.detach())).mean()
            optimizers["D"].zero_grad()
            loss_d.backward()
            optimizers["D"].step()
            loss_g = functional.softplus(-discriminator(fake)).mean()
            optimizers["G"].zero_grad()
            loss_g.backward()
            optimizers["G"].step()
            watch.step(parts={"D": loss_d, "G": loss_g})
            if step % 100 == 0:
                watch.evaluate(metrics={"energy_distance": distance()})
    return distance()


def bandit(session: Session) -> float:
    """A policy gradient: its loss is no measure of progress, the reward is."""
    draw = tasks.begin(session)
    arms, contexts = draw.choice([5, 6]), 8
    truth = torch.randn(contexts, arms, generator=torch.Generator().manual_seed(12000 + session.seed))
    policy = mlp([contexts, 48, arms], nn.Tanh)
    optimizer = torch.optim.Adam(policy.parameters(), lr=session.lr(5e-3))
    baseline = 0.0
    regret = math.nan
    with session.watch(policy, optimizer) as watch:
        for step in range(1, 401):
            seen = torch.randint(contexts, (64,))
            logits = policy(functional.one_hot(seen, contexts).float())
            choices = torch.distributions.Categorical(logits=logits)
            actions = choices.sample()
            rewards = truth[seen, actions] + 0.3 * torch.randn(64)
            loss = -(choices.log_prob(actions) * (rewards - baseline)).mean() - 0.01 * choices.entropy().mean()
            baseline += 0.05 * (rewards.mean().item() - baseline)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)
            if step % 40 == 0:
                with torch.no_grad():
                    chances = policy(torch.eye(contexts)).softmax(-1)
                regret = (truth.max(1).values - (chances * truth).sum(1)).mean().item()
                watch.evaluate(metrics={"regret": regret})
    return regret


def solved(session: Session) -> float:
    """A task without noise, solved early: gradients and loss fall by orders of magnitude."""
    draw = tasks.begin(session)
    generator = torch.Generator().manual_seed(13000 + session.seed)
    inputs = torch.randn(2560, 10, generator=generator)
    targets = inputs @ torch.randn(10, 2, generator=generator) + 1
    task = tasks.Task(inputs[:2048], targets[:2048], inputs[2048:], targets[2048:], session.seed)
    model = mlp([10, 2]) if draw.random() < 0.5 else nn.Sequential(nn.Linear(10, 16), nn.Linear(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(0.05), momentum=0.8)
    return tasks.fit(session, model, optimizer, task, _mse, epochs=12, batch=64, tell_data=False)


def plateau_at_optimum(session: Session) -> float:
    """All there is to learn is learned in the first tenth; the rest is the noise of the targets."""
    draw = tasks.begin(session)
    generator = torch.Generator().manual_seed(13500 + session.seed)
    inputs = torch.randn(4608, 6, generator=generator)
    noise = draw.uniform(0.5, 0.8)
    targets = inputs[:, :1] - inputs[:, 1:2] + noise * torch.randn(4608, 1, generator=generator)
    task = tasks.Task(inputs[:4096], targets[:4096], inputs[4096:], targets[4096:], session.seed)
    model = mlp([6, 1])
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(0.02), momentum=0.5)
    return tasks.fit(session, model, optimizer, task, _mse, epochs=6, batch=64, tell_data=False)


def heavy_dropout(session: Session) -> float:
    """Dropout in training only: the training loss stays above the validation loss."""
    draw = tasks.begin(session)
    task = tasks.mixture(session.seed, num=2304, dim=16, classes=4)
    model = mlp([16, 192, 192, 4], dropout=draw.uniform(0.45, 0.55))
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(2e-3))
    return tasks.fit(session, model, optimizer, task, _cross_entropy, epochs=10, batch=64, tell_data=False)


def accumulation(session: Session) -> float:
    """Four micro-batches an update, each loss divided by four."""
    draw = tasks.begin(session)
    task = tasks.shapes(session.seed, num=1792)
    model = cnn(draw.choice([8, 10]))
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(5e-3))
    with session.watch(model, optimizer) as watch:
        for _ in range(14):
            for micro, (images, labels) in enumerate(watch.data(task.batches(32)), start=1):
                loss = _cross_entropy(model(images), labels)
                (loss / 4).backward()
                if micro % 4 == 0:
                    optimizer.step()
                    optimizer.zero_grad()
                watch.step(loss)
            quality = tasks.validate(model, task, _cross_entropy)
            watch.evaluate(loss=quality)
            watch.epoch()
    return quality


def label_smoothing(session: Session) -> float:
    """The smoothed loss cannot go below its floor, where it stays."""
    draw = tasks.begin(session)
    task = tasks.mixture(session.seed, num=2304, dim=16, classes=5, spread=0.5)
    model = mlp([16, draw.choice([64, 96]), 64, 5])
    criterion = nn.CrossEntropyLoss(label_smoothing=0.2)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(2e-3))
    return tasks.fit(session, model, optimizer, task, criterion, epochs=10, batch=64, tell_data=False)


def fine_tuning(session: Session) -> float:
    """A trained model goes on at a tiny rate on a slightly different task: little moves, as meant."""
    draw = tasks.begin(session)
    task = tasks.regression(session.seed, num=2048, dim=10)
    model = mlp([10, 64, 64, 1], nn.Tanh)
    pretraining = torch.optim.Adam(model.parameters(), lr=4e-3)
    for _ in range(8):
        for inputs, targets in task.batches(64):
            pretraining.zero_grad()
            _mse(model(inputs), targets).backward()
            pretraining.step()
    moved = tasks.Task(
        task.inputs, task.targets + 0.3 * task.inputs[:, :1].sin(),
        task.val_inputs, task.val_targets + 0.3 * task.val_inputs[:, :1].sin(), session.seed,
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=session.lr(draw.uniform(5e-5, 1e-4)))
    return tasks.fit(session, model, optimizer, moved, _mse, epochs=12, batch=64, tell_data=False)


def noisy_small_batches(session: Session) -> float:
    """Four examples a step: a ragged loss that goes down."""
    draw = tasks.begin(session)
    task = tasks.mixture(session.seed, num=2400, dim=16, classes=4)
    model = mlp([16, 64, draw.choice([48, 64]), 4])
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(1e-3))
    return tasks.fit(session, model, optimizer, task, _cross_entropy, epochs=1, batch=4)


def large_batch(session: Session) -> float:
    """A thousand examples a step, at a rate that makes use of them."""
    draw = tasks.begin(session)
    task = tasks.mixture(session.seed, num=8192, dim=16, classes=4)
    model = mlp([16, draw.choice([64, 96]), 64, 4])
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(0.1), momentum=0.9)
    return tasks.fit(session, model, optimizer, task, _cross_entropy, epochs=20, batch=1024, tell_data=False)


def warmup_cosine(session: Session) -> float:
    """A transformer with warm-up and a cosine to zero: at the end nothing moves any more."""
    draw = tasks.begin(session)
    task = tasks.language(session.seed, num=1600, context=24)
    model = Transformer(vocabulary=tasks.VOCABULARY, context=24, dim=draw.choice([32, 40]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=session.lr(4e-3), weight_decay=0.1)
    total, warmup = 7 * 50, 30

    def factor(step: int) -> float:
        return (
            (step + 1) / warmup if step < warmup else 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))
        )

    schedule = LambdaLR(optimizer, factor)
    return tasks.fit(
        session, model, optimizer, task, tasks.token_loss, epochs=7, batch=32, each_step=schedule, clip=1.0
    )


def one_cycle(session: Session) -> float:
    """The rate goes up tenfold and down to nothing."""
    draw = tasks.begin(session)
    task = tasks.shapes(session.seed, num=1792)
    model = ResidualCnn(draw.choice([12, 16]), 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    cycle = OneCycleLR(optimizer, max_lr=session.lr(0.1), total_steps=10 * 28)
    return tasks.fit(
        session, model, optimizer, task, _cross_entropy, epochs=10, batch=64, each_step=cycle, tell_data=False
    )


def strong_decay_but_right(session: Session) -> float:
    """Few noisy examples and a decay that is just what they need: norms shrink, and without it validation turns up."""
    draw = tasks.begin(session)
    task = tasks.regression(session.seed, num=320, dim=24, noise=0.6, hidden=2)
    model = mlp([24, draw.choice([64, 80]), 64, 1])
    optimizer = torch.optim.AdamW(model.parameters(), lr=session.lr(2e-3), weight_decay=draw.uniform(8, 10))
    decay = CosineAnnealingLR(optimizer, 450)
    return tasks.fit(session, model, optimizer, task, _mse, epochs=45, batch=32, each_step=decay, tell_data=False)


def momentum_oscillating(session: Session) -> float:
    """Heavy momentum: the loss swings, and falls from swing to swing."""
    draw = tasks.begin(session)
    task = tasks.regression(session.seed, num=2048, dim=8, noise=0.05)
    model = mlp([8, draw.choice([48, 64]), 48, 1], nn.Tanh)
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(0.03), momentum=0.97)
    return tasks.fit(session, model, optimizer, task, _mse, epochs=24, batch=128, tell_data=False)


def clipping_often(session: Session) -> float:
    """The gradient is clipped at nearly every step, and the loss falls."""
    draw = tasks.begin(session)
    task = tasks.recall(session.seed, num=2048, length=draw.choice([8, 10]))
    model = Recurrent(nn.LSTM, 16, 48, 6, symbols=6)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(5e-3))
    return tasks.fit(session, model, optimizer, task, _cross_entropy, epochs=12, batch=64, tell_data=False, clip=0.1)


def short_run(session: Session) -> float:
    """Thirty steps, for a try."""
    draw = tasks.begin(session)
    task = tasks.mixture(session.seed, num=960, dim=12, classes=3)
    model = mlp([12, draw.choice([32, 48]), 3])
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(5e-3))
    return tasks.fit(session, model, optimizer, task, _cross_entropy, epochs=2, batch=64)


def variable_lengths(session: Session) -> float:
    """Each batch has a length of its own, and a loss and a gradient to go with it."""
    draw = tasks.begin(session)
    buckets = [tasks.fading(session.seed, num=512, length=length) for length in (6, 10, 16, 24, 36)]
    model = Recurrent(nn.GRU, 3, draw.choice([32, 40]), 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(3e-3))
    with session.watch(model, optimizer) as watch:
        for _ in range(10):
            batches = [batch for bucket in buckets for batch in bucket.batches(64)]
            draw.shuffle(batches)
            for inputs, targets in batches:
                loss = _mse(model(inputs), targets)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                watch.step(loss, samples=len(inputs), tokens=inputs.shape[0] * inputs.shape[1])
            quality = sum(tasks.validate(model, bucket, _mse) for bucket in buckets) / len(buckets)
            watch.evaluate(loss=quality)
            watch.epoch()
    return quality


def frozen_batchnorm(session: Session) -> float:
    """Fine-tuning with batch norm left in evaluation mode on purpose; dropout is not."""
    draw = tasks.begin(session)
    task = tasks.shapes(session.seed, num=1536)
    model = cnn(draw.choice([8, 10]), norm=True, dropout=0.1)
    pretraining = torch.optim.Adam(model.parameters(), lr=4e-3)
    for _ in range(3):
        for images, labels in task.batches(64):
            pretraining.zero_grad()
            _cross_entropy(model(images), labels).backward()
            pretraining.step()
    for module in model:
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
            module.requires_grad_(False)
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=session.lr(1e-3))
    with session.watch(model, optimizer) as watch:
        for _ in range(8):
            for images, labels in watch.data(task.batches(64)):
                loss = _cross_entropy(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                watch.step(loss)
            quality = tasks.validate(model, task, _cross_entropy)
            watch.evaluate(loss=quality, metrics={"accuracy": tasks.accuracy(model, task)})
            for module in model:
                if isinstance(module, nn.BatchNorm2d):
                    module.eval()
            watch.epoch()
    return quality


def frequent_evaluation(session: Session) -> float:
    """An evaluation every five steps, on few examples: a noisy validation curve."""
    draw = tasks.begin(session)
    task = tasks.mixture(session.seed, num=2304, dim=16, classes=4)
    model = mlp([16, draw.choice([64, 96]), 64, 4], dropout=0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(1e-3))
    step = 0
    with session.watch(model, optimizer) as watch:
        for _ in range(8):
            for inputs, targets in watch.data(task.batches(64)):
                step += 1
                optimizer.zero_grad()
                loss = _cross_entropy(model(inputs), targets)
                loss.backward()
                optimizer.step()
                watch.step(loss)
                if step % 5 == 0:
                    rows = torch.randint(len(task.val_inputs), (48,))
                    model.eval()
                    with torch.no_grad():
                        few = _cross_entropy(model(task.val_inputs[rows]), task.val_targets[rows])
                    model.train()
                    watch.evaluate(loss=few)
            watch.epoch()
    return tasks.validate(model, task, _cross_entropy)


def step_decays(session: Session) -> float:
    """The rate falls to a tenth twice, and each time the loss drops."""
    draw = tasks.begin(session)
    task = tasks.shapes(session.seed, num=2048)
    model = ResidualCnn(draw.choice([12, 16]), 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(0.06), momentum=0.9, weight_decay=1e-3)
    return tasks.fit(
        session, model, optimizer, task, _cross_entropy, epochs=12, batch=64,
        each_epoch=MultiStepLR(optimizer, [6, 9], gamma=0.1),
    )  # fmt: skip


def multi_task(session: Session) -> float:
    """Two losses of different size on one body; the total is what is minimised, the parts are told."""
    draw = tasks.begin(session)
    classes = tasks.mixture(session.seed, num=2304, dim=16, classes=4)
    values = classes.inputs[:, :4].tanh().sum(1, keepdim=True)
    val_values = classes.val_inputs[:, :4].tanh().sum(1, keepdim=True)
    width = draw.choice([48, 64])
    body, head, gauge = mlp([16, 64, width]), nn.Linear(width, 4), nn.Linear(width, 1)
    model = nn.ModuleDict({"body": body, "head": head, "gauge": gauge})
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(2e-3))
    quality = math.nan
    with session.watch(model, optimizer) as watch:
        for _ in range(10):
            for rows in torch.randperm(2304).split(64):
                shared = body(classes.inputs[rows]).relu()
                parts = {
                    "class": _cross_entropy(head(shared), classes.targets[rows]),
                    "value": 5 * _mse(gauge(shared), values[rows]),
                }
                loss = parts["class"] + parts["value"]
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                watch.step(loss, parts=parts, samples=len(rows))
            with torch.no_grad():
                shared = body(classes.val_inputs).relu()
                named = _cross_entropy(head(shared), classes.val_targets).item()
                quality = named + 5 * _mse(gauge(shared), val_values).item()
            watch.evaluate(loss=quality, metrics={"class_loss": named})
            watch.epoch()
    return quality


def lbfgs(session: Session) -> float:
    """A second-order optimiser that calls the model several times a step."""
    draw = tasks.begin(session)
    task = tasks.regression(session.seed, num=2048, dim=6, noise=0.05, hidden=6)
    model = mlp([6, draw.choice([16, 24]), 1], nn.Tanh)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=session.lr(0.5), max_iter=4, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = _mse(model(task.inputs), task.targets) + 1e-4 * sum(p.square().sum() for p in model.parameters())
        loss.backward()
        return loss

    quality = math.nan
    with session.watch(model, optimizer) as watch:
        for step in range(1, 151):
            watch.step(optimizer.step(closure))
            if step % 15 == 0:
                quality = tasks.validate(model, task, _mse)
                watch.evaluate(loss=quality)
    return quality


def averaged_weights(session: Session) -> float:
    """Evaluated are averaged weights, which lag behind at first and are better later."""
    draw = tasks.begin(session)
    task = tasks.regression(session.seed, num=2048, dim=8, noise=0.2)
    model = mlp([8, draw.choice([48, 64]), 48, 1], nn.Tanh)
    averaged = copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(0.01))
    with session.watch(model, optimizer) as watch:
        for _ in range(12):
            for inputs, targets in watch.data(task.batches(64)):
                loss = _mse(model(inputs), targets)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                watch.step(loss)
                with torch.no_grad():
                    for mean, now in zip(averaged.parameters(), model.parameters(), strict=True):
                        mean.lerp_(now, 0.02)
            quality = tasks.validate(averaged, task, _mse)
            watch.evaluate(loss=quality)
            watch.epoch()
    return quality


def outliers_robust(session: Session) -> float:
    """One target in fifty is wild, and the loss is made for that."""
    draw = tasks.begin(session)
    task = tasks.regression(session.seed, num=2560, dim=8)
    wild = torch.rand(task.targets.shape) < 0.02
    targets = torch.where(wild, task.targets + 30 * torch.randn(task.targets.shape), task.targets)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(task.inputs, targets), batch_size=64, shuffle=True
    )
    model = mlp([8, draw.choice([48, 64]), 48, 1], nn.Tanh)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(3e-3))
    with session.watch(model, optimizer) as watch:
        for _ in range(10):
            for inputs, values in watch.data(loader):
                loss = functional.smooth_l1_loss(model(inputs), values, beta=0.5)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                watch.step(loss)
            quality = tasks.validate(model, task, functional.smooth_l1_loss)
            watch.evaluate(loss=quality)
            watch.epoch()
    return quality


def late_breakthrough(session: Session) -> float:
    """A first phase at the trivial loss, as the task's structure demands, then the breakthrough."""
    draw = tasks.begin(session)
    task = tasks.recall(session.seed, num=2560, length=draw.choice([14, 15, 16]))
    model = Recurrent(nn.GRU, 16, 48, 6, symbols=6)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(6e-3))
    return tasks.fit(session, model, optimizer, task, _cross_entropy, epochs=14, batch=64, clip=1.0, tell_data=False)


class LowRank(nn.Module):
    """A frozen linear layer with a trained correction of low rank, which starts at zero."""

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, layer.in_features) / layer.in_features**0.5)
        self.b = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + x @ self.a.T @ self.b.T


def lora(session: Session) -> float:
    """Low-rank corrections of a pretrained net: half of their gradients are zero at the start."""
    draw = tasks.begin(session)
    task = tasks.regression(session.seed, num=2048, dim=10)
    model = mlp([10, 64, 64, 1], nn.Tanh)
    pretraining = torch.optim.Adam(model.parameters(), lr=4e-3)
    for _ in range(6):
        for inputs, targets in task.batches(64):
            pretraining.zero_grad()
            _mse(model(inputs), targets).backward()
            pretraining.step()
    for place in (0, 2, 4):
        model[place] = LowRank(model[place], draw.choice([2, 4]) if place < 4 else 1)
    moved = tasks.Task(
        task.inputs, task.targets + 0.6 * task.inputs[:, :1],
        task.val_inputs, task.val_targets + 0.6 * task.val_inputs[:, :1], session.seed,
    )  # fmt: skip
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=session.lr(5e-3))
    return tasks.fit(session, model, optimizer, moved, _mse, epochs=10, batch=64, tell_data=False)


def autoencoder(session: Session) -> float:
    """Rebuilds its inputs through a bottleneck: the loss ends at what the bottleneck cannot hold."""
    draw = tasks.begin(session)
    generator = torch.Generator().manual_seed(14000 + session.seed)
    inputs = torch.randn(2560, 4, generator=generator) @ torch.randn(4, 24, generator=generator) / 2
    inputs = inputs + 0.3 * torch.randn(2560, 24, generator=generator)
    task = tasks.Task(inputs[:2048], inputs[:2048], inputs[2048:], inputs[2048:], session.seed)
    model = mlp([24, 48, draw.choice([4, 5]), 48, 24])
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(3e-3))
    return tasks.fit(session, model, optimizer, task, _mse, epochs=12, batch=64, tell_data=False)


def zero_started_residuals(session: Session) -> float:
    """The last layer of each block starts at zero, as is good practice."""
    draw = tasks.begin(session)
    task = tasks.mixture(session.seed, num=6400, dim=16, classes=4)
    model = ResidualMlp(16, draw.choice([48, 64]), 4, 4)
    for block in model.blocks:
        nn.init.zeros_(block.down.weight)
        nn.init.zeros_(block.down.bias)
    nn.init.zeros_(model.head.weight)
    optimizer = torch.optim.AdamW(model.parameters(), lr=session.lr(1e-3), weight_decay=0.01)
    return tasks.fit(session, model, optimizer, task, _cross_entropy, epochs=3, batch=64, tell_data=False)


_TRAININGS = {
    "frozen-backbone": frozen_backbone,
    "relu-many-zeros": relu_zeros,
    "edge-of-stability": edge_of_stability,
    "cosine-restarts": cosine_restarts,
    "curriculum": curriculum,
    "sparse-embedding": sparse_embedding,
    "gan": gan,
    "policy-gradient-bandit": bandit,
    "solved-task": solved,
    "plateau-at-optimum": plateau_at_optimum,
    "heavy-dropout": heavy_dropout,
    "gradient-accumulation": accumulation,
    "label-smoothing": label_smoothing,
    "fine-tuning-tiny-rate": fine_tuning,
    "noisy-small-batches": noisy_small_batches,
    "large-batch": large_batch,
    "warmup-cosine-to-zero": warmup_cosine,
    "one-cycle": one_cycle,
    "strong-decay-but-right": strong_decay_but_right,
    "momentum-oscillating": momentum_oscillating,
    "clipping-often": clipping_often,
    "short-run": short_run,
    "variable-lengths": variable_lengths,
    "frozen-batchnorm": frozen_batchnorm,
    "frequent-evaluation": frequent_evaluation,
    "step-decays": step_decays,
    "multi-task": multi_task,
    "lbfgs": lbfgs,
    "averaged-weights": averaged_weights,
    "outliers-robust-loss": outliers_robust,
    "late-breakthrough": late_breakthrough,
    "lora": lora,
    "autoencoder": autoencoder,
    "zero-started-residuals": zero_started_residuals,
}

SCENARIOS = [Scenario(f"healthy-{name}", None, train) for name, train in _TRAININGS.items()]
