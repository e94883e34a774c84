import numpy as np

from sonde.core.findings import Severity
from sonde.core.model_table import ModelTable, ModuleRow, ParameterRow
from sonde.core.parameter_kinds import Kind
from sonde.rules.updates.updates_too_small import UpdatesTooSmall

from ..traces import alarms, falling, judge, rows, worst


def run(losses: list[float], ratio: float = 1e-5, **more: object) -> list[dict[str, float]]:
    table = rows(len(losses), loss=losses, grad__norm=1.0, **{"lr": 1e-5, **more})
    return [row | {f"update/ratio@{layer}.weight": ratio for layer in range(4)} for row in table]


def creeping(num: int) -> list[float]:
    return list(np.linspace(2.0, 1.7, num) + 0.01 * np.random.default_rng(0).normal(size=num))


def test_a_straight_shallow_descent_is_a_warning() -> None:
    assert alarms(judge(UpdatesTooSmall(), run(creeping(300), ratio=3e-4)))[0][0] == 100


def test_tiny_updates_under_a_loss_that_stands_need_no_hundred_steps() -> None:
    assert alarms(judge(UpdatesTooSmall(), run(creeping(300))))[0][0] < 60


def test_a_descent_that_would_be_over_in_some_hundred_steps_is_not_slow() -> None:
    losses = list(np.linspace(2.2, 1.1, 160) + 0.03 * np.random.default_rng(0).normal(size=160))
    assert not alarms(judge(UpdatesTooSmall(), run(losses, ratio=3.8e-4)))


def test_a_model_that_came_trained_takes_small_steps_on_purpose() -> None:
    still = list(0.5 + 0.01 * np.random.default_rng(0).normal(size=300))
    assert alarms(judge(UpdatesTooSmall(), run(still)))
    assert not alarms(judge(UpdatesTooSmall(), run(still, logits__log_z=6.0)))
    assert not alarms(judge(UpdatesTooSmall(), run(still, label__entropy=1.6)))


def test_a_loss_whose_noise_would_hide_a_fall_is_not_stuck() -> None:
    noisy = list(0.2 * np.exp(0.5 * np.random.default_rng(0).normal(size=300)))
    assert not alarms(judge(UpdatesTooSmall(), run(noisy)))


def test_steps_that_change_nothing_are_told_through_any_noise() -> None:
    noisy = list(np.exp(0.5 * np.random.default_rng(0).normal(size=60)))
    assert alarms(judge(UpdatesTooSmall(), run(noisy, ratio=1e-7)))[0][0] == 31
    assert not alarms(judge(UpdatesTooSmall(), run(noisy, ratio=1e-7, label__entropy=6.0)))  # it came trained
    assert not alarms(judge(UpdatesTooSmall(), run(noisy, ratio=1e-5)))


def test_a_descent_that_slows_down_is_information() -> None:
    assert worst(judge(UpdatesTooSmall(), run(falling(300)))) is Severity.INFO


def test_gradients_that_disagree_are_not_the_rate_s_fault() -> None:
    assert not alarms(judge(UpdatesTooSmall(), run(creeping(300), grad__cosine=0.01)))


def test_a_loss_that_stands_where_weights_have_not_come_far_is_the_rate_s_fault_whatever_gradients_do() -> None:
    still = list(2.0 + 0.02 * np.random.default_rng(0).normal(size=300))
    for ratio, expected in ((2e-4, True), (1e-3, False)):
        found = judge(UpdatesTooSmall(), run(still, ratio=3e-4, grad__cosine=0.01, update__ratio=ratio))
        assert bool(alarms(found)) is expected


def test_the_ends_of_a_schedule_say_nothing() -> None:
    warmup = [1e-5 * step for step in range(300)]
    decay = [0.1, *[0.001] * 299]
    assert not judge(UpdatesTooSmall(), run(creeping(300), lr=warmup))
    assert not judge(UpdatesTooSmall(), run(creeping(300), lr=decay))


def test_it_abstains_without_updates() -> None:
    assert not judge(UpdatesTooSmall(), rows(300, loss=creeping(300), grad__norm=1.0, lr=1e-5))


def _fresh(**more: object) -> list[dict[str, float]]:
    """A loss that was below zero, which tells nothing, and weights that look newly made."""
    first = {f"weight/rms@{layer}.weight": 0.1 for layer in range(4)}
    first |= {f"weight/absmax@{layer}.weight": 0.17 for layer in range(4)}
    table = run([0.3, -0.2] * 110, ratio=2e-4, update__ratio=2e-4, **more)
    return [table[0] | first, *table[1:]]


def test_new_weights_that_go_nowhere_are_a_warning_whatever_the_loss_is() -> None:
    layers = ModelTable(
        modules=tuple(ModuleRow(name=str(layer), type="Linear", depth=1) for layer in range(4)),
        parameters=tuple(
            ParameterRow(name=f"{layer}.weight", kind=Kind.MATRIX, shape=(32, 32), dtype="float32")
            for layer in range(4)
        ),
    )
    assert alarms(judge(UpdatesTooSmall(), _fresh(update__cosine=0.99), model=layers))[0][0] == 100
    assert alarms(judge(UpdatesTooSmall(), _fresh(update__cosine=0.9), model=layers))[0][0] == 200
    assert not alarms(judge(UpdatesTooSmall(), _fresh(update__cosine=0.99)))  # nothing is known of the weights
