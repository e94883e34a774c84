"""Trainings whose rate, schedule, clipping, batch or optimiser is wrong."""

import math

import torch
from benchmarks.faults import tasks
from benchmarks.faults.models import Recurrent, ResidualCnn, Transformer, cnn, linears, mlp
from benchmarks.faults.scenario import Scenario, Session
from torch import nn
from torch.nn import functional
from torch.optim.lr_scheduler import CosineAnnealingLR, ExponentialLR, LambdaLR, StepLR

SPIKE_STEP = 150
JUMP_STEP = 180


def mlp_lr_too_high(session: Session) -> float:
    """Momentum SGD at twenty times the rate that works."""
    draw = tasks.begin(session)
    task = tasks.mixture(session.seed, num=5120, dim=draw.choice([16, 20, 24]), classes=5)
    width = draw.choice([64, 96])
    model = mlp([task.inputs.shape[1], width, width, 5])
    rate = 0.03 if session.fixed else 0.7 * draw.uniform(0.9, 1.3)
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(rate), momentum=0.9)
    return tasks.fit(session, model, optimizer, task, functional.cross_entropy, epochs=4, batch=64)


def transformer_lr_too_high(session: Session) -> float:
    """Adam far too high, after an ordinary warm-up."""
    draw = tasks.begin(session)
    task = tasks.language(session.seed, num=1600, context=32)
    model = Transformer(vocabulary=tasks.VOCABULARY, context=32, dim=draw.choice([32, 40]))
    rate = 3e-3 if session.fixed else 0.2 * draw.uniform(0.8, 1.4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=session.lr(rate), weight_decay=0.01)
    warmup = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 40))
    return tasks.fit(
        session, model, optimizer, task, tasks.token_loss, epochs=5, batch=32, each_step=warmup, tell_data=False
    )


def mlp_lr_too_low(session: Session) -> float:
    """Adam at a hundredth of the rate that works."""
    draw = tasks.begin(session)
    task = tasks.regression(session.seed, num=2048, dim=draw.choice([8, 10, 12]))
    model = mlp([task.inputs.shape[1], 64, 64, 1], nn.Tanh)
    rate = 5e-3 if session.fixed else 1e-5 * draw.uniform(1, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(rate))
    return tasks.fit(session, model, optimizer, task, functional.mse_loss, epochs=10, batch=64)


def cnn_lr_too_low(session: Session) -> float:
    """Momentum SGD at a few hundredths of the rate that works, on images."""
    draw = tasks.begin(session)
    task = tasks.shapes(session.seed, num=1536)
    model = cnn(draw.choice([8, 10]))
    rate = 0.05 if session.fixed else 2e-4 * draw.uniform(1, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(rate), momentum=0.9)
    loader = torch.utils.data.DataLoader(task.dataset(), batch_size=64, shuffle=True)
    with session.watch(model, optimizer) as watch:
        for _ in range(12):
            model.train()
            for images, labels in loader:
                loss = functional.cross_entropy(model(images), labels)
                loss.backward()
                optimizer.step()
                watch.step(loss, samples=len(images))
                optimizer.zero_grad()
            quality = tasks.validate(model, task, functional.cross_entropy)
            watch.evaluate(loss=quality, metrics={"accuracy": tasks.accuracy(model, task)})
            watch.epoch()
    return quality


def _spike(session: Session, model: nn.Module, task: tasks.Task, *, rate: float, factor: float, steps: int) -> float:
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(rate))
    loader = task.batches(64)
    step = 0
    with session.watch(model, optimizer) as watch:
        for _ in range(5):
            for inputs, targets in watch.data(loader):
                step += 1
                spiked = not session.fixed and SPIKE_STEP <= step < SPIKE_STEP + steps
                for group in optimizer.param_groups:
                    group["lr"] = session.lr(rate) * (factor if spiked else 1)
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(inputs), targets)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            quality = tasks.validate(model, task, functional.cross_entropy)
            watch.evaluate(loss=quality, metrics={"accuracy": tasks.accuracy(model, task)})
            watch.epoch()
    return quality


def mlp_lr_spike(session: Session) -> float:
    """A few steps at hundreds of times the rate, by a slip in a hand-written schedule."""
    draw = tasks.begin(session)
    task = tasks.mixture(session.seed, num=4608, dim=16, classes=4)
    model = mlp([16, draw.choice([64, 96]), 64, 64, 4])
    return _spike(session, model, task, rate=1e-3, factor=500 * draw.uniform(1, 1.5), steps=draw.choice([3, 4, 5]))


def cnn_lr_spike(session: Session) -> float:
    """The same on images."""
    draw = tasks.begin(session)
    task = tasks.shapes(session.seed, num=4608)
    model = cnn(draw.choice([8, 12]))
    return _spike(session, model, task, rate=2e-3, factor=250 * draw.uniform(1, 1.5), steps=draw.choice([2, 4]))


def transformer_warmup_too_short(session: Session) -> float:
    """A transformer normalised after its layers, under Adam at a high rate, without a warm-up."""
    draw = tasks.begin(session)
    task = tasks.language(session.seed, num=1600, context=16)
    model = Transformer(vocabulary=tasks.VOCABULARY, context=16, dim=32, depth=6, pre_norm=False)
    rate = session.lr(2e-2 * draw.uniform(0.9, 1.2))
    warmup_steps = session.warmup_steps(120 if session.fixed else 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, betas=(0.9, 0.99))
    warmup = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / warmup_steps))
    return tasks.fit(session, model, optimizer, task, tasks.token_loss, epochs=5, batch=32, each_step=warmup)


def cnn_schedule_decays_too_fast(session: Session) -> float:
    """An exponential decay that has used up the rate after a quarter of the run."""
    draw = tasks.begin(session)
    task = tasks.shapes(session.seed, num=1792)
    model = cnn(draw.choice([8, 10]), norm=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(0.02), momentum=0.9)
    decay = ExponentialLR(optimizer, gamma=0.995 if session.fixed else draw.uniform(0.93, 0.95))
    return tasks.fit(session, model, optimizer, task, functional.cross_entropy, epochs=12, batch=64, each_step=decay)


def gru_schedule_decays_too_fast(session: Session) -> float:
    """A cosine to zero whose length is a sixth of the run's (and which then stays there)."""
    draw = tasks.begin(session)
    task = tasks.recall(session.seed, num=2048, length=draw.choice([5, 6]))
    model = Recurrent(nn.GRU, 16, 48, 6, symbols=6)
    epochs, batch = 12, 64
    total = epochs * 2048 // batch
    end = total if session.fixed else total // 6
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(4e-3))
    cosine = LambdaLR(optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * min(1.0, step / end))))
    return tasks.fit(
        session, model, optimizer, task, functional.cross_entropy,
        epochs=epochs, batch=batch, each_step=cosine, tell_data=False,
    )  # fmt: skip


def resnet_schedule_misapplied(session: Session) -> float:
    """A step decay meant for epochs, stepped after each batch."""
    draw = tasks.begin(session)
    task = tasks.shapes(session.seed, num=1536)
    model = ResidualCnn(draw.choice([12, 16]), 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(0.02), momentum=0.9, weight_decay=1e-4)
    scheduler = StepLR(optimizer, step_size=draw.choice([4, 5]), gamma=0.5)
    loader = torch.utils.data.DataLoader(task.dataset(), batch_size=64, shuffle=True)
    with session.watch(model, optimizer) as watch:
        for _ in range(10):
            model.train()
            for images, labels in watch.data(loader):
                loss = functional.cross_entropy(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if not session.fixed:
                    scheduler.step()
                watch.step(loss)
            if session.fixed:
                scheduler.step()
            quality = tasks.validate(model, task, functional.cross_entropy)
            watch.evaluate(loss=quality, metrics={"accuracy": tasks.accuracy(model, task)})
            watch.epoch()
    return quality


def mlp_missing_lr_decay(session: Session) -> float:
    """A constant high rate on small batches: the loss stops at the noise that the rate makes."""
    draw = tasks.begin(session)
    task = tasks.regression(session.seed, num=2400, dim=8, noise=0.1)
    model = mlp([8, draw.choice([48, 64]), 48, 1], nn.Tanh)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(0.035 * draw.uniform(0.9, 1.3)))
    epochs, batch = 10, 40
    decay = CosineAnnealingLR(optimizer, epochs * 60) if session.fixed else None
    return tasks.fit(session, model, optimizer, task, functional.mse_loss, epochs=epochs, batch=batch, each_step=decay)


def rnn_exploding_gradients(session: Session) -> float:
    """Recurrent weights well above one, over a long sequence."""
    draw = tasks.begin(session)
    task = tasks.fading(session.seed, num=2048, length=draw.choice([30, 36]))
    model = Recurrent(nn.RNN, 3, draw.choice([40, 48]), 1)
    nn.init.orthogonal_(model.rnn.weight_hh_l0, gain=0.9 if session.fixed else draw.uniform(2.0, 2.4))
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(0.02), momentum=0.9)
    return tasks.fit(session, model, optimizer, task, functional.mse_loss, epochs=12, batch=64, tell_data=False)


def rnn_missing_clipping(session: Session) -> float:
    """Mostly small gradients, and now and then a cliff: one unclipped step over it undoes what was learned."""
    draw = tasks.begin(session)
    task = tasks.fading(session.seed, num=2048, length=draw.choice([36, 40, 44]))
    model = Recurrent(nn.RNN, 3, 40, 1)
    nn.init.orthogonal_(model.rnn.weight_hh_l0, gain=1.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(0.09 * draw.uniform(0.9, 1.2)), momentum=0.9)
    limit = session.clip_norm(0.3 if session.fixed else None)
    loader = task.batches(64)
    with session.watch(model, optimizer) as watch:
        for _ in range(10):
            for inputs, targets in loader:
                loss = functional.mse_loss(model(inputs), targets)
                optimizer.zero_grad()
                loss.backward()
                if limit is not None:
                    nn.utils.clip_grad_norm_(model.parameters(), limit)
                optimizer.step()
                watch.step(loss, samples=len(inputs))
            quality = tasks.validate(model, task, functional.mse_loss)
            watch.evaluate(loss=quality)
            watch.epoch()
    return quality


def mlp_clip_too_aggressive(session: Session) -> float:
    """Clipped to a thousandth of the usual gradient, at every step."""
    draw = tasks.begin(session)
    task = tasks.mixture(session.seed, num=4608, dim=draw.choice([12, 16]), classes=4)
    model = mlp([task.inputs.shape[1], 64, 64, 4])
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(0.05), momentum=0.9)
    limit = 1.0 if session.fixed else 4e-3 * draw.uniform(0.5, 1.5)
    return tasks.fit(session, model, optimizer, task, functional.cross_entropy, epochs=5, batch=64, clip=limit)


def gru_clip_too_aggressive(session: Session) -> float:
    """The same in a recurrent net."""
    draw = tasks.begin(session)
    task = tasks.recall(session.seed, num=2048, length=8)
    model = Recurrent(nn.GRU, 16, draw.choice([40, 48]), 6, symbols=6)
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(0.3), momentum=0.9)
    limit = 1.0 if session.fixed else 2e-3 * draw.uniform(0.5, 1.5)
    return tasks.fit(
        session, model, optimizer, task, functional.cross_entropy, epochs=12, batch=64, clip=limit, tell_data=False
    )


def mlp_weight_norm_jump(session: Session) -> float:
    """One layer is overwritten in the middle of the run by weights in other units."""
    draw = tasks.begin(session)
    task = tasks.mixture(session.seed, num=4608, dim=16, classes=4)
    model = mlp([16, 64, 64, 64, 4])
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(1e-3))
    loader = task.batches(64)
    place, factor = draw.choice([1, 2]), draw.uniform(25, 40)
    step = 0
    with session.watch(model, optimizer) as watch:
        for _ in range(5):
            for inputs, targets in watch.data(loader):
                step += 1
                if step == JUMP_STEP and not session.fixed:
                    with torch.no_grad():
                        linears(model)[place].weight.mul_(factor)
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(inputs), targets)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            quality = tasks.validate(model, task, functional.cross_entropy)
            watch.evaluate(loss=quality, metrics={"accuracy": tasks.accuracy(model, task)})
            watch.epoch()
    return quality


def mlp_batch_too_small(session: Session) -> float:
    """Two examples a step at a rate that sixty-four would bear, on noisy targets."""
    draw = tasks.begin(session)
    task = tasks.regression(session.seed, num=1200, dim=10, noise=0.5)
    model = mlp([10, draw.choice([48, 64]), 48, 1])
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(0.04), momentum=0.8)
    # The same number of updates for both: only what an update is made of differs.
    batch = 64 if session.fixed else 2
    epochs = session.batch_size(batch) // 2
    return tasks.fit(session, model, optimizer, task, functional.mse_loss, epochs=epochs, batch=batch)


def cnn_batch_too_large(session: Session) -> float:
    """Nearly the whole set in each step, at the rate of a small batch: too few updates for the passes paid for."""
    draw = tasks.begin(session)
    task = tasks.shapes(session.seed, num=2048, size=10)
    model = cnn(draw.choice([6, 8]))
    optimizer = torch.optim.SGD(model.parameters(), lr=session.lr(0.02), momentum=0.8)
    batch = 32 if session.fixed else 512
    return tasks.fit(session, model, optimizer, task, functional.cross_entropy, epochs=40, batch=batch, tell_data=False)


def mlp_adam_epsilon_underflow(session: Session) -> float:
    """Targets in small units: gradients far below Adam's epsilon, which then swallows the update."""
    draw = tasks.begin(session)
    task = tasks.regression(session.seed, num=2048, dim=10)
    unit = 1e-6 * draw.uniform(0.5, 2)
    model = mlp([10, 64, draw.choice([48, 64]), 1], nn.Tanh)
    eps = 1e-20 if session.fixed else 1e-8
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(3e-3), eps=eps)
    loader = task.batches(64)
    with session.watch(model, optimizer) as watch:
        for _ in range(12):
            for inputs, targets in watch.data(loader):
                optimizer.zero_grad()
                loss = functional.mse_loss(unit * model(inputs), unit * targets)
                loss.backward()
                optimizer.step()
                watch.step(loss)
            quality = tasks.validate(model, task, functional.mse_loss)
            watch.evaluate(loss=unit**2 * quality)
            watch.epoch()
    return quality


def transformer_adam_epsilon_underflow(session: Session) -> float:
    """An epsilon that was meant for another scale of gradients, larger than nearly all of them."""
    draw = tasks.begin(session)
    task = tasks.language(session.seed, num=1600, context=24)
    model = Transformer(vocabulary=tasks.VOCABULARY, context=24, dim=draw.choice([24, 32]))
    eps = 1e-8 if session.fixed else draw.uniform(0.5, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=session.lr(3e-3), eps=eps)
    return tasks.fit(session, model, optimizer, task, tasks.token_loss, epochs=6, batch=32, tell_data=False)


SCENARIOS = [
    Scenario("mlp-lr-too-high", "lr-too-high", mlp_lr_too_high, repairable=True),
    Scenario("transformer-lr-too-high", "lr-too-high", transformer_lr_too_high, repairable=True),
    Scenario("mlp-lr-too-low", "lr-too-low", mlp_lr_too_low, repairable=True),
    Scenario("cnn-lr-too-low", "lr-too-low", cnn_lr_too_low, repairable=True),
    Scenario("mlp-lr-spike", "lr-spike", mlp_lr_spike, onset=SPIKE_STEP, cures=("smoother-schedule",)),
    Scenario("cnn-lr-spike", "lr-spike", cnn_lr_spike, onset=SPIKE_STEP, cures=("smoother-schedule",)),
    Scenario(
        "transformer-warmup-too-short", "warmup-too-short", transformer_warmup_too_short, ("lr-too-high",),
        repairable=True,
    ),
    Scenario(
        "cnn-schedule-decays-too-fast", "schedule-decays-too-fast", cnn_schedule_decays_too_fast,
        onset=10, cures=("slower-schedule",),
    ),
    Scenario(
        "gru-schedule-decays-too-fast", "schedule-decays-too-fast", gru_schedule_decays_too_fast,
        onset=32, cures=("slower-schedule",),
    ),
    Scenario(
        "resnet-schedule-stepped-each-batch", "schedule-misapplied", resnet_schedule_misapplied,
        ("schedule-decays-too-fast",), onset=4, cures=("fix-loop", "slower-schedule"),
    ),
    Scenario(
        "mlp-missing-lr-decay", "missing-lr-decay", mlp_missing_lr_decay, ("lr-too-high", "batch-too-small"),
        repairable=True, cures=("decay-lr",),
    ),
    Scenario(
        "rnn-exploding-gradients", "exploding-gradients", rnn_exploding_gradients,
        ("missing-clipping", "bad-initialisation"), repairable=True, cures=("reinitialise",),
    ),
    Scenario(
        "rnn-missing-clipping", "missing-clipping", rnn_missing_clipping,
        ("exploding-gradients", "lr-too-high"), repairable=True,
    ),
    Scenario("mlp-clip-too-aggressive", "clip-too-aggressive", mlp_clip_too_aggressive, repairable=True),
    Scenario("gru-clip-too-aggressive", "clip-too-aggressive", gru_clip_too_aggressive, repairable=True),
    Scenario("mlp-weight-norm-jump", "weight-norm-jump", mlp_weight_norm_jump, onset=JUMP_STEP),
    Scenario(
        "mlp-batch-too-small", "batch-too-small", mlp_batch_too_small, ("lr-too-high", "missing-lr-decay"),
        repairable=True,
    ),
    Scenario("cnn-batch-too-large", "batch-too-large", cnn_batch_too_large, ("lr-too-low",), repairable=True),
    Scenario("mlp-adam-epsilon-underflow", "adam-epsilon-underflow", mlp_adam_epsilon_underflow, repairable=True),
    Scenario(
        "transformer-adam-epsilon-underflow", "adam-epsilon-underflow", transformer_adam_epsilon_underflow,
        repairable=True,
    ),
]  # fmt: skip
