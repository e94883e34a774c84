import numpy as np
import pytest
from tests.rules.traces import falling, judge, rows, worst

from sonde.core.findings import Severity
from sonde.rules.data.data_drift import DataDrift


def table(
    num: int, means: list[float], stds: list[float], *, every: int = 20, rises: bool = False
) -> list[dict[str, float]]:
    found = rows(num, loss=falling(num, end=0.5))
    for i, (mean, std) in enumerate(zip(means, stds, strict=True)):
        found[1 + i * every] |= {"batch/mean@0": mean, "batch/std@0": std}
    if rises:
        for row in found[num // 2 :]:
            row["loss"] = 2.0
    return found


@pytest.mark.parametrize("rises", [True, False])
def test_a_jump_of_the_input_is_dated_and_a_warning_where_the_loss_rises(rises: bool) -> None:
    seen = judge(DataDrift(), table(200, [0.0] * 5 + [1.5] * 5, [1.0] * 5 + [1.8] * 5, rises=rises))
    assert seen[0][0] == 122  # the second look after the jump
    assert seen[0][1].since == 102
    assert worst(seen) is (Severity.WARNING if rises else Severity.INFO)


def test_a_loss_that_rose_long_before_is_not_the_drift_s_doing() -> None:
    found = table(200, [0.0] * 5 + [1.5] * 5, [1.0] * 5 + [1.8] * 5)
    for step, row in enumerate(found):
        row["loss"] = 0.1 + 0.01 * max(step - 20, 0) if step > 3 else 0.5
    assert worst(judge(DataDrift(), found)) is Severity.INFO


def test_a_slow_drift_is_found() -> None:
    stds = list(np.r_[np.ones(4), np.linspace(1.0, 0.3, 12)])
    seen = judge(DataDrift(), table(400, [0.0] * 16, stds))
    assert seen


@pytest.mark.parametrize("seed", range(12))
def test_noise_one_odd_batch_and_few_looks_are_no_drift(seed: int) -> None:
    rng = np.random.default_rng(seed)
    means, stds = list(0.1 * rng.normal(size=20)), list(1 + 0.1 * rng.normal(size=20))
    assert judge(DataDrift(), table(500, means, stds)) == []
    odd = [0.0] * 10
    odd[6] = 5.0
    assert judge(DataDrift(), table(300, odd, [1.0] * 10)) == []
    assert judge(DataDrift(), table(100, [0.0, 9.0, 9.0], [1.0] * 3)) == []
