"""Whether Sonde keeps its budget on the CPU models that make it hardest: thousands of tiny tensors, a few huge ones.

After the first 200 steps, in which cadences find their stretch, the time that Sonde takes of a step (`monitor/time`)
must stay within 1.2 × max(budget × step, floor), with budget 1% and floor 2 ms (the defaults on a CPU). `step` is the
iteration as the loop sees it, less Sonde's own time.

Usage: python benchmarks/budget.py [--only many|large] [--steps N]
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from measure import Figure, print_figures, print_machine
from torch import Tensor, nn

import sonde

BUDGET = 0.01
FLOOR_S = 2e-3
SLACK = 1.2
SETTLED_STEPS = 200


class Many(nn.Module):
    """Layers of 8 × 8 one after the other, each added to its input so that signals neither die nor explode."""

    def __init__(self, num_layers: int = 2_000) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(num_layers))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + 0.01 * layer(x)
        return x


def large() -> nn.Module:
    """60 million parameters, nearly all of them in four matrices."""
    return nn.Sequential(
        nn.Linear(8, 4096),
        *(layer for _ in range(3) for layer in (nn.Linear(4096, 4096), nn.GELU())),
        nn.Linear(4096, 2300),
        nn.Linear(2300, 8),
    )


class Case(NamedTuple):
    make: Callable[[], nn.Module]
    batch: int
    num_steps: int


CASES = {"many": Case(Many, 16, 600), "large": Case(large, 16, 500)}


def measure(name: str, num_steps: int, folder: Path) -> None:
    case = CASES[name]
    torch.manual_seed(0)
    model = case.make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    inputs, targets = torch.randn(case.batch, 8), torch.randn(case.batch, 8)
    took = []
    with sonde.watch(model, optimizer, run=folder / name) as watch:
        for _ in range(num_steps):
            started = time.perf_counter()
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)
            took.append(time.perf_counter() - started)
    run = sonde.load(folder / name)
    own, stretch = run.series("monitor/time").value, run.series("monitor/stretch").value
    assert len(own) == len(took) == len(stretch)
    steps = np.array(took) - own
    own_later, steps_later = own[SETTLED_STEPS:], steps[SETTLED_STEPS:]

    sizes = [parameter.numel() for parameter in model.parameters()]
    figures = [
        Figure(
            what=f"own time of a step, {what}",
            value=float(of(own_later)) * 1e3,
            unit="ms",
            at_most=SLACK * max(BUDGET * float(of(steps_later)), FLOOR_S) * 1e3,
            note=f"{of(own_later) / of(steps_later):.2%} of a {what} step of {of(steps_later) * 1e3:.0f} ms",
        )
        for what, of in (("median", np.median), ("mean", np.mean))
    ]
    p99 = float(np.percentile(own_later, 99)) * 1e3
    figures += [
        Figure(what="own time, p99", value=p99, unit="ms", note=f"largest {own_later.max() * 1e3:.1f} ms"),
        Figure(
            what=f"own time, first {SETTLED_STEPS} steps",
            value=float(own[:SETTLED_STEPS].mean()) * 1e3,
            unit="ms",
            note=f"mean; largest {own[:SETTLED_STEPS].max() * 1e3:.1f} ms",
        ),
        Figure(
            what="stretch at the end",
            value=float(stretch[-1]),
            unit="×",
            note=f"largest {stretch.max():.3g}, after {SETTLED_STEPS} steps {stretch[SETTLED_STEPS - 1]:.3g}",
        ),
    ]
    title = f"{name}: {sum(sizes):,} parameters in {len(sizes):,} tensors, AdamW, {num_steps} steps"
    print_figures(title, figures)


def main() -> None:
    parser = argparse.ArgumentParser(description="Own time against the budget, on CPU models of extreme shapes.")
    parser.add_argument("--only", choices=CASES, action="append", help="one model; may be given several times")
    parser.add_argument("--steps", type=int, help=f"more than {SETTLED_STEPS}; as each model needs where left out")
    options = parser.parse_args()
    if options.steps is not None and options.steps <= SETTLED_STEPS:
        parser.error(f"--steps must be more than {SETTLED_STEPS}, got {options.steps}.")
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as folder:
        print("## Budget\n")
        print("`python benchmarks/budget.py`, one process, two threads of torch, default settings:\n")
        print_machine(("numpy", "pyarrow", "torch"), Path(folder))
        for name in options.only or CASES:
            measure(name, options.steps or CASES[name].num_steps, Path(folder))


if __name__ == "__main__":
    main()
