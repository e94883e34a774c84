"""Profiles on request: shares that add up, an event, and a training that does not notice."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

import sonde
from sonde.probes.operators import split

from . import loops


def trained(run: Path, *, num_profiled: int = 0) -> list[Tensor]:
    net = loops.model(dropout=0.3)
    optimizer = torch.optim.AdamW(net.parameters())
    with loops.watching(net, optimizer, run, settings={"doctor": "off"}, console="quiet") as watch:
        for i, batch in enumerate(watch.data(loops.batches(8))):
            if i == 2 and num_profiled:
                watch.profile(num_profiled)
            loss = loops.loss_of(net, batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            watch.step(loss)
    return [tensor.clone() for tensor in net.state_dict().values()]


def test_shares_of_operators_add_up_and_the_training_is_the_same(tmp_path: Path) -> None:
    profiled, plain = trained(tmp_path / "profiled", num_profiled=2), trained(tmp_path / "plain")
    assert all(torch.equal(one, other) for one, other in zip(profiled, plain, strict=True))
    run = sonde.load(tmp_path / "profiled")
    shares = {tag: run.series(tag).value.tolist() for tag in run.tags("operator/*") if tag != "operator/time"}
    assert sum(value for (value,) in shares.values()) == pytest.approx(1.0, abs=1e-5)
    assert shares["operator/matmul"][0] > 0
    assert shares["operator/convolution"] == [0.0]
    assert run.series("operator/time").step.tolist() == [5]  # asked for in the third, profiled in the two after it
    (event,) = run.events("operators")
    assert event.data["num_steps"] == 2
    assert any("addmm" in operator.lower() for operator in event.data["shares"])  # the largest are named
    assert not sonde.load(tmp_path / "plain").tags("operator/*")


def test_shares_are_those_of_the_times_that_were_given() -> None:
    took = {
        "aten::mm": 4.0,
        "aten::_scaled_dot_product_flash_attention_for_cpu": 8.0,
        "aten::convolution_backward": 16.0,
        "aten::native_batch_norm": 32.0,
        "aten::_foreach_addcdiv_": 64.0,
        "aten::gelu_backward": 128.0,
        "aten::copy_": 256.0,
        "Memcpy DtoD (Device -> Device)": 512.0,
        "c10d::allreduce_": 1024.0,
        "aten::embedding": 2048.0,
        "Optimizer.step#AdamW.step": 4096.0,
    }
    total, shares = split(took)
    wanted = {
        "matmul": 4,
        "attention": 8,
        "convolution": 16,
        "normalisation": 32,
        "elementwise": 64 + 128,
        "copy": 256 + 512,
        "communication": 1024,
        "other": 2048 + 4096,
    }
    assert total == sum(took.values())
    assert shares == {name: pytest.approx(time / total) for name, time in wanted.items()}


def test_somebody_elses_profile_is_left_alone(tmp_path: Path) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as theirs:
        trained(tmp_path / "run", num_profiled=1)
    assert any(event.key == "aten::addmm" for event in theirs.key_averages())
    run = sonde.load(tmp_path / "run")
    assert not run.tags("operator/*")
    said = [event.data["reason"] for event in run.events("not-measured") if event.data["tag"] == "operator/matmul"]
    assert said == ["the training is being profiled already, and torch has one profiler"]
