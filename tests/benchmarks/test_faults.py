"""Two small scenarios from the training to the table; the rest of `benchmarks/faults` runs on request."""

import importlib
import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import sonde

FAULTY, HEALTHY = "mlp-nan-input", "healthy-short-run"


def _module(name: str) -> ModuleType:
    # By name, since the type checker would follow an import into the trainings, which are written as users write.
    return importlib.import_module(f"benchmarks.faults.{name}")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[dict[str, Any]]]:
    run = _module("run")
    out = tmp_path_factory.mktemp("faults")
    scenarios = run.catalogue()
    rows = [
        run.start(scenarios[FAULTY], 0, twin=False, out=out),
        run.start(scenarios[HEALTHY], 0, twin=True, out=out),
    ]
    (out / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return out, rows


@pytest.fixture(scope="module")
def judged(recorded: tuple[Any, list[dict[str, Any]]]) -> list[Any]:
    out, _ = recorded
    score = _module("score")
    return list(score.judge_all(out, score.rows_of(out), jobs=1))


def test_each_training_is_recorded_and_described(recorded: tuple[Any, list[dict[str, Any]]]) -> None:
    _, (faulty, healthy) = recorded
    assert "error" not in faulty
    assert "error" not in healthy
    assert faulty["nonfinite_step"] in (150, 151)
    assert "0.weight" in faulty["nonfinite_parameters"]
    assert healthy["nonfinite_step"] is None
    assert healthy["steps"] == 30


def test_the_truth_does_not_reach_the_run(recorded: tuple[Any, list[dict[str, Any]]]) -> None:
    out, _ = recorded
    told = (out / FAULTY / "0-faulty" / "run.json").read_text()
    assert "nan-input" not in told
    assert "nonfinite" not in told
    assert "faulty" not in told


def test_a_poisoned_batch_is_found_at_its_step_and_a_healthy_run_is_left_alone(judged: list[Any]) -> None:
    healthy, faulty = sorted(judged, key=lambda run: run.kind, reverse=True)
    assert (healthy.kind, faulty.kind) == ("healthy", "faulty")
    assert not healthy.codes
    assert faulty.detected
    assert faulty.in_time
    assert faulty.critical_in_time


def test_the_table_counts_what_was_judged(judged: list[Any]) -> None:
    table = _module("table")
    shares = {share.what: share for share in table.shares(judged)}
    assert (shares["faults detected"].hits, shares["faults detected"].of) == (1, 1)
    assert (shares["alarms on healthy runs"].hits, shares["alarms on healthy runs"].of) == (0, 1)
    assert "| faults detected | 100.0% | 1 of 1 |" in table.render(judged)
    assert json.loads(json.dumps(table.to_json(judged)))["runs"][0]["name"] in (FAULTY, HEALTHY)


def test_delay_counts_from_the_onset_and_ignores_earlier_alarms() -> None:
    judging = _module("judging")
    run = judging.Judgement(
        name="x", seed=1, kind="faulty", cause="lr-spike", onset=100, codes=("LOS002",), epoch_steps=64,
        alarms=(judging.Alarm(step=40, code="LOS002"), judging.Alarm(step=160, code="GRD001")),
    )  # fmt: skip
    assert run.delay == 60
    assert run.early
    assert run.in_time
    assert not replace(run, epoch_steps=None).in_time
    assert not replace(run, alarms=run.alarms[:1]).detected


def test_too_much_training_begins_to_act_at_the_best_evaluation(tmp_path: Path) -> None:
    validations = {10: 1.0, 20: 0.6, 30: 0.5, 40: float("nan"), 50: 0.55}
    with sonde.record(tmp_path) as writer:
        for step in range(1, 51):
            found = {"val/loss": validations[step]} if step in validations else {}
            writer.log({"loss": 1 / step, **found}, step=step)
    scenario = _module("scenario").Scenario("x", "overfitting", lambda session: 0.0, onset=3)
    judge, row = _module("judging").judge, {"seed": 0, "twin": False}
    assert judge(scenario, tmp_path, row).onset == 3
    assert judge(replace(scenario, turns=True), tmp_path, row).onset == 30


def test_only_alarms_before_the_first_non_finite_loss_are_a_lead() -> None:
    judging, table = _module("judging"), _module("table")
    alarms = (judging.Alarm(step=70, code="GRD001"), judging.Alarm(step=101, code="LOS001", critical=True))
    run = judging.Judgement(
        name="x", seed=1, kind="faulty", cause="lr-too-high", nonfinite_step=100, finite_steps=99, alarms=alarms,
        codes=("GRD001",),
    )  # fmt: skip
    assert run.lead == 30
    late = replace(run, alarms=alarms[1:])
    assert late.lead is None
    assert late.critical_in_time
    shares = {share.what: share.hits for share in table.shares([run, late])}
    assert shares["divergences after 20 steps, warned of before"] == 1


def test_the_table_lists_every_divergence_that_was_warned_of_too_late() -> None:
    judging, table = _module("judging"), _module("table")

    def run(name: str, *alarms: int, at: int = 100, cause: str = "lr-too-high") -> Any:
        told = tuple(judging.Alarm(step=step, code="LOS001", critical=True) for step in alarms)
        return judging.Judgement(
            name=name, seed=0, kind="faulty", cause=cause, nonfinite_step=at, finite_steps=at - 1, alarms=told
        )

    runs = [
        run("warned", 70),
        run("shortly", 90),
        run("afterwards", 101),
        run("sudden", 8, at=7),
        run("sudden-late", 10, at=7),
        run("poisoned", 100, cause="nonfinite-input"),
        run("poisoned-late", 103, cause="nonfinite-input"),
    ]
    found = {one.name: one.why for one in table.surprises(runs)}
    assert found == {
        "shortly": "10 steps before",
        "afterwards": "no warning before",
        "sudden-late": "not critical within 2 steps",
        "poisoned-late": "not critical within 2 steps",
    }
    printed = table.render(runs)
    assert "| divergences after 20 steps, warned of before | 66.7% | 2 of 3 | all |" in printed
    assert "| afterwards 0 | 0 | 100 | LOS001 at 101 | no warning before |" in printed
    assert "| alarms on healthy runs | - | 0 of 0 |" in printed


def test_calibration_error_is_the_mean_distance_between_confidence_and_share() -> None:
    judging, table = _module("judging"), _module("table")

    def run(confidence: float, cause: str, kind: str = "faulty") -> Any:
        return judging.Judgement(
            name="x", seed=1, kind=kind, cause="plateau", causes=(cause,), confidence=confidence, codes=("LOS005",)
        )

    runs = [run(0.85, "plateau"), run(0.85, "lr-too-low"), run(0.25, "lr-too-low"), run(0.25, "plateau", "twin")]
    checked = table.calibration(runs)
    assert [one.num for one in checked.bins] == [2, 2]
    assert [one.right for one in checked.bins] == [0.0, 0.5]
    assert checked.error == pytest.approx((2 * 0.25 + 2 * 0.35) / 4)
    assert table.diagram(checked).count("<circle") == 2
