import pytest
from tests.rules.traces import Seen, alarms, falling, flat, judge, rows

from sonde.core.findings import Severity
from sonde.rules.data.bad_batch import BadBatch


def healthy(num: int = 200, *, noise: float = 0.05) -> list[dict[str, float]]:
    return rows(num, loss=falling(num, end=0.5, noise=noise), lr=0.1, grad__norm=flat(num, 1.0, noise=0.2))


def test_a_jump_of_loss_and_gradient_after_an_ordinary_step_is_a_bad_batch() -> None:
    table = healthy()
    table[149] |= {"loss": 30.0, "grad/norm": 300.0}
    seen = judge(BadBatch(), table)
    assert [step for step, _ in seen] == [150]
    assert seen[0][1].severity is Severity.WARNING


def test_one_outlier_more_among_many_is_none() -> None:
    table = healthy()
    for row in table[60:149:9]:
        row["loss"] = 5.0
    table[149] |= {"loss": 30.0, "grad/norm": 300.0}
    assert judge(BadBatch(), table) == []


def test_a_jump_that_a_growing_gradient_prepared_is_none() -> None:
    table = healthy()
    for i in range(20):
        table[140 + i] |= {"loss": 0.6 * 1.5**i, "grad/norm": 2.0**i}
    assert judge(BadBatch(), table) == []


def test_a_jump_right_after_the_rate_jumped_is_none() -> None:
    table = healthy()
    for i in range(148, 200):
        table[i]["lr"] = 10.0
    table[149] |= {"loss": 30.0, "grad/norm": 300.0, "lr": 20.0}
    assert judge(BadBatch(), table) == []


@pytest.mark.parametrize("hurt", [True, False])
def test_inputs_that_leave_their_band_are_information_and_with_a_spike_a_warning(hurt: bool) -> None:
    table = healthy()
    for i in range(1, 200, 20):
        table[i]["batch/absmax@0"] = 3.0 + 0.1 * (i % 7)
    table[150]["batch/absmax@0"] = 3000.0
    if hurt:
        table[150] |= {"loss": 30.0, "grad/norm": 300.0}
    seen = judge(BadBatch(), table)
    assert [step for step, _ in seen] == [151]
    assert seen[0][1].severity is (Severity.WARNING if hurt else Severity.INFO)
    assert seen[0][1].where == ("0",)


@pytest.mark.parametrize("seed", range(3))
def test_healthy_runs_are_left_alone(seed: int) -> None:
    table = rows(300, loss=falling(300, noise=0.3, seed=seed), lr=0.1, grad__norm=flat(300, noise=0.5, seed=seed))
    for i in range(1, 300, 20):
        table[i]["batch/absmax@0"] = 3.0 + 0.5 * (i % 3)
    assert judge(BadBatch(), table) == []
    assert alarms(judge(BadBatch(), rows(100, loss=float("nan"), lr=0.1))) == []


def test_one_wrong_example_of_a_solved_task_is_no_bad_batch() -> None:
    table = rows(200, loss=falling(200, start=2.0, end=0.001), lr=0.1, grad__norm=flat(200, 1.0, noise=0.2))
    table[180] |= {"loss": 0.9, "grad/norm": 300.0}
    assert judge(BadBatch(), table) == []


def test_a_spike_that_stays_below_the_start_may_be_the_models_own() -> None:
    def run(top: float) -> list[Seen]:
        losses = [*falling(100, start=2.5, end=1.0, noise=0.01), top, *flat(20, 1.0, noise=0.01)]
        norms = [*flat(100, 1.0, noise=0.05), 30.0, *flat(20, 1.0, noise=0.05)]
        return alarms(judge(BadBatch(), rows(121, loss=losses, grad__norm=norms, lr=0.01)))

    assert run(2.3) == []
    assert [step for step, _ in run(6.0)] == [101]
