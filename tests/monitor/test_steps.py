"""What counts as a step, in every kind of loop."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.utils.checkpoint import checkpoint

import sonde
from sonde.probes.gradients import Gradients

from . import loops


@pytest.mark.parametrize("zero_first", [True, False], ids=["zero_grad before", "zero_grad after"])
@pytest.mark.parametrize("num_micro", [1, 3])
def test_accumulated_step_has_the_mean_of_its_micro_losses(tmp_path: Path, num_micro: int, zero_first: bool) -> None:
    net = loops.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses, norms, micro = [], [], []
    with loops.watching(net, optimizer, tmp_path / "run") as watch:
        for i, batch in enumerate(loops.batches(5 * num_micro)):
            loss = loops.loss_of(net, batch)
            (loss / num_micro).backward()
            micro.append(loss.item())
            boundary = i % num_micro == num_micro - 1
            if boundary:
                norms.append(loops.norm_of(loops.gradients(net)))
                losses.append(np.mean(micro))
                micro = []
                optimizer.step()
                if zero_first:
                    optimizer.zero_grad()
            watch.step(loss)
            if boundary and not zero_first:
                optimizer.zero_grad()
    run = tmp_path / "run"
    assert sonde.load(run).steps == 5
    np.testing.assert_allclose(loops.values(run, "loss"), losses, rtol=1e-6)
    np.testing.assert_allclose(loops.values(run, "grad/norm"), norms, rtol=1e-5)
    assert loops.values(run, "loss/num_micro") == [num_micro] * 5


def test_step_may_be_called_at_boundaries_only(tmp_path: Path) -> None:
    net = loops.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    norms, losses = [], []
    with loops.watching(net, optimizer, tmp_path / "run") as watch:
        for i, batch in enumerate(loops.batches(12)):
            loss = loops.loss_of(net, batch)
            loss.backward()
            if i % 4 == 3:
                norms.append(loops.norm_of(loops.gradients(net)))
                losses.append(loss.item())
                optimizer.step()
                optimizer.zero_grad()
                watch.step(loss)
    np.testing.assert_allclose(loops.values(tmp_path / "run", "grad/norm"), norms, rtol=1e-5)
    np.testing.assert_allclose(loops.values(tmp_path / "run", "loss"), losses, rtol=1e-6)


def _optimizer(kind: str, net: nn.Module) -> torch.optim.Optimizer:
    how: dict[str, Any] = {"foreach": {"foreach": True}, "single": {"foreach": False}, "fused": {"fused": True}}[kind]
    return torch.optim.AdamW(net.parameters(), lr=0.01, **how)


@pytest.mark.parametrize("clip", ["none", "norm", "value"])
@pytest.mark.parametrize("unscale", [True, False], ids=["unscale_", "no unscale_"])
@pytest.mark.parametrize("kind", ["foreach", "single", "fused"])
def test_scaled_training_has_unscaled_norms_and_skips_overflows(
    tmp_path: Path, kind: str, unscale: bool, clip: str
) -> None:
    net = loops.model()
    optimizer = _optimizer(kind, net)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=1000)
    before: list[float] = []
    applied: list[float] = []
    losses: list[float] = []
    layer: list[float] = []
    with loops.watching(net, optimizer, tmp_path / "run") as watch:
        for i, batch in enumerate(loops.batches(8)):
            optimizer.zero_grad()
            loss = loops.loss_of(net, batch)
            scale = scaler.get_scale()
            scaler.scale(loss).backward()
            overflow = i in (2, 3)
            first = net.get_parameter("0.weight").grad
            assert first is not None
            if overflow:
                first[0, 0] = math.inf
            if not overflow:
                before.append(loops.norm_of(loops.gradients(net)) / scale)
                layer.append(float(first.double().norm()) / scale)
            if unscale:
                scaler.unscale_(optimizer)
            at_clip = 1.0 if unscale else scale
            if clip == "norm":
                clip_grad_norm_(net.parameters(), 0.1 * at_clip)
            elif clip == "value":
                torch.nn.utils.clip_grad_value_(net.parameters(), 0.02 * at_clip)
                if overflow:
                    first[0, 0] = math.inf  # clipping an infinite value by value makes it finite
            if not overflow:
                applied.append(loops.norm_of(loops.gradients(net)) / at_clip)
                losses.append(loss.item())
            scaler.step(optimizer)
            scaler.update()
            watch.step(loss)
    run = tmp_path / "run"
    loaded = sonde.load(run)
    if clip == "norm" and not unscale:
        assert loaded.steps >= 6  # clipping zeroes what is finite; whether the rest is NaN is torch's affair
    assert loaded.steps == len(losses) == 6
    np.testing.assert_allclose(loops.values(run, "loss"), losses, rtol=1e-6)
    np.testing.assert_allclose(loops.values(run, "grad/norm"), before, rtol=1e-4)
    np.testing.assert_allclose(loops.values(run, "grad/norm_applied"), applied, rtol=1e-4)
    if clip != "value":
        np.testing.assert_allclose(loops.values(run, "grad/norm@0.weight"), layer, rtol=1e-4)
    assert loops.values(run, "amp/scale") == [2.0**12] * 2 + [2.0**10] * 4
    skipped = loaded.events("skipped-step")
    assert [event.step for event in skipped] == [2, 2]
    assert [event.data["total"] for event in skipped] == [1, 2]


def _gan() -> tuple[dict[str, nn.Module], dict[str, torch.optim.Optimizer]]:
    torch.manual_seed(0)
    models: dict[str, nn.Module] = {"G": nn.Linear(4, 6), "D": nn.Linear(6, 1)}
    optimizers: dict[str, torch.optim.Optimizer] = {
        name: torch.optim.Adam(models[name].parameters(), lr=0.01 if name == "G" else 0.02) for name in models
    }
    return models, optimizers


@pytest.mark.parametrize("once_a_round", [True, False], ids=["a step a round", "a step an update"])
def test_gan_with_five_updates_to_one_names_what_belongs_to_whom(tmp_path: Path, once_a_round: bool) -> None:
    models, optimizers = _gan()
    norms: dict[str, list[tuple[int, float]]] = {"G": [], "D": []}
    iteration = 1
    with loops.watching(models, optimizers, tmp_path / "run") as watch:
        for _ in range(4):
            for name in ["D"] * 5 + ["G"]:
                for optimizer in optimizers.values():
                    optimizer.zero_grad()
                loss = models["D"](models["G"](torch.randn(3, 4))).mean() * (1 if name == "D" else -1)
                loss.backward()
                norms[name].append((iteration, loops.norm_of(loops.gradients(models[name]))))
                optimizers[name].step()
                if not once_a_round:
                    watch.step(loss)
                    iteration += 1
            if once_a_round:
                watch.step(loss)
                iteration += 1
    run = sonde.load(tmp_path / "run")
    assert run.steps == iteration - 1
    for name, noted in norms.items():
        series = run.series(f"grad/norm@{name}")
        wanted = dict(noted)  # of several in one iteration the last counts
        assert series.step.tolist() == list(wanted)
        np.testing.assert_allclose(series.value, list(wanted.values()), rtol=1e-5)
        assert run.series(f"lr@{name}").step.tolist() == list(wanted)
        assert run.series(f"update/norm@{name}.weight").step.tolist() == list(wanted)
    np.testing.assert_allclose(run.series("lr@D").value, 0.02)


def test_one_scaled_optimizer_may_skip_while_the_other_steps(tmp_path: Path) -> None:
    for fused in (False, True):
        models = {"a": nn.Linear(3, 1), "b": nn.Linear(3, 1)}
        optimizers = {name: torch.optim.AdamW(net.parameters(), fused=fused) for name, net in models.items()}
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        path = tmp_path / f"run-{fused}"
        with loops.watching(models, optimizers, path) as watch:
            for i in range(4):
                for optimizer in optimizers.values():
                    optimizer.zero_grad()
                loss = models["a"](torch.ones(3)).sum() + models["b"](torch.ones(3)).sum()
                scaler.scale(loss).backward()
                if i == 1:
                    models["b"].weight.grad.fill_(math.inf)  # type: ignore[union-attr]
                for optimizer in optimizers.values():
                    scaler.step(optimizer)
                scaler.update()
                watch.step(loss)
        run = sonde.load(path)
        assert run.steps == 4
        assert run.series("grad/norm@a").step.tolist() == [1, 2, 3, 4]
        assert run.series("grad/norm@b").step.tolist() == [1, 3, 4]
        np.testing.assert_allclose(run.series("grad/norm@b").value, 2.0, rtol=1e-6)
        (event,) = run.events("skipped-step")
        assert event.data["optimizers"] == ["b"]


def test_one_clip_over_two_optimizers_is_seen_by_both(tmp_path: Path) -> None:
    models = {"a": nn.Linear(3, 1), "b": nn.Linear(3, 1)}
    optimizers = {name: torch.optim.SGD(net.parameters(), lr=0.1) for name, net in models.items()}
    with loops.watching(models, optimizers, tmp_path / "run") as watch:
        loss = models["a"](torch.ones(3)).sum() + 2 * models["b"](torch.ones(3)).sum()
        loss.backward()
        clip_grad_norm_([*models["a"].parameters(), *models["b"].parameters()], 0.5)
        for optimizer in optimizers.values():
            optimizer.step()
        watch.step(loss)
    np.testing.assert_allclose(loops.values(tmp_path / "run", "grad/norm@a"), [2.0], rtol=1e-5)
    np.testing.assert_allclose(loops.values(tmp_path / "run", "grad/norm@b"), [4.0], rtol=1e-5)


def test_optimizers_of_any_name_have_their_own_tables(tmp_path: Path) -> None:
    names = ["G", "g", "my opt", "my-opt", "a/b", "ß" * 80]
    models = {name: nn.Linear(2, 1) for name in names}
    optimizers = {name: torch.optim.SGD(net.parameters(), lr=0.1) for name, net in models.items()}
    with loops.watching(models, optimizers, tmp_path / "run") as watch:
        for _ in range(3):
            for i, name in enumerate(names):
                for parameter in models[name].parameters():
                    parameter.grad = torch.full_like(parameter, float(i))
                optimizers[name].step()
            watch.step(1.0)
    run = sonde.load(tmp_path / "run")
    assert len(run.branches) == 1
    for i, name in enumerate(names):
        np.testing.assert_allclose(run.series(f"grad/max@{name}.weight").value, [i] * 3)


def _run_plainly(net: nn.Module, optimizer: Any, run: Path, edit: Callable[[int], None]) -> list[list[Tensor]]:
    noted = []
    with loops.watching(net, optimizer, run) as watch:
        for i, batch in enumerate(loops.batches(6)):
            edit(i)
            optimizer.zero_grad()
            loss = loops.loss_of(net, batch)
            loss.backward()
            noted.append(loops.gradients(net))
            clip_grad_norm_(net.parameters(), 0.05)
            optimizer.step()
            watch.step(loss)
    return noted


def test_parameter_group_that_is_added_later_is_watched(tmp_path: Path) -> None:
    net = loops.model()
    net[3].requires_grad_(False)
    optimizer = torch.optim.SGD(net[0].parameters(), lr=0.1)

    def edit(i: int) -> None:
        if i == 3:
            net[3].requires_grad_(True)
            optimizer.add_param_group({"params": list(net[3].parameters()), "lr": 0.01})

    noted = _run_plainly(net, optimizer, tmp_path / "run", edit)
    np.testing.assert_allclose(
        loops.values(tmp_path / "run", "grad/norm"), [loops.norm_of(g) for g in noted], rtol=1e-5
    )
    run = sonde.load(tmp_path / "run")
    assert run.series("grad/norm@3.weight").step.tolist() == [4, 5, 6]
    assert run.series("update/norm@3.weight").step.tolist() == [4, 5, 6]
    np.testing.assert_allclose(run.series("lr@1").value, 0.01)


def test_parameter_that_is_unfrozen_later_is_watched_from_then_on(tmp_path: Path) -> None:
    net = loops.model()
    net[0].requires_grad_(False)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def edit(i: int) -> None:
        if i == 2:
            net[0].requires_grad_(True)

    noted = _run_plainly(net, optimizer, tmp_path / "run", edit)
    np.testing.assert_allclose(
        loops.values(tmp_path / "run", "grad/norm"), [loops.norm_of(g) for g in noted], rtol=1e-5
    )
    run = sonde.load(tmp_path / "run")
    assert run.series("grad/norm@0.weight").step.tolist() == [3, 4, 5, 6]
    assert run.series("weight/norm@0.weight").step.tolist() == [1, 2, 3, 4, 5, 6]


def test_tied_weights_count_once(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))
    net[2].weight = net[0].weight
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    noted = _run_plainly(net, optimizer, tmp_path / "run", lambda i: None)
    np.testing.assert_allclose(
        loops.values(tmp_path / "run", "grad/norm"), [loops.norm_of(g) for g in noted], rtol=1e-5
    )
    assert sonde.load(tmp_path / "run").tags("grad/norm@*weight") == ["grad/norm@0.weight"]


def test_sparse_gradients_are_named_as_not_measured(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(10, 4, sparse=True), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    norms = []
    with loops.watching(net, optimizer, tmp_path / "run") as watch:
        for i in range(3):
            optimizer.zero_grad()
            loss = net(torch.tensor([i, i + 1])).sum()
            loss.backward()
            gradient = net.get_parameter("1.weight").grad
            assert gradient is not None
            norms.append(float(gradient.norm()))
            optimizer.step()
            watch.step(loss)
    run = sonde.load(tmp_path / "run")
    np.testing.assert_allclose(run.series("grad/norm@1.weight").value, norms, rtol=1e-5)
    assert run.tags("grad/*@0.weight") == []
    assert "grad/norm" not in run.tags(), "a norm of some gradients is not the norm of all"
    assert len(run.series("update/norm@0.weight").step) == 3
    assert "grad/*@0.weight" in [event.data["tag"] for event in run.events("not-measured")]


class _Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.phase = nn.Parameter(torch.randn(5, dtype=torch.complex64))
        self.scale = nn.Parameter(torch.randn(5))

    def forward(self, x: Tensor) -> Tensor:
        return (self.phase * self.scale * x).abs().sum()


@pytest.mark.parametrize("max_norm", [None, 0.1])
def test_complex_parameters_are_measured_as_pairs(tmp_path: Path, max_norm: float | None) -> None:
    net = _Complex()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    norms, single = [], []
    with loops.watching(net, optimizer, tmp_path / "run") as watch:
        for _ in range(4):
            optimizer.zero_grad()
            loss = net(torch.randn(5))
            loss.backward()
            norms.append(loops.norm_of(loops.gradients(net)))
            single.append(loops.norm_of(loops.gradients(net)[:1]))
            if max_norm is not None:
                clip_grad_norm_(net.parameters(), max_norm)
            optimizer.step()
            watch.step(loss)
    np.testing.assert_allclose(loops.values(tmp_path / "run", "grad/norm"), norms, rtol=1e-5)
    np.testing.assert_allclose(loops.values(tmp_path / "run", "grad/norm@phase"), single, rtol=1e-5)


@pytest.mark.parametrize("kind", ["positional", "keyword", "lbfgs", "none"])
def test_closures_are_read_after_their_last_call(tmp_path: Path, kind: str) -> None:
    net = loops.model()
    optimizer: Any = torch.optim.SGD(net.parameters(), lr=0.1)
    if kind == "lbfgs":
        optimizer = torch.optim.LBFGS(net.parameters(), max_iter=4)
    norms, last = [], 0.0
    with loops.watching(net, optimizer, tmp_path / "run") as watch:
        for batch in loops.batches(5):

            def closure(batch: loops.Batch = batch) -> Any:
                nonlocal last
                optimizer.zero_grad()
                loss = loops.loss_of(net, batch)
                loss.backward()
                last = loops.norm_of(loops.gradients(net))
                return loss

            if kind == "none":
                loss = closure()
                optimizer.step(None)
            else:
                loss = optimizer.step(closure=closure) if kind == "keyword" else optimizer.step(closure)
            norms.append(last)
            watch.step(loss)
    np.testing.assert_allclose(loops.values(tmp_path / "run", "grad/norm"), norms, rtol=1e-5)
    assert len(loops.values(tmp_path / "run", "update/norm@0.weight")) == 5


class _Subclass(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:  # the hooks of both run
        return super().step(closure)


def test_subclass_that_calls_its_parents_step_counts_once(tmp_path: Path) -> None:
    net = loops.model()
    optimizer = _Subclass(net.parameters(), lr=0.1)
    noted = _run_plainly(net, optimizer, tmp_path / "run", lambda i: None)
    np.testing.assert_allclose(
        loops.values(tmp_path / "run", "grad/norm"), [loops.norm_of(g) for g in noted], rtol=1e-5
    )
    assert len(loops.values(tmp_path / "run", "update/norm@0.weight")) == 6


def test_hooks_that_change_gradients_come_before_ours(tmp_path: Path) -> None:
    net = loops.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    norms = []

    def halve(*_: Any) -> None:
        for parameter in net.parameters():
            assert parameter.grad is not None
            parameter.grad.mul_(0.5)
        norms.append(loops.norm_of(loops.gradients(net)))

    with loops.watching(net, optimizer, tmp_path / "run") as watch:
        optimizer.register_step_pre_hook(halve)
        watch.step(1.0)
        for batch in loops.batches(4):
            optimizer.zero_grad()
            loss = loops.loss_of(net, batch)
            loss.backward()
            optimizer.step()
            watch.step(loss)
    np.testing.assert_allclose(loops.values(tmp_path / "run", "grad/norm"), norms, rtol=1e-5)


def test_optimizer_in_backward_is_one_step_an_iteration(tmp_path: Path) -> None:
    net = loops.model()
    optimizers = {f"of-{name}": torch.optim.SGD([p], lr=0.1) for name, p in net.named_parameters()}
    norms: dict[str, list[float]] = {}
    for (name, parameter), optimizer in zip(net.named_parameters(), optimizers.values(), strict=True):

        def update(p: Tensor, name: str = name, optimizer: torch.optim.Optimizer = optimizer) -> None:
            assert p.grad is not None
            norms.setdefault(name, []).append(float(p.grad.double().norm()))
            optimizer.step()
            optimizer.zero_grad()

        parameter.register_post_accumulate_grad_hook(update)  # type: ignore[no-untyped-call]
    with loops.watching(net, optimizers, tmp_path / "run") as watch:
        for batch in loops.batches(4):
            loss = loops.loss_of(net, batch)
            loss.backward()
            watch.step(loss)
    assert sonde.load(tmp_path / "run").steps == 4
    for name, wanted in norms.items():
        np.testing.assert_allclose(loops.values(tmp_path / "run", f"grad/norm@{name}"), wanted, rtol=1e-5)
        np.testing.assert_allclose(loops.values(tmp_path / "run", f"grad/norm@of-{name}"), wanted, rtol=1e-5)


@pytest.mark.parametrize("kind", ["reentrant", "not reentrant", "in-place"])
def test_checkpointing_in_place_activations_and_evaluation_change_nothing(tmp_path: Path, kind: str) -> None:
    net = loops.model(inplace=kind == "in-place")

    def forward(x: Tensor) -> Tensor:
        if kind == "in-place":
            return net(x)  # type: ignore[no-any-return]
        x.requires_grad_(True)
        result = checkpoint(net, x, use_reentrant=kind == "reentrant")
        assert isinstance(result, Tensor)
        return result

    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    norms = []
    with loops.watching(net, optimizer, tmp_path / "run") as watch:
        for batch in loops.batches(4):
            optimizer.zero_grad()
            loss = loops.loss_of(forward, batch)
            loss.backward()
            norms.append(loops.norm_of(loops.gradients(net)))
            optimizer.step()
            with torch.no_grad():
                net.eval()
                loops.loss_of(net, batch)
                net.train()
            watch.step(loss)
    np.testing.assert_allclose(loops.values(tmp_path / "run", "grad/norm"), norms, rtol=1e-5)


def test_compiled_model_has_the_plain_names(tmp_path: Path) -> None:
    torch.compiler.reset()
    net: Any = torch.compile(loops.model(), backend="eager")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    noted = _run_plainly(net, optimizer, tmp_path / "run", lambda i: None)
    np.testing.assert_allclose(
        loops.values(tmp_path / "run", "grad/norm"), [loops.norm_of(g) for g in noted], rtol=1e-5
    )
    assert len(loops.values(tmp_path / "run", "grad/norm@0.weight")) == 6


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # torch's own, while it compiles
def test_compiled_step_is_not_compiled_again_and_again(tmp_path: Path) -> None:
    torch.compiler.reset()
    net = loops.model()
    optimizer = torch.optim.Adam(net.parameters(), lr=torch.tensor(0.1), capturable=False)
    graphs: list[torch.fx.GraphModule] = []

    def count(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    step = torch.compile(optimizer.step, backend=count)
    frames = []
    with loops.watching(net, optimizer, tmp_path / "run") as watch:
        for batch in loops.batches(6):
            optimizer.zero_grad()
            loss = loops.loss_of(net, batch)
            loss.backward()
            step()
            watch.step(loss)
            frames.append(len(graphs))
    assert frames[-1] == frames[2] > 0
    assert len(loops.values(tmp_path / "run", "grad/norm")) == 6


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
def test_clip_inside_a_compiled_function_breaks_no_graph(tmp_path: Path) -> None:
    torch.compiler.reset()
    net = loops.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    @torch.compile(backend="eager", fullgraph=True)
    def clip() -> Tensor:
        return clip_grad_norm_(net.parameters(), 0.05)

    applied = []
    with loops.watching(net, optimizer, tmp_path / "run") as watch:
        for batch in loops.batches(4):
            optimizer.zero_grad()
            loss = loops.loss_of(net, batch)
            loss.backward()
            clip()
            applied.append(loops.norm_of(loops.gradients(net)))
            optimizer.step()
            watch.step(loss)
    np.testing.assert_allclose(loops.values(tmp_path / "run", "grad/norm_applied"), applied, rtol=1e-5)
    assert sonde.load(tmp_path / "run").tags("clip/*") == [], "unknown, as a clip written by hand"


def test_experts_whose_gradients_come_and_go_are_measured_when_they_come(tmp_path: Path) -> None:
    torch.manual_seed(0)
    experts = nn.ModuleList(nn.Linear(2, 1, bias=False) for _ in range(12))
    optimizer = torch.optim.SGD(experts.parameters(), lr=0.01)
    chosen = np.random.default_rng(0).random((300, 12)) < 0.4
    chosen[:, 0] = True
    with loops.watching(experts, optimizer, tmp_path / "run") as watch:
        for row in chosen:
            optimizer.zero_grad()
            for i in np.flatnonzero(row):
                experts.get_parameter(f"{i}.weight").grad = torch.full((1, 2), float(i))
            optimizer.step()
            watch.step(1.0)
    run = sonde.load(tmp_path / "run")
    for expert in range(12):
        series = run.series(f"grad/max@{expert}.weight")
        assert series.step.tolist() == (np.flatnonzero(chosen[:, expert]) + 1).tolist()
        np.testing.assert_allclose(series.value, expert)
    wanted = np.sqrt((chosen * 2 * np.arange(12.0) ** 2).sum(1))
    np.testing.assert_allclose(loops.values(tmp_path / "run", "grad/norm"), wanted, rtol=1e-5)


def test_steps_in_an_iteration_that_nobody_closes_are_not_all_measured_and_it_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reads: list[int] = []
    original = Gradients.use

    def gradients(self: Gradients, *args: Any) -> None:
        reads.append(1)
        original(self, *args)

    monkeypatch.setattr(Gradients, "use", gradients)
    net = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    net(torch.ones(1, 2)).square().sum().backward()
    with loops.watching(net, optimizer, tmp_path / "run") as watch:
        for _ in range(2000):
            optimizer.step()
        assert len(reads) == 16
        (warning,) = [record.getMessage() for record in caplog.records]
        assert "`watch.step` was never called" in warning
        watch.step(1.0)
        optimizer.step()
        watch.step(0.5)
    assert len(reads) == 17
    assert loops.values(tmp_path / "run", "loss") == [1.0, 0.5]
    assert len(loops.values(tmp_path / "run", "grad/norm")) == 2
