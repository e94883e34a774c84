"""However short the steps are, every one has its essentials, and each family its least density."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import sonde

NUM_STEPS, SPIKES, NAN = 1300, (903, 1203), 1281


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training of tiny steps at default settings, with two spikes and a NaN planted late."""
    folder: Path = tmp_path_factory.mktemp("unseen") / "run"
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    inputs, targets = torch.randn(512, 16), torch.randint(0, 4, (512,))
    with sonde.watch(net, optimizer, run=folder, console="quiet", settings={"doctor": "off"}) as watch:
        for step in range(1, NUM_STEPS + 1):
            rows = torch.arange(step * 32, step * 32 + 32) % 512
            loss = nn.functional.cross_entropy(net(inputs[rows]), targets[rows])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            weight: Any = net[2].weight
            if step in SPIKES:
                weight.grad.mul_(1000)
            if step == NAN:
                weight.grad[0, 0] = torch.nan
            optimizer.step()
            if step == NAN:  # the training goes on: somebody has cleaned up
                weight.data.nan_to_num_(0.0)
            watch.step(loss)
    return folder


def longest_gap(run: Path, tag: str) -> int:
    steps = sonde.load(run).series(tag).step
    return int(np.diff(steps, prepend=0, append=NUM_STEPS).max())


def test_loss_rate_and_global_norms_are_at_every_step(run: Path) -> None:
    stored = sonde.load(run)
    for tag in ("loss", "lr", "grad/norm", "grad/norm_applied", "grad/norm_finite", "time/step", "monitor/time"):
        assert stored.series(tag).step.tolist() == list(range(1, NUM_STEPS + 1)), tag


@pytest.mark.parametrize(
    ("tag", "most"),
    [
        ("grad/norm@0.weight", 20),
        ("grad/zeros@4.bias", 20),
        ("weight/norm@2.weight", 20),
        ("batch/mean@0", 20),
        ("update/ratio", 100),
        ("act/zeros@1", 500),
        ("act/zeros@3", 500),
        ("gain/block@2", 500),
        ("memory/parameters", 500),
        ("host/rss", 50),
        ("logits/norm", 500),
    ],
)
def test_no_family_is_unseen_for_long(run: Path, tag: str, most: int) -> None:
    assert longest_gap(run, tag) <= most


def test_each_module_is_looked_at_several_times_in_the_first_200_steps(run: Path) -> None:
    for module in ("1", "3"):
        assert np.sum(sonde.load(run).series(f"act/zeros@{module}").step <= 200) >= 4


def test_gradients_that_jump_are_recorded_found_and_named_at_their_step(run: Path) -> None:
    assert set(SPIKES) <= set(sonde.load(run).series("grad/norm@2.weight").step.tolist())
    found = {finding.first_step: finding.where for finding in sonde.diagnose(run) if finding.code == "GRD002"}
    for step in SPIKES:
        assert found[step] == ("2.weight",)


def test_a_nan_is_named_at_its_step_and_parameter(run: Path) -> None:
    (finding,) = [finding for finding in sonde.diagnose(run) if finding.code == "GRD005"]
    assert (finding.first_step, finding.where) == (NAN, ("2.weight",))
