"""At the default cadences: numbers of a whole model come from one step, and agree with plain float64 torch."""

import copy
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import sonde
from sonde.core.cadences import Every
from sonde.monitor.watch import watch
from sonde.probes.cadences import Cadences

from . import loops

NUM_STEPS = 1100
CUT = 1030
"""The step from which on the learning rate is a hundredth."""

Truth = dict[str, list[Any]]


def _net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 3))


def _flat(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().double().reshape(-1) for tensor in tensors])


def _record(run: Path, num_steps: int, cut: int, cadence: Cadences | None, budget: float = math.inf) -> Truth:
    """What plain torch says of every step."""
    net = _net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    truth: Truth = {"update/norm": [], "update/ratio": [], "weight/norm": [], "loss": [], "gradients": []}
    with watch(net, optimizer, run=run, strict=True, console="quiet", cadence=cadence, budget=budget) as watched:
        for step, batch in enumerate(loops.batches(num_steps), 1):
            if step == cut:
                optimizer.param_groups[0]["lr"] *= 0.01
            optimizer.zero_grad()
            loss = loops.loss_of(net, batch)
            loss.backward()
            truth["loss"].append(loss.item())
            truth["gradients"].append(_flat(loops.gradients(net)).tolist())
            before = _flat(net.parameters())
            optimizer.step()
            after = _flat(net.parameters())
            truth["update/norm"].append(float((after - before).norm()))
            truth["update/ratio"].append(float((after - before).norm() / before.norm()))
            truth["weight/norm"].append(float(after.norm()))
            watched.step(loss)
    return truth


@pytest.fixture(scope="module", params=[math.inf, 0.01], ids=["cadences kept", "cadences stretched"])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth, bool]:
    run = tmp_path_factory.mktemp("defaults") / "run"
    return run, _record(run, NUM_STEPS, CUT, None, request.param), request.param == math.inf


@pytest.mark.parametrize("tag", ["update/norm", "update/ratio", "weight/norm"])
def test_a_global_number_is_that_of_its_step_also_right_after_the_rate_was_cut(
    recorded: tuple[Path, Truth, bool], tag: str
) -> None:
    run, truth, are_kept = recorded
    found = sonde.load(run).series(tag)
    np.testing.assert_allclose(found.value, np.array(truth[tag])[found.step - 1], rtol=1e-5)
    assert (found.step <= 60).sum() >= 6  # no cadence is stretched by then
    assert not are_kept or (found.step >= CUT).sum() >= 7


def test_the_trajectory_is_that_of_every_tenth_gradient(recorded: tuple[Path, Truth, bool]) -> None:
    run, truth, are_kept = recorded
    if not are_kept:
        pytest.skip("which gradients are looked at depends on the machine's speed")
    found = sonde.load(run).series("grad/trajectory_dimension")
    assert found.step.tolist() == list(range(631, NUM_STEPS, 10))
    for step, dimension in zip(found.step.tolist(), found.value.tolist(), strict=True):
        rows = np.array(truth["gradients"][step - 631 : step : 10])
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        # All tensors have at most 256 values, of which a sketch is exact; that of all together is an estimate.
        assert dimension == pytest.approx(64**2 / np.square(rows @ rows.T).sum(), rel=0.15)


def test_the_phases_of_the_rate_have_the_losses_of_their_steps(recorded: tuple[Path, Truth, bool]) -> None:
    run = sonde.load(recorded[0])
    phases = {what: run.series(what).value.tolist() for what in ("phase", "phase/start", "phase/steps")}
    assert phases == {"phase": [2, 2], "phase/start": [1, CUT], "phase/steps": [CUT - 1, NUM_STEPS - CUT + 1]}
    assert run.series("phase").step.tolist() == [CUT, NUM_STEPS]
    own = [recorded[1]["loss"][: CUT - 1], recorded[1]["loss"][CUT - 1 :]]
    np.testing.assert_allclose(run.series("phase/loss_mean").value, [np.mean(some) for some in own], rtol=1e-5)
    variances = [np.var(some, ddof=1) for some in own]
    np.testing.assert_allclose(run.series("phase/loss_variance").value, variances, rtol=1e-4)


def test_a_rotation_gives_a_global_update_only_at_steps_that_measure_all(tmp_path: Path) -> None:
    cadence = Cadences(layers=Every(3), rotating=Every(4), updates=Every(8, offset=2))
    truth = _record(tmp_path / "run", 40, 21, cadence)
    run = sonde.load(tmp_path / "run")
    found = run.series("update/ratio")
    assert found.step.tolist() == [3, 11, 19, 27, 35]
    np.testing.assert_allclose(found.value, np.array(truth["update/ratio"])[found.step - 1], rtol=1e-5)
    assert len(run.series("update/ratio@0.weight").step) > len(found.step)


def test_the_second_of_two_optimiser_steps_is_measured_against_its_own_weights(tmp_path: Path) -> None:
    net = _net()
    optimizer = torch.optim.SGD(net.parameters(), lr=3.0)
    cadence = Cadences(layers=Every(2), rotating=Every(1000, offset=999), updates=Every(2, offset=1))
    ratios = []
    with loops.watching(net, optimizer, tmp_path / "run", cadence=cadence) as watched:
        for batch in loops.batches(8):
            for _ in range(2):
                optimizer.zero_grad()
                loss = loops.loss_of(net, batch)
                loss.backward()
                before = _flat(net.parameters())
                optimizer.step()
            ratios.append(float((_flat(net.parameters()) - before).norm() / before.norm()))
            watched.step(loss)
    found = sonde.load(tmp_path / "run").series("update/ratio")
    assert found.step.tolist() == [2, 4, 6, 8]
    np.testing.assert_allclose(found.value, np.array(ratios)[found.step - 1], rtol=1e-5)


def test_the_mean_gain_is_that_of_all_blocks_at_its_step(tmp_path: Path) -> None:
    net = _net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with watch(net, optimizer, run=tmp_path / "run", strict=True, console="quiet", budget=math.inf) as watched:
        for batch in loops.batches(110):
            optimizer.zero_grad()
            loss = loops.loss_of(net, batch)
            loss.backward()
            optimizer.step()
            watched.step(loss)
    run = sonde.load(tmp_path / "run")
    blocks = [run.series(f"gain/block@{name}") for name in ("2", "4", "5")]  # the first one's input has no gradient
    mean = run.series("gain/mean")
    assert len(mean.step) >= 4
    for block in blocks:
        assert block.step.tolist() == mean.step.tolist()
    wanted = np.exp(np.mean(np.log([block.value for block in blocks]), axis=0))
    np.testing.assert_allclose(mean.value, wanted, rtol=1e-5)


def test_percentiles_lie_between_the_extremes_of_their_step(tmp_path: Path) -> None:
    """A histogram says where its values lie to a quarter of them: what is known better is kept to."""
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    truth: dict[str, list[tuple[float, float]]] = {name: [] for name, _ in net.named_parameters()}
    with watch(net, optimizer, run=tmp_path / "run", strict=True, console="quiet", budget=math.inf) as watched:
        for batch in loops.batches(1050):
            optimizer.zero_grad()
            loss = loops.loss_of(net, batch)
            loss.backward()
            for name, parameter in net.named_parameters():
                assert parameter.grad is not None
                truth[name].append((float(parameter.grad.min()), float(parameter.grad.max())))
            optimizer.step()
            watched.step(loss)
    run = sonde.load(tmp_path / "run")
    for name, extremes in truth.items():
        for percent in (1, 5, 25, 50, 75, 95, 99):
            found = run.series(f"grad/p{percent}@{name}")
            smallest, largest = np.array(extremes, np.float32)[found.step - 1].T
            assert len(found.step) == 105
            assert (found.value >= smallest).all(), f"p{percent} of {name}"
            assert (found.value <= largest).all(), f"p{percent} of {name}"


def test_an_infinite_gradient_has_an_infinite_norm_and_a_nan_one_a_nan(tmp_path: Path) -> None:
    net = _net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    kept = copy.deepcopy(net.state_dict())
    wanted: dict[str, list[float]] = {"grad/norm": [], "grad/norm@0.weight": []}
    with watch(net, optimizer, run=tmp_path / "run", strict=True, console="quiet", budget=math.inf) as watched:
        for step, batch in enumerate(loops.batches(45), 1):
            optimizer.zero_grad()
            loss = loops.loss_of(net, batch)
            loss.backward()
            gradient = net.get_parameter("0.weight").grad
            assert gradient is not None
            if step % 3 == 0:
                gradient[0, 0] = math.inf
            if step % 6 == 0:
                gradient[1, 0] = math.nan
            flat = _flat(p.grad for p in net.parameters() if p.grad is not None)
            wanted["grad/norm"].append(float(flat.norm()))
            wanted["grad/norm@0.weight"].append(float(gradient.double().norm()))
            optimizer.step()
            net.load_state_dict(kept)
            watched.step(loss)
    run = sonde.load(tmp_path / "run")
    for tag, values in wanted.items():
        found = run.series(tag)
        np.testing.assert_allclose(found.value, np.array(values)[found.step - 1], rtol=1e-5, err_msg=tag)
    assert found.value[found.step == 21].tolist() == [math.inf]  # with all statistics


def test_spectra_bear_the_step_of_their_weights_and_are_judged_when_they_are_known(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 3))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    names = ("0.weight", "2.weight", "4.weight")
    truth: dict[str, list[float]] = {name: [] for name in names}
    cadence = Cadences(spectra=Every(6))
    with loops.watching(net, optimizer, tmp_path / "run", cadence=cadence, settings={"doctor": "thread"}) as watched:
        for batch in loops.batches(60):
            optimizer.zero_grad()
            loss = loops.loss_of(net, batch)
            loss.backward()
            optimizer.step()
            for name in names:
                truth[name].append(float(torch.linalg.matrix_norm(net.get_parameter(name).detach().double(), 2)))
            watched.step(loss)
    run = sonde.load(tmp_path / "run")
    for name in names:
        found = run.series(f"spectrum/largest@{name}")
        assert len(found.step)
        np.testing.assert_allclose(found.value, np.array(truth[name])[found.step - 1], rtol=1e-6)
    lag = run.series("spectrum/lag_steps")
    assert (lag.value >= 1).all()
    assert [finding.code for finding in watched.findings()] == [finding.code for finding in sonde.diagnose(run)]


def test_a_trajectory_is_not_measured_before_it_is_and_no_tag_is_without_a_value(tmp_path: Path) -> None:
    net = _net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with loops.watching(net, optimizer, tmp_path / "run") as watched:
        for batch in loops.batches(70):
            optimizer.zero_grad()
            loss = loops.loss_of(net, batch)
            loss.backward()
            optimizer.step()
            watched.step(loss)
    run = sonde.load(tmp_path / "run")
    assert run.series("grad/trajectory_dimension").step.tolist() == list(range(64, 71))
    assert [tag for tag in run.tags() if not len(run.series(tag).step)] == []
    assert "gain/block@0" not in run.tags()  # its input has no gradient
