import numpy as np
import pytest
from tests.rules.traces import falling, judge, rows, worst

from sonde.core.findings import Severity
from sonde.rules.data.data_drift import DataDrift
from sonde.rules.step_view import Fact


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


@pytest.mark.parametrize(
    ("validations", "severity"),
    [
        ((0.6, 0.4, 0.5), Severity.WARNING),
        ((0.6, 0.4, 0.45), Severity.INFO),  # within what evaluations may differ by
        ((0.4, 0.6, 0.8), Severity.INFO),  # it had been getting worse before
        ((0.6, 0.4, 0.3), Severity.INFO),
    ],
)
def test_validation_that_turns_with_the_data_makes_it_a_warning(
    validations: tuple[float, float, float], severity: Severity
) -> None:
    found = table(200, [0.0] * 5 + [1.5] * 5, [1.0] * 5 + [1.8] * 5)
    for step, loss in zip((40, 80, 130), validations, strict=True):
        found[step]["val/loss"] = loss
    seen = judge(DataDrift(), found)
    assert worst(seen) is severity
    assert severity is Severity.INFO or seen[1][0] == 142  # the first look after the evaluation


def test_a_loss_that_rose_long_before_is_not_the_drift_s_doing() -> None:
    found = table(200, [0.0] * 5 + [1.5] * 5, [1.0] * 5 + [1.8] * 5)
    for step, row in enumerate(found):
        row["loss"] = 0.1 + 0.01 * max(step - 20, 0) if step > 3 else 0.5
    assert worst(judge(DataDrift(), found)) is Severity.INFO


def test_a_loss_that_began_to_rise_long_after_is_not_the_drift_s_doing() -> None:
    found = table(400, [0.0] * 5 + [1.5] * 15, [1.0] * 5 + [1.8] * 15)
    for step, row in enumerate(found):
        row["loss"] = 0.5 if step < 240 else 2.0
    assert worst(judge(DataDrift(), found)) is Severity.INFO


def test_rare_looks_find_a_change_later_and_a_loss_that_rose_with_it_still_counts() -> None:
    found = table(1200, [0.0] * 6 + [1.5] * 6, [1.0] * 6 + [1.8] * 6, every=100, rises=True)
    assert worst(judge(DataDrift(), found)) is Severity.WARNING


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


def test_a_model_that_makes_its_own_data_changes_them_on_purpose() -> None:
    run = table(200, [0.0] * 5 + [1.5] * 5, [1.0] * 5 + [1.8] * 5, rises=True)
    seen = judge(DataDrift(), run, facts={3: [Fact("preflight", {"check": "acts"})]})
    assert worst(seen) is Severity.INFO
