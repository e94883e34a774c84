from sonde.core.findings import Severity
from sonde.rules.gradients.gradient_imbalance import GradientImbalance

from ..traces import alarms, falling, flat, judge, rows, worst

UNEVEN = {f"grad/rms@blocks.{layer}.weight": size for layer, size in enumerate((1.0, 0.9, 300.0, 1.1, 1.0))}


def test_like_layers_far_apart_are_a_warning_while_training_is_stuck() -> None:
    seen = judge(GradientImbalance(), [row | UNEVEN for row in rows(120, loss=flat(120, noise=0.01))])
    assert seen[0][0] == 3
    assert alarms(seen)[0][0] == 100
    assert seen[0][1].where[0] == "blocks.2.weight"


def test_they_are_information_while_the_loss_falls() -> None:
    seen = judge(GradientImbalance(), [row | UNEVEN for row in rows(200, loss=falling(200))])
    assert worst(seen) is Severity.INFO


def test_layers_of_other_kinds_may_be_a_hundred_times_apart() -> None:
    sizes = {"grad/rms@stem.weight": 500.0, "grad/rms@head.weight": 1.0}
    assert not judge(GradientImbalance(), [row | sizes for row in rows(10, loss=1.0)])


def test_a_steady_fall_with_depth_is_another_rule_s() -> None:
    sizes = {f"grad/rms@{layer}.weight": 10.0**layer for layer in range(6)}
    assert not judge(GradientImbalance(), [row | sizes for row in rows(10, loss=1.0)])


def test_two_layers_and_sparse_ones_say_nothing() -> None:
    table = rows(120, loss=flat(120, noise=0.01))
    two = {"grad/rms@0.weight": 1.0, "grad/rms@1.weight": 300.0}
    assert not judge(GradientImbalance(), [row | two for row in table])
    sparse = {f"grad/zeros@blocks.{layer}.weight": 0.9 if layer != 2 else 0.0 for layer in range(5)}
    assert not judge(GradientImbalance(), [row | UNEVEN | sparse for row in table])
