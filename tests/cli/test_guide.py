"""`sonde diagnose --guide` on trainings with one fault each, as a newcomer reads it."""

import math
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import sonde
from sonde.core import strict_json
from sonde.core.causes import Cause
from sonde.core.remedies import Action

Call = Callable[..., subprocess.CompletedProcess[str]]
Batch = tuple[torch.Tensor, torch.Tensor]
LOOKS = ["loss", "gradient norms", "update ratios", "distributions", "cause", "fix", "recovery"]


def _task(size: int, seed: int, *, noise: float = 0.0) -> Batch:
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(size, 16, generator=random)
    return x, x[:, :4].sum(1, keepdim=True).tanh() + noise * torch.randn(size, 1, generator=random)


def _mlp(width: int = 64) -> nn.Sequential:
    return nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))


def _train(
    folder: Path,
    net: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    num_steps: int = 220,
    task: Batch | None = None,
    evaluate_every: int = 0,
) -> None:
    (x, y), (held_x, held_y) = task or _task(512, 0), _task(256, 1)
    # Without a budget, cadences do not depend on what else the machine does.
    with sonde.watch(net, optimizer, run=folder, console="quiet", budget=math.inf) as watch:
        for step in range(1, num_steps + 1):
            rows = torch.randint(len(x), (32,))
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(net(x[rows]), y[rows])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            watch.step(loss)
            if evaluate_every and step % evaluate_every == 0:
                with torch.no_grad():
                    watch.evaluate(loss=nn.functional.mse_loss(net(held_x), held_y))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training that goes well, and six that do not."""
    folder = tmp_path_factory.mktemp("guided")

    def record(name: str, net: nn.Module, optimizer: torch.optim.Optimizer, **settings: Any) -> None:
        torch.manual_seed(1)  # of the batches
        _train(folder / name, net, optimizer, **settings)

    torch.manual_seed(0)
    net: nn.Sequential = _mlp()
    record("healthy", net, torch.optim.AdamW(net.parameters(), lr=1e-3), num_steps=160, evaluate_every=20)
    net = _mlp()
    record("slow", net, torch.optim.SGD(net.parameters(), lr=1e-5))
    net = _mlp()
    record("fast", net, torch.optim.SGD(net.parameters(), lr=8.0), num_steps=60)
    net = _mlp()
    record("leaping", net, torch.optim.Adam(net.parameters(), lr=0.3), num_steps=120)
    net = _mlp()
    with torch.no_grad():
        net.get_parameter("2.bias").fill_(-20.0)
    record("dead", net, torch.optim.SGD(net.parameters(), lr=0.05))
    deep = [layer for _ in range(8) for layer in (nn.Linear(32, 32), nn.Sigmoid())]
    net = nn.Sequential(nn.Linear(16, 32), nn.Sigmoid(), *deep, nn.Linear(32, 1))
    record("fading", net, torch.optim.SGD(net.parameters(), lr=0.05))
    net = _mlp(128)
    few = _task(64, 3, noise=0.5)
    record("by-heart", net, torch.optim.Adam(net.parameters(), lr=3e-3), task=few, num_steps=160, evaluate_every=10)
    return folder


@pytest.fixture
def looks(trained: Path, call: Call) -> Callable[[str], dict[str, dict[str, Any]]]:
    """The looks at a run by name, as a program reads them."""

    def read(name: str) -> dict[str, dict[str, Any]]:
        found = strict_json.loads(call("diagnose", trained / name, "--guide", "--json").stdout)["guide"]
        assert [look["look"] for look in found] == LOOKS
        return {look["look"]: look for look in found}

    return read


Looks = Callable[[str], dict[str, dict[str, Any]]]


@pytest.mark.parametrize("name", ["healthy", "slow", "fast", "leaping", "dead", "fading", "by-heart"])
def test_each_look_has_a_question_and_an_answer_and_every_finding_one_place(
    trained: Path, call: Call, looks: Looks, name: str
) -> None:
    found = looks(name)
    told = strict_json.loads(call("diagnose", trained / name, "--json").stdout)
    assert sorted(code for look in found.values() for code in look["findings"]) == sorted(
        finding["code"] for finding in told["findings"]
    )
    alarms = {finding["code"] for finding in told["findings"] if finding["severity"] != "info"}
    for look in list(found.values())[:4]:
        assert look["question"].endswith("?")
        assert look["answer"] in ("fine", "suspicious", "wrong", "not measured")
        if alarms & set(look["findings"]):
            assert look["answer"] == "wrong"
    causes = {cause.value for cause in Cause} | {"none", "not known"}
    assert found["cause"]["answer"] in causes
    assert found["fix"]["answer"] in {action.value for action in Action} | {"none"}


def test_a_training_that_goes_well_has_nothing_wrong_and_nothing_to_fix(
    trained: Path, call: Call, looks: Looks
) -> None:
    found = looks("healthy")
    assert found["loss"]["answer"] == "fine"
    assert {found[name]["answer"] for name in LOOKS[:4]} <= {"fine", "suspicious"}  # a range is a hint
    assert [found[name]["answer"] for name in LOOKS[4:]] == ["none", "none", "none needed"]
    assert call("diagnose", trained / "healthy", "--guide").returncode == 0


def test_a_series_has_its_start_its_end_and_its_worst_with_their_steps(trained: Path, looks: Looks) -> None:
    (loss,) = [series for series in looks("slow")["loss"]["series"] if series["tag"] == "loss"]
    recorded = sonde.load(trained / "slow").series("loss")
    worst = int(recorded.value.argmax())
    assert (loss["start"]["step"], loss["now"]["step"]) == (recorded.step[0], recorded.step[-1])
    assert loss["start"]["value"] == pytest.approx(recorded.value[0])
    assert loss["now"]["value"] == pytest.approx(recorded.value[-1])
    assert (loss["worst"]["step"], loss["worst"]["value"]) == (
        recorded.step[worst],
        pytest.approx(recorded.value[worst]),
    )


def test_a_rate_that_is_too_low_is_found_by_the_third_look(trained: Path, call: Call, looks: Looks) -> None:
    found = looks("slow")
    assert found["gradient norms"]["answer"] != "wrong"
    assert found["update ratios"]["answer"] == "wrong"
    assert found["cause"]["answer"] == "lr-too-low"
    assert found["fix"]["answer"] == "raise-lr"
    assert found["recovery"]["said"][0].startswith("update/ratio comes to 0.001 to 0.01")
    printed = call("diagnose", trained / "slow", "--guide")
    assert printed.returncode == 1
    assert "\n3. Update ratios: wrong\n" in printed.stdout
    assert "val/loss: not measured: call `watch.evaluate(loss=...)`" in printed.stdout
    assert "guide: sonde explain loss-not-falling" in printed.stdout
    assert f"sonde compare {trained / 'slow'} AFTER" in printed.stdout


def test_a_loss_that_becomes_infinite_says_where(looks: Looks) -> None:
    found = looks("fast")
    (loss,) = [series for series in found["loss"]["series"] if series["tag"] == "loss"]
    assert loss["now"]["value"] == "NaN"
    assert loss["worst"]["step"] < 20
    assert [found[name]["answer"] for name in LOOKS[:2]] == ["wrong"] * 2
    assert f"stays finite past step {loss['worst']['step']} and falls" in " ".join(found["recovery"]["said"])


def test_a_rate_that_is_too_high_is_found_by_the_third_look(looks: Looks) -> None:
    found = looks("leaping")
    assert found["update ratios"]["answer"] == "wrong"
    assert (found["cause"]["answer"], found["fix"]["answer"]) == ("lr-too-high", "lower-lr")


def test_dead_units_are_seen_in_gradients_and_distributions(looks: Looks) -> None:
    found = looks("dead")
    assert found["cause"]["answer"] == "dead-units"
    (zeros,) = [layers for layers in found["distributions"]["layers"] if layers["tag"] == "grad/zeros"]
    assert zeros["highest"]["value"] == 1
    assert found["recovery"]["said"][0].startswith("grad/zeros@")


def test_fading_gradients_name_the_first_layer_and_no_higher_rate(looks: Looks) -> None:
    found = looks("fading")
    (sizes,) = [layers for layers in found["gradient norms"]["layers"] if layers["tag"] == "grad/rms"]
    assert (sizes["num"], sizes["lowest"]["where"]) == (10, "0.weight")
    assert found["cause"]["answer"] == "vanishing-gradients"
    assert found["fix"]["answer"] != "raise-lr"
    assert found["recovery"]["said"][0].startswith("grad/rms@0.weight comes within 5 times of grad/rms@18.weight")


def test_learning_by_heart_is_followed_in_the_validation_loss(looks: Looks) -> None:
    found = looks("by-heart")
    assert found["cause"]["answer"] == "overfitting"
    assert found["loss"]["not_measured"] == []
    said = found["recovery"]["said"]
    assert said[0].startswith("val/loss falls below")
    assert not any(line.startswith("loss ") for line in said)


def test_a_log_with_a_loss_only_says_what_would_measure_the_rest(call: Call, tmp_path: Path) -> None:
    with sonde.record(tmp_path / "log") as writer:
        for step in range(1, 101):
            writer.log({"loss": 2 / step}, step=step)
    found = strict_json.loads(call("diagnose", tmp_path / "log", "--guide", "--json").stdout)["guide"]
    assert [look["answer"] for look in found[:4]] == ["fine", *["not measured"] * 3]
    assert all("sonde.watch" in look["not_measured"][0]["how"] for look in found[1:4])


def test_of_several_models_each_has_its_series(call: Call, tmp_path: Path) -> None:
    nets = {name: nn.Linear(4, 1) for name in "DG"}
    optimizers = {name: torch.optim.SGD(net.parameters(), lr=0.01) for name, net in nets.items()}
    with sonde.watch(nets, optimizers, run=tmp_path / "run", console="quiet", budget=math.inf) as watch:
        for _ in range(20):
            losses = {}
            for name, net in nets.items():
                optimizers[name].zero_grad()
                losses[name] = net(torch.randn(8, 4)).square().mean()
                losses[name].backward()
                optimizers[name].step()
            watch.step(parts=losses)
    found = strict_json.loads(call("diagnose", tmp_path / "run", "--guide", "--json").stdout)["guide"]
    tags = [series["tag"] for look in found[:3] for series in look["series"]]
    assert {"loss/part@D", "grad/norm@G", "lr@D", "update/ratio@G"} <= set(tags)
    assert [missing["tag"] for look in found[:3] for missing in look["not_measured"]] == ["val/loss"]


def test_a_run_without_rows_is_not_known(call: Call, tmp_path: Path) -> None:
    with sonde.record(tmp_path / "empty"):
        pass
    outcome = call("diagnose", tmp_path / "empty", "--guide")
    assert outcome.returncode == 3
    assert "5. Cause: not known" in outcome.stdout
    assert "there is not enough to judge: nothing was recorded" in outcome.stdout


def test_the_checklist_is_printed_behind_the_guide_where_both_are_asked_for(call: Call, runs: Path) -> None:
    both = call("diagnose", runs / "healthy", "--guide", "--checklist").stdout
    assert both.index("7. Recovery") < both.index("Health checklist")
    shown = strict_json.loads(call("diagnose", runs / "healthy", "--guide", "--checklist", "--json").stdout)
    assert {"guide", "checklist", "findings"} <= set(shown)
    assert "guide" not in strict_json.loads(call("diagnose", runs / "healthy", "--json").stdout)
