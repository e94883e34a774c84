"""What is recorded is what plain torch measures in float64."""

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

import sonde
from sonde.core.cadences import Every, every
from sonde.probes.cadences import Cadences

from . import loops

NUM_STEPS = 6

RARELY = Cadences(layers=every(1000), cosines=every(1000), rotating=every(1000))

STATISTICS: dict[str, Callable[[Tensor], float]] = {
    "norm": lambda t: float(t.norm()),
    "rms": lambda t: float(t.square().mean().sqrt()),
    "mean": lambda t: float(t.mean()),
    "std": lambda t: float(t.std(correction=0)),
    "absmax": lambda t: float(t.abs().max()),
    "min": lambda t: float(t.min()),
    "max": lambda t: float(t.max()),
    "zeros": lambda t: float((t == 0).double().mean()),
    "nonfinite": lambda t: 0.0,
}


def _with_zeros() -> nn.Sequential:
    net = loops.model()
    with torch.no_grad():
        bias = net.get_parameter("0.bias")
        bias.fill_(-100.0)
        bias[:6] = 0.0
    return net


def test_gradients_and_weights_of_every_parameter_have_the_right_statistics(tmp_path: Path) -> None:
    net = _with_zeros()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    expected: dict[str, list[float]] = {}

    def note(family: str, name: str, tensor: Tensor) -> None:
        for statistic, reference in STATISTICS.items():
            tag = f"{family}/{statistic}@{name}"
            expected.setdefault(tag, []).append(reference(tensor.detach().double()))

    with loops.watching(net, optimizer, tmp_path / "run") as watch:
        for batch in loops.batches(NUM_STEPS):
            optimizer.zero_grad()
            loss = loops.loss_of(net, batch)
            loss.backward()
            for name, parameter in net.named_parameters():
                assert parameter.grad is not None
                note("grad", name, parameter.grad)
            optimizer.step()
            for name, parameter in net.named_parameters():
                note("weight", name, parameter)
            watch.step(loss)
    assert expected["grad/zeros@0.bias"][0] >= 0.5
    for tag, wanted in expected.items():
        np.testing.assert_allclose(loops.values(tmp_path / "run", tag), wanted, rtol=1e-5, atol=1e-7, err_msg=tag)


@pytest.mark.parametrize("cadence", [loops.ALWAYS, RARELY], ids=["layers", "norms only"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_global_norm_is_right_in_every_type_and_size(
    tmp_path: Path, dtype: torch.dtype, size: float, cadence: Cadences
) -> None:
    torch.manual_seed(0)
    net = nn.Linear(40, 30).to(dtype)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    wanted = []
    with loops.watching(net, optimizer, tmp_path / "run", cadence=cadence) as watch:
        for _ in range(3):
            for parameter in net.parameters():
                parameter.grad = (torch.randn(parameter.shape, dtype=torch.float64) * size).to(dtype)
            wanted.append(loops.norm_of(loops.gradients(net)))
            optimizer.step()
            watch.step(1.0)
    np.testing.assert_allclose(loops.values(tmp_path / "run", "grad/norm"), wanted, rtol=1e-5)


def _clip_by_name(parameters: list[nn.Parameter]) -> None:
    clip_grad_norm_(parameters, 0.05)


def _clip_by_path(parameters: list[nn.Parameter]) -> None:
    torch.nn.utils.clip_grad_norm_(parameters, max_norm=0.05)


def _clip_l1(parameters: list[nn.Parameter]) -> None:
    clip_grad_norm_(parameters, 0.05, norm_type=1)


def _clip_max(parameters: list[nn.Parameter]) -> None:
    clip_grad_norm_(parameters, 0.01, norm_type=math.inf)


def _clip_generator(parameters: list[nn.Parameter]) -> None:
    clip_grad_norm_((p for p in parameters), 0.05)


def _clip_by_value(parameters: list[nn.Parameter]) -> None:
    torch.nn.utils.clip_grad_value_(parameters, 0.01)


def _clip_not_needed(parameters: list[nn.Parameter]) -> None:
    clip_grad_norm_(parameters, 1e6)


def _clip_some(parameters: list[nn.Parameter]) -> None:
    clip_grad_norm_(parameters[:2], 0.02)


def _clip_each(parameters: list[nn.Parameter]) -> None:
    for parameter in parameters:
        clip_grad_norm_(parameter, 0.02)


def _clip_some_by_value(parameters: list[nn.Parameter]) -> None:
    torch.nn.utils.clip_grad_value_(parameters[1:], 0.01)


def _clip_both_ways(parameters: list[nn.Parameter]) -> None:
    torch.nn.utils.clip_grad_value_(parameters, 0.01)
    clip_grad_norm_(parameters, 0.02)


CLIPS = [
    _clip_by_name,
    _clip_by_path,
    _clip_l1,
    _clip_max,
    _clip_generator,
    _clip_by_value,
    _clip_not_needed,
    _clip_some,
    _clip_each,
    _clip_some_by_value,
    _clip_both_ways,
]


@pytest.mark.parametrize("cadence", [loops.ALWAYS, RARELY], ids=["layers", "norms only"])
@pytest.mark.parametrize("clip", CLIPS)
def test_norm_is_before_the_clip_and_norm_applied_after_it(
    tmp_path: Path, clip: Callable[[list[nn.Parameter]], None], cadence: Cadences
) -> None:
    net = loops.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    before, after = [], []
    with loops.watching(net, optimizer, tmp_path / "run", cadence=cadence) as watch:
        for batch in loops.batches(NUM_STEPS):
            optimizer.zero_grad()
            loss = loops.loss_of(net, batch)
            loss.backward()
            before.append(loops.norm_of(loops.gradients(net)))
            clip(list(net.parameters()))
            after.append(loops.norm_of(loops.gradients(net)))
            optimizer.step()
            watch.step(loss)
    np.testing.assert_allclose(loops.values(tmp_path / "run", "grad/norm"), before, rtol=2e-5)
    np.testing.assert_allclose(loops.values(tmp_path / "run", "grad/norm_applied"), after, rtol=2e-5)
    limits = loops.values(tmp_path / "run", "clip/limit")
    assert len(limits) == NUM_STEPS
    if clip is _clip_by_name:
        factors = loops.values(tmp_path / "run", "clip/factor")
        np.testing.assert_allclose(factors, np.array(after) / np.array(before), rtol=2e-5)
        np.testing.assert_allclose(limits, 0.05, rtol=1e-6)


@pytest.mark.parametrize("clip", [_clip_by_name, _clip_l1, _clip_some, _clip_each])
def test_layers_and_percentiles_are_before_the_clip(tmp_path: Path, clip: Callable[[list[nn.Parameter]], None]) -> None:
    net = loops.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    expected: dict[str, list[float]] = {}
    with loops.watching(net, optimizer, tmp_path / "run") as watch:
        for batch in loops.batches(NUM_STEPS):
            optimizer.zero_grad()
            loss = loops.loss_of(net, batch)
            loss.backward()
            for name, parameter in net.named_parameters():
                assert parameter.grad is not None
                for statistic in ("norm", "std", "min", "mean"):
                    value = STATISTICS[statistic](parameter.grad.double())
                    expected.setdefault(f"grad/{statistic}@{name}", []).append(value)
            weight = net.get_parameter("0.weight").grad
            assert weight is not None
            expected.setdefault("grad/p75@0.weight", []).append(float(weight.double().quantile(0.75)))
            clip(list(net.parameters()))
            optimizer.step()
            watch.step(loss)
    for tag, wanted in expected.items():
        relative, absolute = (0.3, 1e-3) if "/p75" in tag else (1e-4, 1e-8)
        np.testing.assert_allclose(loops.values(tmp_path / "run", tag), wanted, relative, absolute, err_msg=tag)


def test_hand_written_clip_is_unknown(tmp_path: Path) -> None:
    net = loops.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    after = []
    with loops.watching(net, optimizer, tmp_path / "run") as watch:
        for batch in loops.batches(NUM_STEPS):
            optimizer.zero_grad()
            loss = loops.loss_of(net, batch)
            loss.backward()
            for parameter in net.parameters():
                assert parameter.grad is not None
                parameter.grad.mul_(0.1)
            after.append(loops.norm_of(loops.gradients(net)))
            optimizer.step()
            watch.step(loss)
    np.testing.assert_allclose(loops.values(tmp_path / "run", "grad/norm_applied"), after, rtol=1e-5)
    assert sonde.load(tmp_path / "run").tags("clip/*") == []


OPTIMIZERS: dict[str, Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]] = {
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.5),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "tiny": lambda p: torch.optim.SGD(p, lr=1e-5),
}


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_updates_are_the_true_change_of_the_weights(
    tmp_path: Path, make: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
) -> None:
    net = loops.model()
    optimizer = make(net.parameters())
    expected: dict[str, list[float]] = {}
    with loops.watching(net, optimizer, tmp_path / "run") as watch:
        for batch in loops.batches(NUM_STEPS):
            optimizer.zero_grad()
            loss = loops.loss_of(net, batch)
            loss.backward()
            old = {name: p.detach().double().clone() for name, p in net.named_parameters()}
            optimizer.step()
            for name, parameter in net.named_parameters():
                change = parameter.detach().double() - old[name]
                expected.setdefault(f"update/norm@{name}", []).append(float(change.norm()))
                expected.setdefault(f"update/std@{name}", []).append(float(change.std(correction=0)))
                expected.setdefault(f"update/ratio@{name}", []).append(float(change.norm() / old[name].norm()))
            watch.step(loss)
    for tag, wanted in expected.items():
        np.testing.assert_allclose(loops.values(tmp_path / "run", tag), wanted, rtol=1e-5, atol=1e-10, err_msg=tag)


def test_rotation_measures_every_update_once_an_interval(tmp_path: Path) -> None:
    net = loops.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    cadence = Cadences(layers=every(3), cosines=every(1000), rotating=every(4), updates=Every(1000, offset=999))
    with loops.watching(net, optimizer, tmp_path / "run", cadence=cadence) as watch:
        for batch in loops.batches(12):
            optimizer.zero_grad()
            loss = loops.loss_of(net, batch)
            loss.backward()
            optimizer.step()
            watch.step(loss)
    run = sonde.load(tmp_path / "run")
    assert run.series("weight/norm@0.weight").step.tolist() == [1, 4, 7, 10]
    for name, _ in net.named_parameters():
        for tag in (f"update/ratio@{name}", f"grad/p50@{name}"):
            steps = run.series(tag).step
            assert len(steps) == 3
            assert set(np.diff(steps)) == {4}


def test_zero_initialised_parameter_has_no_ratio_until_it_moved(tmp_path: Path) -> None:
    net = loops.model()
    with torch.no_grad():
        net.get_parameter("3.bias").zero_()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with loops.watching(net, optimizer, tmp_path / "run") as watch:
        for batch in loops.batches(3):
            optimizer.zero_grad()
            loss = loops.loss_of(net, batch)
            loss.backward()
            optimizer.step()
            watch.step(loss)
    run = sonde.load(tmp_path / "run")
    assert run.series("update/ratio@3.bias").step.tolist() == [2, 3]
    assert run.series("update/ratio@3.weight").step.tolist() == [1, 2, 3]


@pytest.mark.parametrize("as_tensor", [False, True])
def test_learning_rate_is_the_one_the_step_was_made_with(tmp_path: Path, as_tensor: bool) -> None:
    net = loops.model()
    start: Any = torch.tensor(0.1) if as_tensor else 0.1
    groups: list[dict[str, Any]] = [{"params": [*net[0].parameters()]}, {"params": [*net[3].parameters()], "lr": 0.5}]
    optimizer = torch.optim.Adam(groups, lr=start)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    applied: list[tuple[float, float]] = []
    with loops.watching(net, optimizer, tmp_path / "run") as watch:
        for batch in loops.batches(4):
            optimizer.zero_grad()
            loss = loops.loss_of(net, batch)
            loss.backward()
            applied.append((float(optimizer.param_groups[0]["lr"]), float(optimizer.param_groups[1]["lr"])))
            optimizer.step()
            scheduler.step()
            watch.step(loss)
    recorded = zip(loops.values(tmp_path / "run", "lr@0"), loops.values(tmp_path / "run", "lr@1"), strict=True)
    np.testing.assert_allclose(list(recorded), applied, rtol=1e-6)
    assert applied[0][0] != applied[1][0]


def test_loss_may_be_a_tensor_a_number_or_several_values(tmp_path: Path) -> None:
    net = loops.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses: list[Any] = [torch.tensor(0.5, requires_grad=True), 0.25, 3, torch.tensor([1.0, 2.0]), np.float32(7), 1e200]
    losses += [torch.tensor([[4.0]]), torch.tensor(2, dtype=torch.int64), torch.tensor(0.125, dtype=torch.bfloat16)]
    with loops.watching(net, optimizer, tmp_path / "run") as watch:
        for loss in losses:
            optimizer.step()
            watch.step(loss, parts={"task": loss, "rest/l2": 1.0})
    wanted = [0.5, 0.25, 3, 1.5, 7, math.inf, 4, 2, 0.125]
    assert loops.values(tmp_path / "run", "loss") == wanted
    assert loops.values(tmp_path / "run", "loss/part@task") == wanted
    assert loops.values(tmp_path / "run", "loss/part@rest/l2") == [1.0] * len(wanted)


def test_loss_is_smoothed_with_bias_correction_and_its_moments_follow(tmp_path: Path) -> None:
    net = loops.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = np.random.default_rng(0).normal(3, 1, 40)
    with loops.watching(net, optimizer, tmp_path / "run") as watch:
        for loss in losses:
            optimizer.step()
            watch.step(float(loss))
    raw, wanted = 0.0, []
    for i, loss in enumerate(losses):
        raw = 0.99 * raw + 0.01 * loss
        wanted.append(raw / (1 - 0.99 ** (i + 1)))
    np.testing.assert_allclose(loops.values(tmp_path / "run", "loss/ema"), wanted, rtol=1e-5)
    weights = 0.99 ** np.arange(len(losses))[::-1]
    weights /= weights.sum()
    mean = (weights * losses).sum()
    variance = (weights * (losses - mean) ** 2).sum() / (1 - (weights**2).sum())
    np.testing.assert_allclose(loops.values(tmp_path / "run", "loss/variance")[-1], variance, rtol=1e-5)


def test_throughput_counts_the_samples_of_all_micro_steps(tmp_path: Path) -> None:
    net = loops.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with loops.watching(net, optimizer, tmp_path / "run") as watch:
        for i, batch in enumerate(watch.data(loops.batches(12))):
            loss = loops.loss_of(net, batch)
            loss.backward()
            if i % 3 == 2:
                optimizer.step()
                optimizer.zero_grad()
            watch.step(loss, samples=8, tokens=80)
    run = tmp_path / "run"
    for quantity, count in (("samples", 24), ("tokens", 240)):
        rates = np.array(loops.values(run, f"throughput/{quantity}_per_s"))
        np.testing.assert_allclose(rates * loops.values(run, "time/step"), count, rtol=1e-4)
    assert all(t > 0 for t in loops.values(run, "time/data"))
    assert np.all(np.array(loops.values(run, "time/data")) < loops.values(run, "time/step"))
    assert all(t > 0 for t in loops.values(run, "monitor/time"))


def test_evaluation_belongs_to_the_last_completed_step(tmp_path: Path) -> None:
    net = loops.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with loops.watching(net, optimizer, tmp_path / "run") as watch:
        for i, batch in enumerate(loops.batches(6)):
            loss = loops.loss_of(net, batch)
            loss.backward()
            if i % 2:  # two micro-steps a step
                optimizer.step()
                optimizer.zero_grad()
            watch.step(loss)
            watch.evaluate(loss=torch.tensor(float(i), requires_grad=True), metrics={"accuracy": i / 10})
    run = sonde.load(tmp_path / "run")
    assert run.steps == 3
    accuracy = run.series("val/accuracy")
    assert set(accuracy.step.tolist()) <= {0, 1, 2, 3}
    assert accuracy.step[-1] == 3
    assert len(run.branches) == 1, "evaluating twice after one step is no going back"
    np.testing.assert_allclose(accuracy.value[-1], 0.5)
    np.testing.assert_allclose(run.series("val/loss").value[-1], 5.0)


@pytest.mark.parametrize("cadence", [loops.ALWAYS, RARELY], ids=["layers", "norms only"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_non_finite_gradients_and_losses_are_recorded_as_measured(
    tmp_path: Path, bad: float, cadence: Cadences
) -> None:
    net = loops.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    with loops.watching(net, optimizer, tmp_path / "run", cadence=cadence) as watch:
        for i in range(3):
            for parameter in net.parameters():
                parameter.grad = torch.ones_like(parameter)
            if i == 1:
                gradient = net.get_parameter("0.weight").grad
                assert gradient is not None
                gradient[0, :3] = bad
                every_one = net.get_parameter("3.bias").grad
                assert every_one is not None
                every_one.fill_(bad)
            optimizer.step()
            watch.step(bad if i == 1 else 1.0)
    run = tmp_path / "run"
    np.testing.assert_array_equal(loops.values(run, "loss"), [1, bad, 1])
    norms = loops.values(run, "grad/norm")
    np.testing.assert_allclose([norms[0], norms[2]], math.sqrt(6 * 12 + 12 + 12 * 3 + 3), rtol=1e-6)
    np.testing.assert_equal(norms[1], abs(bad))
    assert all(map(math.isfinite, loops.values(run, "loss/ema")))
    if cadence is loops.ALWAYS:
        assert loops.values(run, "grad/nonfinite@0.weight") == [0, 3, 0]
        assert loops.values(run, "grad/nonfinite@3.bias") == [0, 3, 0]
        assert loops.values(run, "grad/nonfinite@3.weight") == [0, 0, 0]
        np.testing.assert_equal(loops.values(run, "grad/norm@0.weight")[1], abs(bad))
        np.testing.assert_allclose(loops.values(run, "grad/max@0.weight"), 1)
        for statistic in ("min", "max", "mean", "absmax"):
            assert math.isnan(loops.values(run, f"grad/{statistic}@3.bias")[1])


@pytest.mark.parametrize("cadence", [loops.ALWAYS, RARELY], ids=["layers", "norms only"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_clipping_non_finite_gradients_leaves_an_applied_norm_that_is_not_a_number(
    tmp_path: Path, bad: float, cadence: Cadences
) -> None:
    net = loops.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    with loops.watching(net, optimizer, tmp_path / "run", cadence=cadence) as watch:
        for i in range(3):
            for parameter in net.parameters():
                parameter.grad = torch.full_like(parameter, bad if i == 1 else 1.0)
            clip_grad_norm_(net.parameters(), 0.5)
            optimizer.step()
            watch.step(1.0)
    for tag, wanted, in_between in (
        ("grad/norm", math.sqrt(123), bad),
        ("grad/norm_applied", 0.5, math.nan),
        ("clip/factor", 0.5 / math.sqrt(123), math.nan),
    ):
        np.testing.assert_allclose(loops.values(tmp_path / "run", tag), [wanted, in_between, wanted], rtol=1e-5)


def test_non_finite_weights_have_a_measured_ratio(tmp_path: Path) -> None:
    net = loops.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with loops.watching(net, optimizer, tmp_path / "run") as watch:
        for _ in range(2):
            for parameter in net.parameters():
                parameter.grad = torch.full_like(parameter, math.nan)
            optimizer.step()
            watch.step(1.0)
    assert np.isnan(loops.values(tmp_path / "run", "update/ratio@0.weight")).tolist() == [True, True]
