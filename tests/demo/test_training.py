import math
from pathlib import Path

import numpy as np
import pytest
import torch

import sonde
from sonde.demo.model import Shape, Transformer, initialise
from sonde.demo.settings import Settings
from sonde.demo.training import learning_rate, train

FEW = Settings(steps=6, batch=4, evaluations=2)


def ignore(step: int, loss: float) -> None:
    pass


def test_loss_rate_and_norm_are_recorded_at_every_step_and_validation_now_and_then(tmp_path: Path) -> None:
    train(tmp_path / "run", FEW, on_step=ignore)
    run = sonde.load(tmp_path / "run")
    for tag in ("loss", "lr", "grad/norm", "clip/factor", "time/data", "throughput/tokens_per_s"):
        assert run.series(tag).step.tolist() == [1, 2, 3, 4, 5, 6]
    assert run.series("val/loss").step.tolist() == [3, 6]
    assert run.series("lr").value.tolist() == pytest.approx([learning_rate(step, FEW) for step in range(1, 7)])


def test_training_starts_at_the_entropy_of_a_guess_and_improves(tmp_path: Path) -> None:
    losses: list[float] = []
    train(tmp_path / "run", Settings(steps=20, batch=8), on_step=lambda step, loss: losses.append(loss))
    run = sonde.load(tmp_path / "run")
    assert run.series("loss").value.tolist() == losses
    num_characters = run.info["config"]["model"]["vocabulary"]
    assert losses[0] == pytest.approx(math.log(num_characters), abs=0.1)
    assert losses[-1] < losses[0] - 0.5


def test_a_seed_decides_everything(tmp_path: Path) -> None:
    texts = [train(tmp_path / name, FEW, on_step=ignore) for name in ("a", "b")]
    other = train(tmp_path / "c", Settings(steps=6, batch=4, evaluations=2, seed=1), on_step=ignore)
    a, b, c = (sonde.load(tmp_path / name).series("loss").value for name in "abc")
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)
    assert texts[0] == texts[1] != other


def test_the_global_random_state_is_left_alone(tmp_path: Path) -> None:
    before = torch.random.get_rng_state()
    train(tmp_path / "run", FEW, on_step=ignore)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_model_does_not_see_the_future() -> None:
    shape = Shape(vocabulary=11, context=8, width=16, depth=2, heads=2)
    model = Transformer(shape)
    initialise(model, torch.Generator().manual_seed(0))
    ids = torch.arange(8)[None]
    changed = ids.clone()
    changed[0, 5] = 10
    with torch.no_grad():
        difference = (model(ids) - model(changed)).abs().amax(-1)[0]
    assert torch.all(difference[:5] == 0)
    assert torch.all(difference[5:] > 0)


def test_the_model_has_between_half_a_million_and_a_million_parameters() -> None:
    model = Transformer(Shape(vocabulary=59))
    assert 500_000 < sum(parameter.numel() for parameter in model.parameters()) < 1_000_000


def test_the_rate_rises_then_falls_to_a_tenth() -> None:
    settings = Settings()
    rates = [learning_rate(step, settings) for step in range(1, settings.steps + 1)]
    peak = settings.warmup_steps - 1
    assert rates[: peak + 1] == sorted(rates[: peak + 1])
    assert rates[peak] == max(rates) == settings.lr
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert rates[-1] == pytest.approx(settings.lr / 10)


@pytest.mark.parametrize("name", ["steps", "batch", "evaluations"])
def test_a_setting_below_one_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}=.* at least 1, got 0"):
        Settings(**{name: 0})
