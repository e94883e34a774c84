"""WGT002 weight-norm-jump."""

import numpy as np

from sonde.core.findings import Severity
from sonde.rules.weights.weight_norm_jump import WeightNormJump

from ..traces import falling, flat, judge, rows, worst


def _rows(losses: list[float], jump: float, **more: object) -> list[dict[str, float]]:
    usual = np.linspace(0.1, 0.11, 300)
    jumped = [value * (jump if i >= 200 else 1) for i, value in enumerate(usual)]
    return rows(300, loss=losses, weight__rms_at_a=list(usual), weight__rms_at_b=jumped, **more)


def test_a_jump_that_hurts_is_a_warning_with_its_layer() -> None:
    seen = judge(WeightNormJump(), _rows([*falling(200), *flat(100, 3.0)], 30.0))
    assert seen[0][0] == 201
    assert worst(seen) is Severity.WARNING
    assert seen[0][1].where == ("b",)


def test_a_jump_without_harm_is_information() -> None:
    assert worst(judge(WeightNormJump(), _rows(falling(300), 30.0))) is Severity.INFO


def test_a_jump_against_its_own_history_counts() -> None:
    assert judge(WeightNormJump(), _rows(falling(300), 2.0))


def test_slow_growth_and_biases_that_leave_zero_are_silent() -> None:
    assert judge(WeightNormJump(), _rows(falling(300), 1.0)) == []
    bias = [1e-6 if i < 100 else 0.01 for i in range(300)]
    assert judge(WeightNormJump(), _rows(falling(300), 1.0, weight__rms_at_bias=bias)) == []


def test_biases_pass_through_zero_but_one_that_is_overwritten_counts() -> None:
    crossing = [abs(0.1 * float(np.cos(i / 10))) + 1e-4 for i in range(300)]
    assert judge(WeightNormJump(), _rows([*falling(200), *flat(100, 3.0)], 1.0, weight__rms_at_bias=crossing)) == []
    overwritten = [0.05 if i < 200 else 3.0 for i in range(300)]
    seen = judge(WeightNormJump(), _rows([*falling(200), *flat(100, 3.0)], 1.0, weight__rms_at_bias=overwritten))
    assert seen[0][1].where == ("bias",)
