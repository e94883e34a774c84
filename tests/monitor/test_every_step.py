"""Every step is there, whatever is measured in it, however it is given and however the training goes on."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import sonde
from sonde.core.cadences import every
from sonde.probes.cadences import Cadences

from . import loops

NUM_STEPS = 60
RARELY = Cadences(layers=every(1000), cosines=every(1000), rotating=every(1000), blocks=every(1000))


def stepped(net: Any, optimizer: Any, batch: Any) -> Any:
    optimizer.zero_grad()
    loss = loops.loss_of(net, batch)
    loss.backward()
    optimizer.step()
    return loss


@pytest.mark.parametrize(
    "given",
    [
        lambda loss: loss,
        lambda loss: loss.detach().double(),
        lambda loss: loss.item(),
        lambda loss: np.float32(loss.item()),
        lambda loss: loss.detach().expand(3),
    ],
    ids=["tensor", "double", "number", "numpy", "several"],
)
def test_every_step_has_its_loss_however_it_is_given(tmp_path: Path, given: Callable[[Tensor], Any]) -> None:
    net = loops.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses, rates = [], []
    with loops.watching(net, optimizer, tmp_path / "run", cadence=RARELY) as watch:
        for i, batch in enumerate(watch.data(loops.batches(NUM_STEPS))):
            optimizer.param_groups[0]["lr"] = 0.1 / (1 + i)
            loss = stepped(net, optimizer, batch)
            losses.append(loss.item())
            rates.append(0.1 / (1 + i))
            optimizer.param_groups[0]["lr"] = 7.0  # as a scheduler would, before the iteration is closed
            watch.step(given(loss), parts={"half": loss.detach() / 2 if i % 2 else 0.5})
    run = tmp_path / "run"
    assert len(loops.values(run, "grad/norm")) == NUM_STEPS
    np.testing.assert_allclose(loops.values(run, "loss"), losses, rtol=1e-6)
    np.testing.assert_allclose(loops.values(run, "lr"), rates, rtol=1e-6)
    halves = [loss / 2 if i % 2 else 0.5 for i, loss in enumerate(losses)]
    np.testing.assert_allclose(loops.values(run, "loss/part@half"), halves, rtol=1e-6)
    for tag in ("loss/ema", "time/step", "time/data", "time/optimizer", "monitor/time", "throughput/samples_per_s"):
        assert np.isfinite(loops.values(run, tag)).all(), tag


def test_micro_steps_belong_to_their_step(tmp_path: Path) -> None:
    net = loops.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    expected = []
    with loops.watching(net, optimizer, tmp_path / "run", cadence=RARELY) as watch:
        batches = iter(loops.batches(3 * NUM_STEPS))
        for _ in range(NUM_STEPS):
            optimizer.zero_grad()
            micro = []
            for place in range(3):
                loss = loops.loss_of(net, next(batches))
                loss.backward()
                micro.append(loss.item())
                if place == 2:
                    optimizer.step()
                watch.step(loss, samples=4)
            expected.append(np.mean(micro))
    run = tmp_path / "run"
    assert len(loops.values(run, "grad/norm")) == NUM_STEPS
    np.testing.assert_allclose(loops.values(run, "loss"), expected, rtol=1e-6)
    assert set(loops.values(run, "loss/num_micro")) == {3.0}
    assert len(sonde.load(run).series("loss/micro").value) == 3 * NUM_STEPS


def test_evaluations_epochs_and_events_stand_at_the_last_step_before_them(tmp_path: Path) -> None:
    net = loops.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with loops.watching(net, optimizer, tmp_path / "run", cadence=RARELY) as watch:
        for step, batch in enumerate(loops.batches(NUM_STEPS), 1):
            watch.step(stepped(net, optimizer, batch))
            if step % 7 == 0:
                watch.evaluate(loss=float(step))
            if step % 10 == 0:
                watch.epoch()
            if step == 45:
                watch.not_measured("something", "for a test")
    run = sonde.load(tmp_path / "run")
    found = run.series("val/loss")
    assert found.step.tolist() == found.value.tolist() == list(range(7, NUM_STEPS + 1, 7))
    assert run.series("epoch").step.tolist() == list(range(10, NUM_STEPS + 1, 10))
    assert run.series("epoch/steps").value.tolist() == [10.0] * (NUM_STEPS // 10)
    said = [e.step for e in run.events() if e.kind == "not-measured" and e.data["tag"] == "something"]
    assert said == [45]


def test_every_step_is_in_the_checkpoint_and_in_the_run_that_fails(tmp_path: Path) -> None:
    def train() -> None:
        net = loops.model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        with loops.watching(net, optimizer, tmp_path / "run", cadence=RARELY) as watch:
            for step, batch in enumerate(loops.batches(NUM_STEPS), 1):
                watch.step(stepped(net, optimizer, batch))
                if step in (30, 41):
                    assert watch.state_dict()["step"] == step
                if step == 45:
                    raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        train()
    assert len(loops.values(tmp_path / "run", "loss")) == 45


def test_a_part_whose_name_makes_no_tag_is_left_out_and_the_step_stays(tmp_path: Path) -> None:
    net = loops.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with sonde.watch(net, optimizer, run=tmp_path / "run", cadence=RARELY) as watch:
        for batch in loops.batches(3):
            watch.step(stepped(net, optimizer, batch), parts={"bad name\n": 0.5, "a": 0.25})
    assert loops.values(tmp_path / "run", "loss/part@a") == [0.25] * 3
    assert len(loops.values(tmp_path / "run", "loss")) == 3


def test_steps_come_to_the_disk_though_the_training_makes_no_more(tmp_path: Path) -> None:
    net = loops.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    run = tmp_path / "run"
    losses: list[float] = []
    with loops.watching(net, optimizer, run, cadence=RARELY) as watch:
        for end in (NUM_STEPS - 20, NUM_STEPS):
            for batch in watch.data(list(loops.batches(end - len(losses)))):
                loss = stepped(net, optimizer, batch)
                watch.step(loss)
                losses.append(loss.item())
            # An evaluation, a checkpoint, a lock: the training thread does nothing of ours, and may be killed any time.
            deadline = time.monotonic() + 60
            while sonde.load(run).steps < end:
                assert time.monotonic() < deadline, "the last steps wait for the next one"
    assert np.array_equal(sonde.load(run).series("loss").value, np.array(losses, np.float32))
    for tag in ("lr", "time/step", "throughput/samples_per_s", "monitor/time", "monitor/stretch"):
        assert sonde.load(run).series(tag).step.tolist() == list(range(1, NUM_STEPS + 1)), tag
