"""The parameter and the step of the first gradient that is not finite, at the default cadences."""

import math
from pathlib import Path

import pytest
import torch
from torch import nn

import sonde
from sonde.core.findings import Finding
from sonde.monitor.watch import watch

from . import loops


def _poisoned(run: Path, poisoned_at: int, budget: float) -> tuple[Finding, Finding]:
    """Train until some steps after one value of the gradient of `2.weight` was NaN: what was found, live and after."""
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    with watch(
        net, optimizer, run=run, strict=True, console="quiet", budget=budget, settings={"doctor": "thread"}
    ) as watched:
        for step, batch in enumerate(loops.batches(poisoned_at + 40), 1):
            optimizer.zero_grad()
            loss = loops.loss_of(net, batch)
            loss.backward()
            gradient = net.get_parameter("2.weight").grad
            assert gradient is not None
            if step == poisoned_at:
                gradient[0, 0] = math.nan
            optimizer.step()
            watched.step(loss)
    live = next(finding for finding in watched.findings() if finding.code == "GRD005")
    replayed = next(finding for finding in sonde.diagnose(sonde.load(run)) if finding.code == "GRD005")
    return live, replayed


@pytest.mark.parametrize("step", [27, 903])
def test_it_is_named_at_its_step_where_norms_are_read(tmp_path: Path, step: int) -> None:
    for finding in _poisoned(tmp_path / "run", step, math.inf):
        assert finding.message == "the gradient of parameter `2.weight` holds NaN or infinite values"
        assert (finding.first_step, finding.where[0]) == (step, "2.weight")


def test_no_other_is_named_where_steps_rest(tmp_path: Path) -> None:
    for finding in _poisoned(tmp_path / "run", 903, 0.01):
        if "not known" in finding.message:
            assert finding.first_step > 903
            assert finding.where == ()
        else:
            assert (finding.first_step, finding.where[0]) == (903, "2.weight")
