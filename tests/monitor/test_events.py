"""What a watched training tells the rules besides its rows, and how often it looks at batches and memory."""

import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import sonde
from sonde.monitor.watch import Watch, watch

from . import loops


def _train(watching: Watch, net: nn.Module, optimizer: torch.optim.Optimizer, num: int, seed: int = 2) -> None:
    for batch in watching.data(loops.batches(num, seed=seed)):
        optimizer.zero_grad()
        loss = loops.loss_of(net, batch)
        loss.backward()
        optimizer.step()
        watching.step(loss)


def _made() -> tuple[nn.Module, torch.optim.Optimizer]:
    net = loops.model()
    return net, torch.optim.AdamW(net.parameters(), lr=0.01, weight_decay=0.2)


def _watch(net: nn.Module, optimizer: torch.optim.Optimizer, run: Path, **settings: Any) -> Watch:
    return watch(net, optimizer, run=run, console="quiet", budget=math.inf, **{"strict": True, **settings})


def test_a_spoilt_batch_is_seen_at_its_step_by_default(tmp_path: Path) -> None:
    net, optimizer = _made()
    with _watch(net, optimizer, tmp_path) as watching:
        for i, (x, y) in enumerate(watching.data(loops.batches(40)), 1):
            if i == 23:
                x[3, 2] = math.nan
            if i == 31:
                x *= 1000
            optimizer.zero_grad()
            loss: Any = nn.functional.cross_entropy(net(x), y)
            if i != 23:
                loss.backward()
            optimizer.step()
            watching.step(loss.detach())
    run = sonde.load(tmp_path)
    nonfinite, absmax = run.series("batch/nonfinite@0"), run.series("batch/absmax@0")
    np.testing.assert_array_equal(nonfinite.step, np.arange(2, 41))  # nothing is hooked in the first iteration
    assert nonfinite.step[nonfinite.value > 0].tolist() == [23]
    assert absmax.step[absmax.value > 100].tolist() == [31]
    assert len(run.series("label/entropy").step) == 39
    assert run.series("batch/scale_spread@0").step.tolist() == [2, 27]


def test_the_memory_of_the_process_is_read_at_every_tenth_step(tmp_path: Path) -> None:
    net, optimizer = _made()
    with _watch(net, optimizer, tmp_path) as watching:
        _train(watching, net, optimizer, 60)
    run = sonde.load(tmp_path)
    for tag in ("host/rss", "time/backward"):
        assert run.series(tag).step.tolist() == [2, 12, 22, 32, 42, 52], tag


def test_what_the_loop_does_beside_its_phases_is_in_none_of_them(tmp_path: Path) -> None:
    net, optimizer = _made()
    least_s = 0.004

    def work() -> None:
        until = time.perf_counter() + least_s
        while time.perf_counter() < until:
            pass

    with _watch(net, optimizer, tmp_path) as watching:
        for x, y in watching.data(loops.batches(3)):
            work()
            outputs = net(x)
            work()
            loss: Any = nn.functional.cross_entropy(outputs, y)
            loss.backward()
            work()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            work()
            watching.step(loss)
    run = sonde.load(tmp_path)
    assert run.series("time/loss").value[0] >= least_s
    assert run.series("time/other").value[0] >= 3 * least_s
    for tag in ("time/forward", "time/backward", "time/clip", "time/optimizer_device", "time/monitor"):
        assert run.series(tag).step.tolist() == [2], tag
        assert run.series(tag).value[0] > 0, tag


def test_settings_of_the_optimiser_are_there_from_the_first_step(tmp_path: Path) -> None:
    net, optimizer = _made()
    with _watch(net, optimizer, tmp_path) as watching:
        _train(watching, net, optimizer, 3)
        optimizer.param_groups[0]["weight_decay"] = 0.5
        _train(watching, net, optimizer, 3)
    run = sonde.load(tmp_path)
    decay = run.series("optimizer/weight_decay@0")
    assert decay.step.tolist() == [1, 4]
    assert decay.value.tolist() == pytest.approx([0.2, 0.5])
    (event,) = run.events("optimizer")
    assert event.step == 0
    assert event.data["optimizer"] == "AdamW"
    assert event.data["groups"][0] | {"num_parameters": 4} == event.data["groups"][0]
    assert event.data["groups"][0]["lr"] == 0.01


@pytest.mark.parametrize("with_state", [True, False])
def test_a_resumed_run_says_where_and_whether_the_optimiser_remembers(tmp_path: Path, with_state: bool) -> None:
    net, optimizer = _made()
    with _watch(net, optimizer, tmp_path) as watching:
        _train(watching, net, optimizer, 12)
        saved = watching.state_dict(), optimizer.state_dict()
        _train(watching, net, optimizer, 5)
    _, optimizer = net, torch.optim.AdamW(net.parameters(), lr=0.01)
    with _watch(net, optimizer, tmp_path) as watching:
        watching.load_state_dict(saved[0])
        if with_state:
            optimizer.load_state_dict(saved[1])
        _train(watching, net, optimizer, 4)
    run = sonde.load(tmp_path)
    (event,) = run.events("resumed")
    assert event.step == 12
    assert event.data == {"optimizers": [{"optimizer": "AdamW", "num_with_state": 4 if with_state else 0}]}
    assert run.events("restored") == []
    assert run.steps == 16


def test_state_that_is_loaded_or_lost_while_training_is_said(tmp_path: Path) -> None:
    net, optimizer = _made()
    fresh = optimizer.state_dict()
    with _watch(net, optimizer, tmp_path) as watching:
        _train(watching, net, optimizer, 5)
        optimizer.load_state_dict(fresh)
        _train(watching, net, optimizer, 5)
        optimizer.state.clear()
        _train(watching, net, optimizer, 5)
    events = sonde.load(tmp_path).events("restored")
    assert [event.step for event in events] == [5, 10]
    assert all(event.data == {"optimizer": "AdamW", "num_with_state": 0, "num_before": 4} for event in events)
    optimizer.load_state_dict(fresh)
    assert len(sonde.load(tmp_path).events("restored")) == 2


class Broken(nn.Module):
    """Its forward takes something that no probe can look at without failing."""

    def __init__(self) -> None:
        super().__init__()
        self.net = loops.model()

    def forward(self, x: torch.Tensor, _note: Any = None) -> torch.Tensor:
        y: torch.Tensor = self.net(x)
        return y


class Trap(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError("look away")


def test_a_fault_of_our_own_is_said_in_the_run_once(tmp_path: Path) -> None:
    net = Broken()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with _watch(net, optimizer, tmp_path, strict=False) as watching:
        for x, y in loops.batches(10):
            optimizer.zero_grad()
            loss: Any = nn.functional.cross_entropy(net(x, Trap()), y)
            loss.backward()
            optimizer.step()
            watching.step(loss)
    run = sonde.load(tmp_path)
    (event,) = run.events("monitor-problem")
    assert event.data == {"reason": "RuntimeError: look away"}
    assert event.step is not None
    assert [finding.code for finding in sonde.diagnose(run) if finding.code == "SYS006"] == ["SYS006"]
    assert run.steps == 10


def test_hooks_of_every_iteration_are_gone_when_it_is_over(tmp_path: Path) -> None:
    net, optimizer = _made()
    with _watch(net, optimizer, tmp_path) as watching:
        _train(watching, net, optimizer, 5)
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in net.modules())
    assert not optimizer._optimizer_load_state_dict_post_hooks
