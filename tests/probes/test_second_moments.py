"""Adam's running squares against plain formulas."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.optim import Optimizer

from sonde.core.frames import is_missing
from sonde.kernels import tensor_stats
from sonde.kernels.histograms import NUM_BINS
from sonde.probes.parameters import parameter_names
from sonde.probes.second_moments import SecondMoment, SecondMoments, health, threshold_bins
from sonde.probes.settings import group_settings

from .armed import iteration


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def net() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))


def backward(model: nn.Module, factor: float = 1.0) -> None:
    (model(torch.randn(4, 6)).square().mean() * factor).backward()


def probe_of(model: nn.Module, optimizer: Optimizer, num_slots: int = 1) -> SecondMoments:
    return SecondMoments({"": optimizer}, lambda: parameter_names({"": model}), num_slots=num_slots)


def one_step(probe: SecondMoments, optimizer: Optimizer, slots: Sequence[int] | None = None) -> dict[str, float]:
    def work() -> None:
        probe.read_gradients(optimizer)
        optimizer.step()
        optimizer.zero_grad()

    return iteration(probe, work, slots)


def reference(optimizer: Optimizer, parameter: Tensor, gradient: Tensor) -> tuple[float, float, float]:
    """Ratio, share below epsilon, share of zeros."""
    (group,) = (g for g in optimizer.param_groups if any(p is parameter for p in g["params"]))
    state = optimizer.state[parameter]
    v = state["max_exp_avg_sq" if group.get("amsgrad") else "exp_avg_sq"].double()
    corrected = v / (1 - group["betas"][1] ** float(state["step"]))
    ratio = gradient.double().square().mean() / corrected.mean()
    below = (corrected.sqrt() < group["eps"]).double().mean()
    return float(ratio), float(below), float((v == 0).double().mean())


ADAMS: Mapping[str, Callable[[Any], Optimizer]] = {
    "single-tensor": lambda p: torch.optim.Adam(p, foreach=False),
    "foreach": lambda p: torch.optim.Adam(p, foreach=True, betas=(0.8, 0.95)),
    "fused": lambda p: torch.optim.AdamW(p, fused=True),
    "amsgrad": lambda p: torch.optim.AdamW(p, amsgrad=True, betas=(0.9, 0.5)),
    "nadam": lambda p: torch.optim.NAdam(p),
    "radam": lambda p: torch.optim.RAdam(p),
    "tensor betas": lambda p: torch.optim.Adam(
        p, betas=(torch.tensor(0.9), torch.tensor(0.99)), foreach=False, capturable=False
    ),
}


@pytest.mark.parametrize("kind", ADAMS)
def test_every_adam_has_the_values_of_the_plain_formulas(kind: str) -> None:
    model = net()
    optimizer = ADAMS[kind](model.parameters())
    probe = probe_of(model, optimizer)
    for step in range(6):
        backward(model, factor=10.0 if step == 4 else 1.0)
        gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        found = one_step(probe, optimizer)
        assert len(found) == 12
        for name, parameter in model.named_parameters():
            ratio, _, zeros = reference(optimizer, parameter, gradients[name])
            assert found[f"adam/v_ratio@{name}"] == pytest.approx(ratio, rel=1e-5)
            assert found[f"adam/zero_share@{name}"] == zeros
            assert found[f"adam/epsilon_share@{name}"] == 0
    assert not probe.not_measured()


def test_the_ratio_is_one_at_first_and_jumps_with_the_gradient() -> None:
    parameter = nn.Parameter(torch.ones(50))
    optimizer = torch.optim.Adam([parameter])
    probe = SecondMoments({"": optimizer}, lambda: {id(parameter): "w"})
    ratios = []
    for factor in (1.0, 1.0, 100.0):
        parameter.grad = torch.full((50,), factor)
        ratios.append(one_step(probe, optimizer)["adam/v_ratio@w"])
    assert ratios[:2] == pytest.approx([1, 1], rel=1e-5)
    assert ratios[2] > 2.9  # at the third step the jump is a third of the mean already


@given(st.integers(0, 2**32 - 1), st.integers(1, 5000), st.sampled_from([0.0, 1e-12, 1e-8, 1e-3, 1.0]))
def test_the_share_below_epsilon_is_exact_but_for_what_is_within_twelve_percent(
    seed: int, step: int, epsilon: float
) -> None:
    rng = np.random.default_rng(seed)
    v = torch.from_numpy((max(epsilon, 1e-8) * 10 ** rng.normal(scale=1.5, size=300)) ** 2).float()
    v[rng.random(300) < 0.1] = 0
    stats = tensor_stats([v], histogram=True)
    assert stats.histogram is not None
    bins, counts = threshold_bins([(0.999, epsilon)]), stats.histogram.double().numpy()[:, : NUM_BINS // 2]
    found = health(
        SecondMoment(
            gradient=stats.rows.numpy(),
            rows=stats.rows.numpy(),
            below=counts[:, : bins.start].sum(1),
            window=counts[:, bins.start : bins.stop],
            counted=counts.sum(1),
            step=np.array([float(step)]),
            beta2=np.array([0.999]),
            epsilon=np.array([epsilon]),
            first_bin=bins.start,
        )
    )[0]
    root = (v.double() / (1 - 0.999**step)).sqrt().numpy()
    assert np.mean(root < epsilon / 1.12) <= found[1] + 1e-9
    assert found[1] <= np.mean(root < epsilon * 1.12) + 1e-9
    assert found[2] == pytest.approx(float((v == 0).float().mean()))


def test_an_epsilon_that_damps_half_of_the_elements_is_seen() -> None:
    parameter = nn.Parameter(torch.zeros(1000))
    optimizer = torch.optim.Adam([parameter], eps=1e-6)
    probe = SecondMoments({"": optimizer}, lambda: {id(parameter): "w"})
    parameter.grad = torch.cat([torch.full((500,), 1e-8), torch.full((500,), 1e-4)])
    assert one_step(probe, optimizer)["adam/epsilon_share@w"] == 0.5


def test_squares_that_underflow_are_zeros() -> None:
    parameter = nn.Parameter(torch.zeros(100, dtype=torch.float16))
    optimizer = torch.optim.Adam([parameter])
    probe = SecondMoments({"": optimizer}, lambda: {id(parameter): "w"})
    parameter.grad = torch.full((100,), 1e-4, dtype=torch.float16)
    found = one_step(probe, optimizer)
    assert found["adam/zero_share@w"] == 1
    assert found["adam/epsilon_share@w"] == 1
    assert found["adam/v_ratio@w"] == math.inf


def test_gradients_that_are_zero_have_no_ratio() -> None:
    parameter = nn.Parameter(torch.zeros(100))
    optimizer = torch.optim.Adam([parameter])
    probe = SecondMoments({"": optimizer}, lambda: {id(parameter): "w"})
    parameter.grad = torch.zeros(100)
    found = one_step(probe, optimizer)
    assert is_missing(np.array([found["adam/v_ratio@w"]], np.float32))[0]
    assert found["adam/zero_share@w"] == 1


def test_a_gradient_that_is_not_finite_gives_nan_as_measured() -> None:
    parameter = nn.Parameter(torch.zeros(100))
    optimizer = torch.optim.Adam([parameter])
    probe = SecondMoments({"": optimizer}, lambda: {id(parameter): "w"})
    parameter.grad = torch.full((100,), math.nan)
    found = one_step(probe, optimizer)
    assert math.isnan(found["adam/v_ratio@w"])
    assert not is_missing(np.array([found["adam/v_ratio@w"]], np.float32))[0]


@pytest.mark.parametrize("overflows", [False, True])
def test_under_a_scaler_the_gradient_of_a_fused_optimiser_is_unscaled(overflows: bool) -> None:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    probe = probe_of(model, optimizer)
    optimizer.register_step_pre_hook(lambda *_: probe.read_gradients(optimizer))
    scaler.scale(model(torch.randn(4, 6)).square().mean()).backward()
    gradients = {name: p.grad.clone() / 2**10 for name, p in model.named_parameters() if p.grad is not None}
    if overflows:
        next(model.parameters()).grad = torch.full((5, 6), math.inf)

    def work() -> None:
        scaler.step(optimizer)
        scaler.update()

    found = iteration(probe, work)
    for name, parameter in model.named_parameters():
        if overflows:
            values = np.array([found[tag] for tag in found if tag.endswith(f"@{name}")], np.float32)
            assert len(values) == 3
            assert is_missing(values).all()  # the first step was withheld: there are no running squares
        else:
            assert found[f"adam/v_ratio@{name}"] == pytest.approx(
                reference(optimizer, parameter, gradients[name])[0], rel=1e-5
            )


def test_slots_share_the_tensors_among_them() -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    probe = probe_of(model, optimizer, num_slots=3)
    seen = []
    for slot in range(3):
        backward(model)
        seen.append({tag.split("@")[1] for tag in one_step(probe, optimizer, [slot])})
    assert seen == [{"0.weight", "2.bias"}, {"0.bias"}, {"2.weight"}]
    backward(model)
    assert {tag.split("@")[1] for tag in one_step(probe, optimizer)} == set().union(*seen)


def test_a_tag_stays_in_one_table_however_many_slots_have_their_turn() -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    probe = probe_of(model, optimizer, num_slots=3)
    tables: dict[str, set[str]] = {}
    for slots in ([0], [1], [2], [0, 1, 2], [2, 0]):
        probe.arm(slots)
        backward(model)
        probe.read_gradients(optimizer)
        optimizer.step()
        for reading in probe.collect():
            numbers = torch.cat([t.double().reshape(-1) for t in reading.tensors]).numpy()
            for row in reading.report(numbers):
                for tag in row.columns.tags:
                    tables.setdefault(tag, set()).add(row.columns.table)
    assert len(tables) == 12
    assert all(len(found) == 1 for found in tables.values())


def test_an_optimiser_that_made_no_step_has_nothing_to_say() -> None:
    model = net()
    optimizers = {name: torch.optim.Adam(model[i].parameters()) for name, i in (("a", 0), ("b", 2))}
    probe = SecondMoments(optimizers, lambda: parameter_names({"": model}))
    backward(model)
    found = one_step(probe, optimizers["b"])
    assert {tag.split("@")[1] for tag in found} == {"2.weight", "2.bias"}
    assert not iteration(probe, lambda: None)


def test_settings_are_those_of_the_parameters_group_after_loading_a_state() -> None:
    model = net()
    optimizer = torch.optim.Adam(
        [{"params": model[0].parameters(), "eps": 1e3}, {"params": model[2].parameters(), "eps": 1e-12}]
    )
    probe = probe_of(model, optimizer)
    backward(model)
    found = one_step(probe, optimizer)
    assert (found["adam/epsilon_share@0.weight"], found["adam/epsilon_share@2.weight"]) == (1, 0)
    state = optimizer.state_dict()
    state["param_groups"][0]["eps"], state["param_groups"][1]["eps"] = 1e-12, 1e3
    optimizer.load_state_dict(state)
    backward(model)
    found = one_step(probe, optimizer)
    assert (found["adam/epsilon_share@0.weight"], found["adam/epsilon_share@2.weight"]) == (0, 1)


def test_parameters_without_a_gradient_are_left_out_and_added_ones_come_in() -> None:
    model = net()
    optimizer = torch.optim.Adam(model[0].parameters())
    probe = probe_of(model, optimizer)
    backward(model)
    model[0].bias.grad = None
    assert {tag.split("@")[1] for tag in one_step(probe, optimizer)} == {"0.weight"}
    optimizer.add_param_group({"params": list(model[2].parameters())})
    backward(model)
    assert len(one_step(probe, optimizer)) == 12


class Keyed(Optimizer):
    """A third party's, which counts its steps in the group."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1, "betas": (0.9, 0.9), "eps": 1e-8, "step": 0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            group["step"] += 1
            for p in group["params"]:
                v = self.state[p].setdefault("exp_avg_sq", torch.zeros_like(p))
                v.mul_(0.9).addcmul_(p.grad, p.grad, value=0.1)


def test_a_third_partys_optimiser_with_the_same_key_is_measured() -> None:
    model = net()
    optimizer = Keyed(model.parameters())
    probe = probe_of(model, optimizer)
    backward(model)
    assert one_step(probe, optimizer)["adam/v_ratio@0.weight"] == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize(
    "make", [lambda p: torch.optim.SGD(p, lr=0.1), lambda p: torch.optim.RMSprop(p), lambda p: torch.optim.Adagrad(p)]
)
def test_optimisers_of_another_kind_have_no_slots(make: Callable[[Any], Optimizer]) -> None:
    model = net()
    optimizer = make(model.parameters())
    probe = SecondMoments({"D": optimizer}, lambda: parameter_names({"": model}))
    assert probe.num_slots == 0
    assert type(optimizer).__name__ in probe.not_measured()["adam/*@D"]
    backward(model)
    assert not one_step(probe, optimizer)


def test_adamax_keeps_no_squares_and_sparse_gradients_are_not_measured() -> None:
    model = net()
    adamax = torch.optim.Adamax(model.parameters())
    probe = probe_of(model, adamax)
    backward(model)
    assert not one_step(probe, adamax)
    assert "exp_avg_sq" in probe.not_measured()["adam/*@0.weight"]

    embedding = nn.Embedding(10, 3, sparse=True)
    optimizer = torch.optim.SparseAdam(list(embedding.parameters()))
    probe = probe_of(embedding, optimizer)
    embedding(torch.tensor([1, 2])).sum().backward()
    assert not one_step(probe, optimizer)
    assert "sparse" in probe.not_measured()["adam/*@weight"]


def test_complex_parameters_are_pairs() -> None:
    parameter = nn.Parameter(torch.zeros(4, dtype=torch.complex64))
    optimizer = torch.optim.Adam([parameter], eps=1e-6)
    probe = SecondMoments({"": optimizer}, lambda: {id(parameter): "w"})
    parameter.grad = torch.full((4,), 1 + 0j)
    found = one_step(probe, optimizer)
    assert found["adam/v_ratio@w"] == pytest.approx(1, rel=1e-5)
    assert found["adam/zero_share@w"] == 0.5


def test_every_tag_is_announced() -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    probe = probe_of(model, optimizer)
    backward(model)
    assert {tag.split("@")[0] + "@" for tag in one_step(probe, optimizer)} == set(probe.yields)


def test_after_close_nothing_is_read() -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    probe = probe_of(model, optimizer)
    probe.arm([0])
    backward(model)
    probe.read_gradients(optimizer)
    probe.close()
    assert not probe.collect()
    assert not one_step(probe, optimizer)


@pytest.mark.parametrize("num_slots", [0, -1])
def test_no_slots_are_refused(num_slots: int) -> None:
    with pytest.raises(ValueError, match="num_slots"):
        SecondMoments({}, dict, num_slots=num_slots)


def trained(kind: str, probe_at_work: bool) -> tuple[list[Tensor], Tensor]:
    model = net()
    optimizer = ADAMS[kind](model.parameters())
    probe = probe_of(model, optimizer)
    for _ in range(20):
        backward(model)
        if probe_at_work:
            probe.arm([0])
            probe.read_gradients(optimizer)
        optimizer.step()
        if probe_at_work:
            assert probe.collect()
            group_settings(optimizer)
        optimizer.zero_grad()
    state = [t for s in optimizer.state.values() for t in s.values() if isinstance(t, Tensor)]
    return [t.detach().clone() for t in [*model.parameters(), *state]], torch.get_rng_state()


@pytest.mark.parametrize("kind", ADAMS)
def test_a_training_is_bit_identical_with_every_tensor_at_every_step(kind: str) -> None:
    (tensors, random), (others, other_random) = trained(kind, True), trained(kind, False)
    assert all(torch.equal(a, b) for a, b in zip(tensors, others, strict=True))
    assert torch.equal(random, other_random)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("settings", [{"foreach": True}, {"fused": True}, {"capturable": True, "amsgrad": True}])
def test_on_a_gpu_the_values_are_the_same_and_nothing_waits(settings: dict[str, Any]) -> None:
    model = net().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), **settings)
    probe = probe_of(model, optimizer)
    for i in range(4):
        model(torch.randn(4, 6, device="cuda")).square().mean().backward()
        gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        probe.arm([0])
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error" if i > 1 else "default")  # the first times compile
        try:
            probe.read_gradients(optimizer)
            optimizer.step()
            (reading,) = probe.collect()
            numbers = torch.cat([t.reshape(-1) for t in reading.tensors]).double()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        found = {
            tag: float(value)
            for row in reading.report(numbers.cpu().numpy())
            for tag, value in zip(row.columns.tags, row.values, strict=True)
        }
        for name, parameter in model.named_parameters():
            assert found[f"adam/v_ratio@{name}"] == pytest.approx(
                reference(optimizer, parameter, gradients[name])[0], rel=1e-5
            )
        optimizer.zero_grad()
