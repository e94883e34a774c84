"""How long before a loss is no longer finite Sonde warns: trainings that blow up in ten different ways.

Each trains until its loss is NaN or infinite, and is then diagnosed by replay. Where at least 20 finite losses came
before, there is to be an alarm before it, most often 20 steps earlier; else a critical finding within 2 steps.

Usage: python -m benchmarks.faults.divergence [--seeds 0,2,4] [--only NAME] [--jobs 2]
"""

import argparse
import concurrent.futures
import itertools
import math
import multiprocessing
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from benchmarks.faults.judging import FEW_STEPS
from benchmarks.faults.scenario import Session
from benchmarks.faults.small_models import begin, clusters, mildly
from torch import Tensor, nn
from torch.nn import functional

import sonde
from sonde.core.findings import Finding, Severity

_MOST_STEPS = 600
_EARLY = 20

Loss = Callable[[int], Tensor]


@dataclass
class Blowing:
    """A training that will blow up: its parts, the loss of a step, and what happens after a step."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    loss: Loss
    after: Callable[[int], object] = lambda step: None


def _classifier(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for wide, narrow in itertools.pairwise(sizes):
        layers += [nn.Linear(wide, narrow), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _stream(model: nn.Module, criterion: Callable[[Tensor, Tensor], Tensor], batch: int = 64) -> Loss:
    task = clusters(2048)
    batches = iter(task.batches(batch, _MOST_STEPS))

    def loss(step: int) -> Tensor:
        inputs, targets = next(batches)
        return criterion(model(inputs), targets)

    return loss


def _squares(output: Tensor, targets: Tensor) -> Tensor:
    return functional.mse_loss(output, functional.one_hot(targets, output.shape[1]).to(output.dtype))


def rate_that_grows(session: Session) -> Blowing:
    """A schedule with a sign error: the rate grows by some percent a step."""
    pick = begin(session, 901)
    model = _classifier(16, 64, 64, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 1 + mildly(pick, 0.03))
    return Blowing(model, optimizer, _stream(model, _squares), lambda step: schedule.step())


def above_the_edge(session: Session) -> Blowing:
    """A rate a little above what the curvature allows, with momentum."""
    pick = begin(session, 902)
    model = nn.Sequential(nn.Linear(16, 48), nn.Tanh(), nn.Linear(48, 6))
    optimizer = torch.optim.SGD(model[2].parameters(), lr=mildly(pick, 0.9), momentum=0.9)
    inner = _stream(model, _squares)
    return Blowing(model, optimizer, lambda step: 8 * inner(step))


def recurrence(session: Session) -> Blowing:
    """A plain recurrent net over long sequences, not clipped."""
    pick = begin(session, 903)
    rnn, head = nn.RNN(4, 48, batch_first=True, nonlinearity="relu"), nn.Linear(48, 1)
    nn.init.orthogonal_(rnn.get_parameter("weight_hh_l0"))
    model = nn.ModuleDict({"rnn": rnn, "head": head})
    optimizer = torch.optim.SGD(model.parameters(), lr=mildly(pick, 0.01))

    def loss(step: int) -> Tensor:
        inputs = torch.randn(16, 60, 4)
        return functional.mse_loss(head(rnn(inputs)[0][:, -1]), inputs[:, ::10, 0].sum(1, keepdim=True))

    return Blowing(model, optimizer, loss)


def decay_of_the_wrong_sign(session: Session) -> Blowing:
    """Weights are pushed outward instead of inward."""
    pick = begin(session, 904)
    model = _classifier(16, 64, 64, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    share = 1 + mildly(pick, 0.01)

    @torch.no_grad()
    def grow(step: int) -> None:
        for parameter in model.parameters():
            parameter.mul_(share)

    return Blowing(model, optimizer, _stream(model, _squares), grow)


def half_precision(session: Session) -> Blowing:
    """Weights in float16, no scaler, and a loss that is summed."""
    pick = begin(session, 905)
    model = _classifier(16, 64, 64, 6).half()
    optimizer = torch.optim.SGD(model.parameters(), lr=mildly(pick, 1e-3))
    task = clusters(2048)
    batches = iter(task.batches(64, _MOST_STEPS))

    def loss(step: int) -> Tensor:
        inputs, targets = next(batches)
        wanted = functional.one_hot(targets, 6).half()
        apart: Tensor = model((1 + 0.02 * step) * inputs.half()) - 20 * wanted
        return apart.square().sum()

    return Blowing(model, optimizer, loss)


def variance_that_shrinks(session: Session) -> Blowing:
    """A Gaussian likelihood whose predicted variance has no floor, on targets without noise."""
    pick = begin(session, 906)
    model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=mildly(pick, 0.08))

    def loss(step: int) -> Tensor:
        inputs = torch.randn(64, 8)
        mean, log_variance = model(inputs).unbind(1)
        unlikely: Tensor = log_variance + (inputs.sum(1) - mean).square() * torch.exp(-log_variance)
        return unlikely.mean()

    return Blowing(model, optimizer, loss)


def deep_without_normalisation(session: Session) -> Blowing:
    """Thirty residual blocks, none normalised, and a rate for shallow nets."""
    pick = begin(session, 907)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(nn.Linear(16, 16) for _ in range(30))
            self.head = nn.Linear(16, 6)

        def forward(self, x: Tensor) -> Tensor:
            for block in self.blocks:
                x = x + functional.relu(block(x))
            logits: Tensor = self.head(x)
            return logits

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=mildly(pick, 3e-4), momentum=0.9)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 100))
    return Blowing(model, optimizer, _stream(model, _squares), lambda step: schedule.step())


def logarithm_of_nothing(session: Session) -> Blowing:
    """A hand-written cross-entropy of probabilities that reach 0 exactly."""
    pick = begin(session, 908)
    model = _classifier(16, 64, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=mildly(pick, 1.0), momentum=0.9)
    task = clusters(2048, apart=3.0)
    batches = iter(task.batches(32, _MOST_STEPS))

    def loss(step: int) -> Tensor:
        inputs, targets = next(batches)
        chance = torch.exp(model(inputs)) / torch.exp(model(inputs)).sum(1, keepdim=True)
        return -torch.log(chance[range(len(targets)), targets]).mean()

    return Blowing(model, optimizer, loss)


def critic_without_bounds(session: Session) -> Blowing:
    """A value function that learns from its own estimate, not from a frozen copy, with a discount near 1."""
    pick = begin(session, 909)
    model = _classifier(8, 64, 64, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=mildly(pick, 0.05))

    def loss(step: int) -> Tensor:
        states = torch.rand(64, 8)
        following = 1.3 * states + 0.2 * torch.rand(64, 8)
        with torch.no_grad():
            wanted = 1 + 0.99 * model(following)
        return functional.mse_loss(model(states), wanted)

    return Blowing(model, optimizer, loss)


def attention_without_scale(session: Session) -> Blowing:
    """One attention block without normalisation, squared loss, and a rate that is too high once logits have grown."""
    pick = begin(session, 910)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.head = nn.Linear(16, 48), nn.Linear(16, 16)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(x).chunk(3, -1)
            shown: Tensor = self.head(x + functional.scaled_dot_product_attention(q, k, v, scale=1.0))
            return shown

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=mildly(pick, 0.12), momentum=0.9)

    def loss(step: int) -> Tensor:
        x = torch.randn(16, 12, 16)
        return functional.mse_loss(model(x), 2 * x.roll(1, 1)) * (1 + step / 40)

    return Blowing(model, optimizer, loss)


KINDS = (
    rate_that_grows,
    above_the_edge,
    recurrence,
    decay_of_the_wrong_sign,
    half_precision,
    variance_that_shrinks,
    deep_without_normalisation,
    logarithm_of_nothing,
    critic_without_bounds,
    attention_without_scale,
)


@dataclass(frozen=True)
class Outcome:
    """What became of a training.

    Args:
        name: Of its kind.
        seed: Of data, weights and rates.
        finite_steps: Losses before the first that was not finite; None where all were.
        lead: Steps from the first alarm to that; None where there was none before.
        is_critical: Whether a critical finding came by 2 steps after it.
        first: Code of the first alarm.
    """

    name: str
    seed: int
    finite_steps: int | None
    lead: int | None
    is_critical: bool
    first: str


def outcome(kind: Callable[[Session], Blowing], seed: int) -> Outcome:
    """Train, watched, until the loss is no longer finite, and five steps more."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        session = Session(seed=seed, folder=Path(folder) / "run")
        blowing = kind(session)
        nonfinite: int | None = None
        with session.watch(blowing.model, blowing.optimizer, settings={"doctor": "off"}) as watch:
            for step in range(_MOST_STEPS):
                blowing.optimizer.zero_grad()
                loss = blowing.loss(step)
                loss.backward()  # type: ignore[no-untyped-call]
                blowing.optimizer.step()
                watch.step(loss)
                blowing.after(step)
                if nonfinite is None and not math.isfinite(loss.item()):
                    nonfinite = step
                if nonfinite is not None and step >= nonfinite + 5:
                    break
        alarms: list[Finding] = []
        run = sonde.load(session.folder)
        sonde.diagnose(run, on_finding=lambda found: alarms.append(found) if found.severity.is_alarm else None)
        first_step = int(run.series("loss").step[0])
    at = None if nonfinite is None else first_step + nonfinite
    before = [found for found in alarms if at is None or found.last_step < at]
    return Outcome(
        kind.__name__,
        seed,
        nonfinite,
        at - before[0].last_step if before and at is not None else None,
        any(found.severity is Severity.CRITICAL for found in alarms if at is not None and found.last_step <= at + 2),
        alarms[0].code if alarms else "",
    )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults.divergence", description=__doc__)
    parser.add_argument("--seeds", default="0,2,4", help="even ones are for tuning, odd ones for the test")
    parser.add_argument("--only", help="of one kind")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    wanted = [
        (kind, int(seed))
        for kind in KINDS
        if options.only in (None, kind.__name__)
        for seed in options.seeds.split(",")
    ]
    with concurrent.futures.ProcessPoolExecutor(options.jobs, multiprocessing.get_context("forkserver")) as pool:
        outcomes = list(pool.map(outcome, *zip(*wanted, strict=True)))
    print("| training | seed | finite steps | steps of warning | critical within 2 steps | first alarm |")
    print("|---|---|---|---|---|---|")
    for one in outcomes:
        steps = "all" if one.finite_steps is None else one.finite_steps
        lead = "none" if one.lead is None else one.lead
        print(f"| {one.name} | {one.seed} | {steps} | {lead} | {'yes' if one.is_critical else 'no'} | {one.first} |")
    gone = [one for one in outcomes if one.finite_steps is not None]
    slow = [one for one in gone if (one.finite_steps or 0) >= FEW_STEPS]
    early = [one.lead for one in slow if one.lead is not None]
    fast = [one for one in gone if one not in slow]
    print(
        f"\n{len(gone)} of {len(outcomes)} became non-finite. After {FEW_STEPS} finite steps or more: {len(early)} of "
        f"{len(slow)} warned of before, {sum(lead >= _EARLY for lead in early)} at least {_EARLY} steps before. "
        f"Sooner: critical within 2 steps {sum(one.is_critical for one in fast)} of {len(fast)}."
    )


if __name__ == "__main__":
    main()
