"""Remedies as they are carried out on small trainings, and how the outcome is judged."""

import importlib
import json
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional


def _module(name: str) -> ModuleType:
    # By name, since the type checker would follow an import into the trainings, which are written as users write.
    return importlib.import_module(f"benchmarks.faults.{name}")


def _treat(action: str, model: nn.Module, optimizer: torch.optim.Optimizer, num_steps: int = 100, **args: Any) -> None:
    _module("treatment").Treatment(action, args, num_steps=num_steps)(model, optimizer)


def _rates(action: str, given: list[float], **args: Any) -> list[float]:
    """How far a weight goes in each step under a unit gradient, for the rates that the training sets."""
    layer = nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(layer.parameters(), lr=given[0])
    _treat(action, layer, optimizer, num_steps=len(given), **args)
    moved = []
    for lr in given:
        optimizer.param_groups[0]["lr"] = lr
        layer.weight.grad = torch.ones(1, 1)
        before = layer.weight.item()
        optimizer.step()
        moved.append(before - layer.weight.item())
        assert optimizer.param_groups[0]["lr"] == lr
    return moved


def _told(name: str, action: str, cause: str, **args: float) -> Any:
    scenario = _module("run").catalogue()[name]
    run = _module("judging").Judgement(
        name=name, seed=0, kind="faulty", cause=scenario.cause, also=scenario.also, codes=("LOS005",),
        action=action, remedy_args=args, remedy_cause=cause,
    )  # fmt: skip
    return _module("remedy").prescribe(scenario, run)


def test_advice_is_right_where_it_is_what_the_twin_does_and_for_the_right_cause() -> None:
    assert _told("mlp-missing-zero-grad", "fix-loop", "missing-zero-grad") == ("what the twin does", True)
    assert _told("mlp-missing-zero-grad", "fix-loop", "double-softmax") == ("for another mistake", False)
    assert _told("mlp-missing-zero-grad", "lower-lr", "lr-too-high", factor=0.1) == ("not what helps here", False)


def test_what_can_be_carried_out_is_run_even_for_a_wrong_cause() -> None:
    assert _told("mlp-lr-too-high", "lower-lr", "lr-too-high", factor=0.1)[0] == ""
    assert _told("mlp-lr-too-high", "reinitialise", "saturated-units")[0] == ""
    assert _told("mlp-lr-too-high", "more-capacity", "underfitting") == ("not what helps here", False)


def test_every_fault_is_repaired_by_the_api_by_hand_or_not_at_all() -> None:
    scenarios, kind_of = _module("run").catalogue(), _module("remedy").kind_of
    assert {kind_of(scenario) for scenario in scenarios.values() if scenario.cause is None} == {""}
    assert all(kind_of(scenario) == "hand" for scenario in scenarios.values() if "fix-loop" in scenario.cures)
    assert sum(kind_of(scenario) == "api" for scenario in scenarios.values()) >= 40


def test_rates_are_changed_for_the_step_only() -> None:
    assert _rates("lower-lr", [1.0, 0.5], factor=0.1) == pytest.approx([0.1, 0.05], abs=1e-6)
    assert _rates("lengthen-warmup", [1.0] * 4, steps=2) == pytest.approx([0.5, 1.0, 1.0, 1.0], abs=1e-6)
    assert _rates("smoother-schedule", [0.1] * 5 + [50.0] + [0.1]) == pytest.approx([0.1] * 7, abs=1e-5)
    slower = _rates("slower-schedule", [1.0, 0.1, 0.01, 0.0])
    assert slower == pytest.approx([0.5 * (1 + math.cos(math.pi * i / 4)) for i in range(4)], abs=1e-6)


def test_a_rate_is_changed_for_the_group_of_the_named_parameters_only() -> None:
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
    optimizer = torch.optim.SGD([{"params": model[0].parameters()}, {"params": model[1].parameters()}], lr=1.0)
    _treat("lower-lr", model, optimizer, factor=0.1, parameters=["1.weight"])
    before = [parameter.item() for parameter in model.parameters()]
    for parameter in model.parameters():
        parameter.grad = torch.ones(1, 1)
    optimizer.step()
    moved = [old - parameter.item() for old, parameter in zip(before, model.parameters(), strict=True)]
    assert moved == pytest.approx([1.0, 0.1], abs=1e-6)


def test_steps_on_inputs_that_are_not_finite_or_far_too_large_are_left_out() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    _treat("skip-batch", model, optimizer)
    moved = []
    for step in range(40):
        x = torch.randn(16, 3)
        if step == 30:
            x[2, 1] = torch.nan
        before = model[1].get_parameter("weight").clone()
        optimizer.zero_grad()
        (functional.mse_loss(model(x), torch.ones(16, 1)) * (1e6 if step == 35 else 1)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        moved.append(not torch.equal(before, model[1].get_parameter("weight")))
    assert [step for step, has_moved in enumerate(moved) if not has_moved] == [30, 35]
    assert torch.cat([value.flatten() for value in model.state_dict().values()]).isfinite().all()


def test_weights_drawn_anew_give_each_layer_outputs_of_mean_0_and_the_deviation_asked_for() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 32), nn.Sigmoid(), nn.Linear(32, 32), nn.Sigmoid(), nn.Linear(32, 2))
    for parameter in model.parameters():
        nn.init.constant_(parameter, 3.0)
    _treat("reinitialise", model, torch.optim.SGD(model.parameters(), lr=0.1), std=0.5)
    x = torch.randn(256, 6)
    model(x)
    for depth in (1, 3, 5):
        outputs = model[:depth](x)
        assert outputs.mean(0).abs().max() < 1e-4
        assert outputs.var(0).mean().item() == pytest.approx(0.25, abs=1e-3)


def test_attention_of_normalised_queries_and_keys_has_no_other_scale_than_that_of_their_size() -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 4, 6, 8).unbind()
    treatment = _module("treatment").Treatment("add-qk-norm", {}, num_steps=10)
    with treatment.functions():
        small, large = (
            functional.scaled_dot_product_attention(query * size, key + 1, value, is_causal=True, scale=scale)
            for size, scale in ((1.0, None), (50.0, 120.0))
        )
    normed_query, normed_key = (functional.layer_norm(one, [8]) for one in (query, key))
    plain = functional.scaled_dot_product_attention(normed_query, normed_key, value, is_causal=True)
    torch.testing.assert_close(small, plain)
    torch.testing.assert_close(large, plain, atol=1e-4, rtol=1e-4)


def test_a_z_loss_adds_the_gradient_of_its_formula() -> None:
    torch.manual_seed(0)
    x, labels, weight = torch.randn(8, 4), torch.randint(5, (8,)), 0.1
    treated, plain = nn.Linear(4, 5), nn.Linear(4, 5)
    plain.load_state_dict(treated.state_dict())
    _treat("add-z-loss", treated, torch.optim.SGD(treated.parameters(), lr=0.1), weight=weight)
    functional.cross_entropy(treated(x), labels).backward()  # type: ignore[no-untyped-call]
    logits = plain(x)
    (functional.cross_entropy(logits, labels) + weight * logits.logsumexp(-1).square().mean()).backward()
    assert treated.weight.grad is not None
    assert plain.weight.grad is not None
    torch.testing.assert_close(treated.weight.grad, plain.weight.grad)


def test_a_training_is_run_with_the_remedy_and_kept(tmp_path: Path) -> None:
    remedy = _module("remedy")
    name, kept = "mlp-clip-too-aggressive", tmp_path / "treated.jsonl"
    clipped, faulty = (remedy.Training(name, 0, "clip", json.dumps({"max_norm": limit}), 360) for limit in (1.0, 4e-3))
    qualities = remedy.train_all([clipped, faulty], kept=kept, jobs=1)
    assert qualities[clipped] < 0.3 < qualities[faulty]
    assert len(kept.read_text().splitlines()) == 2
    kept.write_text(kept.read_text().replace(str(qualities[clipped]), "0.125"))
    assert remedy.train_all([clipped], kept=kept, jobs=1) == {clipped: 0.125}
