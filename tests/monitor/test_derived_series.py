"""Series that are made of other series: through checkpoints, with several ranks, as the configuration says."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sonde
from sonde.config.schema import LossConfig
from sonde.monitor.loss_series import LossSeries
from sonde.monitor.messages import StepMessage
from sonde.monitor.recording import StepRecording
from sonde.testing.memory import MemoryRun

from . import loops

DERIVED = ("loss/score", "grad/norm_ema", "grad/norm_ratio", "clip/rate", "clip/strength", "weight/growth")


def _train(watch: Any, net: Any, optimizer: Any, num: int, *, seed: int = 2) -> list[float]:
    losses = []
    for i, batch in enumerate(loops.batches(num, seed=seed)):
        optimizer.zero_grad()
        loss = loops.loss_of(net, batch)
        loss.backward()
        if i % 3:
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.3)
        optimizer.step()
        losses.append(loss.item())
        watch.step(loss)
    return losses


def _made() -> tuple[Any, Any]:
    net = loops.model()
    return net, torch.optim.Adam(net.parameters(), lr=0.01)


def test_derived_series_go_on_without_a_jump_where_a_training_is_resumed(tmp_path: Path) -> None:
    net, optimizer = _made()
    with loops.watching(net, optimizer, tmp_path / "whole", settings={"doctor": "off"}) as watch:
        losses = _train(watch, net, optimizer, 45)
        losses += _train(watch, net, optimizer, 30, seed=5)
        watch.epoch()
    net, optimizer = _made()
    with loops.watching(net, optimizer, tmp_path / "parts", settings={"doctor": "off"}) as watch:
        _train(watch, net, optimizer, 45)
        saved = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "watch": watch.state_dict()}
        torch.save(saved, tmp_path / "checkpoint.pt")
    net, optimizer = _made()
    with loops.watching(net, optimizer, tmp_path / "parts", settings={"doctor": "off"}) as watch:
        saved = torch.load(tmp_path / "checkpoint.pt")
        net.load_state_dict(saved["net"])
        optimizer.load_state_dict(saved["optimizer"])
        watch.load_state_dict(saved["watch"])
        _train(watch, net, optimizer, 30, seed=5)
        watch.epoch()
    whole, parts = (sonde.load(tmp_path / name) for name in ("whole", "parts"))
    of_tensors = ("weight/growth@0.weight", "grad/flow@0", "grad/trajectory_dimension", "epoch/loss_kurtosis")
    for tag in (*DERIVED, *of_tensors):
        wanted, found = whole.series(tag), parts.series(tag)
        np.testing.assert_array_equal(found.step, wanted.step, tag)
        np.testing.assert_array_equal(found.value, wanted.value, tag)
    assert whole.series("grad/trajectory_dimension").step[0] == 64
    assert whole.series("epoch/loss_mean").value == pytest.approx(np.mean(losses))
    assert whole.series("epoch/loss_variance").value == pytest.approx(np.var(losses, ddof=1), rel=1e-5)
    started, lengths = (parts.series(f"phase/{what}").value.tolist() for what in ("start", "steps"))
    assert (started, lengths) == ([1, 1], [45, 75]), "one constant phase, told at the end of each session"


def _recorded(world_size: int, messages: list[StepMessage]) -> MemoryRun:
    run = MemoryRun()
    recording = StepRecording(run, world_size=world_size)
    for message in messages:
        message.let_go()
        message.record(recording, np.empty(0))
    recording.rest()
    return run


def test_the_effective_batch_is_that_of_all_micro_batches_and_ranks(tmp_path: Path) -> None:
    step = StepMessage(
        time=0.0,
        applied=frozenset({""}),
        skipped=frozenset(),
        loss=1.0,
        overflows={},
        readings=[],
        host={},
        samples=24.0,
    )
    assert _recorded(4, [step]).series("batch/effective").value.tolist() == [96]

    net, optimizer = _made()
    with loops.watching(net, optimizer, tmp_path / "run", settings={"doctor": "off"}) as watch:
        for i, batch in enumerate(watch.data(list(loops.batches(12, size=5)))):
            loss = loops.loss_of(net, batch)
            loss.backward()
            if i % 3 == 2:
                optimizer.step()
                optimizer.zero_grad()
            watch.step(loss)
    assert loops.values(tmp_path / "run", "batch/effective") == [15] * 4


def _losses(num: int) -> list[float]:
    return [float(loss) for loss in np.random.default_rng(3).lognormal(size=num)]


@pytest.mark.parametrize("decay", [0.95, 0.99, 0.999])
def test_the_decay_of_the_average_and_of_the_moments_is_as_it_is_set(decay: float) -> None:
    series, losses = LossSeries(LossConfig(decay=decay)), _losses(50)
    rows = [series.step(loss) for loss in losses]
    weights = decay ** np.arange(50)[::-1]
    weights /= weights.sum()
    mean = float(weights @ losses)
    assert rows[-1]["loss/ema"] == pytest.approx(mean)
    variance = float(weights @ (np.array(losses) - mean) ** 2) / (1 - float((weights**2).sum()))
    assert rows[-1]["loss/variance"] == pytest.approx(variance)


def test_the_score_is_the_change_over_the_spread_before_it() -> None:
    series, losses = LossSeries(LossConfig()), [2.0, 2.5, 2.25, 1000.0, math.nan, 3.0]
    rows = [series.step(loss) for loss in losses]
    assert ["loss/score" in row for row in rows] == [False, False, True, True, True, True]
    assert rows[3]["loss/score"] == pytest.approx((1000.0 - 2.25) / math.sqrt(rows[2]["loss/variance"]))
    assert rows[3]["loss/score"] > 1000, "no spread that has the jump inside"
    assert math.isnan(rows[4]["loss/score"])
    assert rows[5]["loss/score"] == pytest.approx((3.0 - 1000.0) / math.sqrt(rows[3]["loss/variance"]))


def test_another_decay_goes_on_at_the_height_of_the_average() -> None:
    first, losses = LossSeries(LossConfig(decay=0.99)), _losses(20)
    height = [first.step(loss)["loss/ema"] for loss in losses][-1]
    second = LossSeries(LossConfig(decay=0.95))
    second.load_state_dict(first.state_dict())
    assert second.step(height)["loss/ema"] == pytest.approx(height)


def test_states_of_older_versions_are_read() -> None:
    first = LossSeries(LossConfig())
    for loss in _losses(20):
        row = first.step(loss)
    old = {name: first.state_dict()[name] for name in ("ema", "moments")}
    second = LossSeries(LossConfig())
    second.load_state_dict(old)
    assert second.step(row["loss/ema"])["loss/ema"] == pytest.approx(row["loss/ema"])


def test_the_smoothing_is_as_the_configuration_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses: dict[str, list[float]] = {}
    for name, setting in (("short", "decay=0.95"), ("off", "ema=false")):
        monkeypatch.setenv("SONDE_LOSS", setting)
        net, optimizer = _made()
        with loops.watching(net, optimizer, tmp_path / name, settings={"doctor": "thread"}) as watch:
            losses[name] = _train(watch, net, optimizer, 6)
    weights = 0.95 ** np.arange(6)[::-1]
    average = loops.values(tmp_path / "short", "loss/ema")[-1]
    assert average == pytest.approx(float(weights @ losses["short"] / weights.sum()), rel=1e-5)
    off = sonde.load(tmp_path / "off")
    assert "loss/ema" not in off.tags()
    assert len(off.series("loss/variance").step) == 6
