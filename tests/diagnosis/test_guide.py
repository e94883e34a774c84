"""The seven looks, on numbers made by hand."""

import math

import numpy as np
import pytest

from sonde.core.causes import Cause
from sonde.core.findings import Diagnosis, Evidence, Finding, Severity, Suspect
from sonde.core.records import Float64, Point, Window
from sonde.core.remedies import Action, Remedy, Safety
from sonde.diagnosis.checklist import Check, Outcome, checklist
from sonde.diagnosis.guide import guide
from sonde.diagnosis.looks import USUAL_RATIO, Answer, GuideStep, Measured, looks, text_of
from sonde.rules.catalogue import all_rules


def _window(values: Float64, *, first: int = 1) -> Window:
    values = np.asarray(values, np.float32)
    finite = np.isfinite(values).astype(np.int64)
    known = np.where(finite > 0, values, np.float32(np.nan))
    return Window(first + np.arange(len(values)), known, known, known, finite, 1 - finite)


def _finding(
    code: str = "LOS004", *, cause: Cause | None = None, confidence: float = 0.9, **changes: object
) -> Finding:
    fields: dict[str, object] = {
        "code": code,
        "name": "loss-stuck",
        "severity": Severity.WARNING,
        "first_step": 60,
        "last_step": 90,
        "open": True,
        "message": "something is wrong",
        "causes": () if cause is None else (Suspect(cause=cause, confidence=confidence, because="it shows"),),
    }
    return Finding(**{**fields, **changes})  # type: ignore[arg-type]


def _guided(
    *findings: Finding, measured: Measured | None = None, not_measured: tuple[str, ...] = ()
) -> dict[str, GuideStep]:
    diagnosis = Diagnosis(run="runs/x", steps=100, findings=findings, not_measured=not_measured)
    return {look.name: look for look in guide(measured or Measured({}, {}), diagnosis)}


def _loss(values: Float64) -> Measured:
    return Measured({"loss": _window(values)}, {"loss": Point(len(values), float(values[-1]), 0.0)})


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)
def test_an_alarm_of_every_rule_makes_one_look_wrong_or_stands_at_the_cause(rule: type) -> None:
    code = vars(rule)["code"]
    found = _guided(_finding(code))
    placed = [name for name, look in found.items() if look.findings]
    assert len(placed) == 1
    assert found[placed[0]].answer == ("not known" if placed == ["cause"] else "wrong")
    assert (placed == ["cause"]) <= (code[:3] in ("LOP", "SYS", "DST"))


def test_information_leaves_a_look_fine_and_comes_behind_alarms() -> None:
    quiet, loud = _finding("LOS005", severity=Severity.INFO), _finding("LOS004")
    assert _guided(quiet, measured=_loss(np.ones(100)))["loss"].answer is Answer.FINE
    assert [finding.code for finding in _guided(quiet, loud)["loss"].findings] == ["LOS004", "LOS005"]


def test_a_line_of_the_checklist_that_is_not_in_order_is_suspicious() -> None:
    names = {check.name for check in checklist({}, open_alarms=0)}
    for name, look in ((USUAL_RATIO, "update ratios"), ("The loss falls smoothly", "loss")):
        assert name in names
        for standing, answer in ((Outcome.NOT_OK, "suspicious"), (Outcome.OK, "fine")):
            measured = Measured({}, {}, (Check(name, standing, 1.0),))
            assert _guided(measured=measured)[look].answer == answer
        assert _guided(measured=Measured({}, {}, (Check(name, Outcome.NOT_MEASURED),)))[look].answer == "not measured"


def test_every_line_of_the_checklist_about_learning_belongs_to_a_look() -> None:
    checks = tuple(check._replace(standing=Outcome.OK) for check in checklist({}, open_alarms=0))
    placed = [check for look in _guided(measured=Measured({}, {}, checks)).values() for check in look.checks]
    # An absolute norm says little, and the rest is about speed and memory.
    assert [check.name for check in checks if check not in placed][:3] == [
        "The gradient norm is of ordinary size",
        "Throughput is steady",
        "The time a step takes is steady",
    ]


def test_the_worst_of_a_loss_is_its_highest_and_of_a_norm_the_one_farthest_from_its_median() -> None:
    values = np.ones(100)
    values[10], values[20], values[30] = 50.0, 0.001, 3.0
    measured = Measured({"loss": _window(values), "grad/norm": _window(values)}, {})
    found = _guided(measured=measured)
    assert found["loss"].courses[0].worst == Point(11, 50.0, 0.0)
    assert found["gradient norms"].courses[0].worst.step == 21
    assert "lowest 0.001 at step 21" in text_of(found["gradient norms"].courses[0])
    fading = Measured({"update/ratio": _window(np.append(np.full(99, 0.04), 0.002))}, {})
    assert "lowest 0.002 at step 100" in text_of(_guided(measured=fading)["update ratios"].courses[0])


def test_a_series_that_was_not_finite_for_a_while_is_told_and_one_that_ends_so_is_wrong() -> None:
    values = np.ones(100)
    values[40] = math.inf
    look = _guided(measured=_loss(values))["loss"]
    assert "NaN or infinite first at step 41" in text_of(look.courses[0])
    assert look.answer is Answer.FINE  # no rule and no line of the checklist said so
    values[99] = math.nan
    assert _guided(measured=_loss(values))["loss"].answer is Answer.WRONG


def test_points_of_a_long_series_are_said_to_be_near() -> None:
    window = _window(np.arange(1.0, 101.0))._replace(finite=np.full(100, 7))
    assert "near step" in text_of(looks(Measured({"loss": window}, {}), Diagnosis(run="x", steps=9))[0].courses[0])


def test_of_several_models_each_has_its_series_and_a_part_of_the_loss() -> None:
    windows = {f"{path}@{name}": _window(np.ones(9)) for path in ("loss/part", "grad/norm") for name in "DG"}
    found = _guided(measured=Measured(windows, {}))
    assert [course.tag for course in found["loss"].courses] == ["loss/part@D", "loss/part@G"]
    assert "loss" not in dict(found["loss"].missing)
    assert "grad/norm" not in dict(found["gradient norms"].missing)


def test_layers_are_compared_among_the_weight_matrices() -> None:
    sizes = {"a.weight": 1e-6, "a.bias": 1e-9, "b.weight": 1.0, "broken.weight": math.nan}
    last = {f"grad/rms@{name}": Point(5, size, 0.0) for name, size in sizes.items()}
    (spread,) = _guided(measured=Measured({}, last, (), ("a.weight", "b.weight")))["gradient norms"].spreads
    assert spread == ("grad/rms", 2, ("a.weight", 1e-6), ("b.weight", 1.0))
    (spread,) = _guided(measured=Measured({}, last))["gradient norms"].spreads
    assert spread.lowest[0] == "a.bias"


def test_what_is_missing_has_the_reason_of_the_run_or_else_what_would_measure_it() -> None:
    found = _guided(not_measured=("update/*: its weights are sharded", "grad/*@0.weight: its gradient is sparse"))
    assert dict(found["update ratios"].missing)["update/ratio"] == "its weights are sharded"
    assert "sonde.watch" in dict(found["gradient norms"].missing)["grad/norm"]
    assert "act/dead@" not in dict(found["distributions"].missing)  # nothing there that could be dead
    rectified = Measured({}, {"act/positive@1": Point(1, 0.5, 0.0)})
    assert "watch.burst" in dict(_guided(measured=rectified)["distributions"].missing)["act/dead@"]


def test_the_first_open_alarm_leads_and_a_closed_one_where_none_is_open() -> None:
    closed = _finding("LOS002", cause=Cause.BAD_BATCH, open=False)
    still = _finding("UPD001", cause=Cause.LR_TOO_HIGH)
    assert _guided(closed, still)["cause"].answer == "lr-too-high"
    alone = _guided(closed)["cause"]
    assert alone.answer == "bad-batch"
    assert "over since step 90" in alone.said[0]


def test_a_cause_that_is_not_sure_is_not_known_and_the_test_that_decides_is_named() -> None:
    found = _guided(_finding(cause=Cause.LR_TOO_LOW, confidence=0.2))
    assert found["cause"].answer == "not known"
    assert any("five times the rate" in line for line in found["cause"].said)
    assert any(line.startswith("val/loss was not measured") for line in found["cause"].said)
    item = Evidence(tag="weight/norm", step=61, value=3.0)
    assert any("weight/norm around step 60" in line for line in _guided(_finding(evidence=(item,)))["cause"].said)


def test_the_fix_is_the_first_remedy() -> None:
    remedy = Remedy(action=Action.CLIP, safety=Safety.OPT_IN, text="clip the gradient norm at 1")
    fix = _guided(_finding(cause=Cause.MISSING_CLIPPING, remedies=(remedy,)))["fix"]
    assert (fix.answer, fix.said) == ("clip", ("try: [opt-in]  clip the gradient norm at 1",))
    assert _guided(_finding())["fix"].answer == "none"


def test_a_loss_that_was_lower_before_the_trouble_is_to_come_back_to_that() -> None:
    values = np.where(np.arange(1, 101) < 60, 0.5, 3.0)
    (first, *_) = _guided(_finding(cause=Cause.BAD_BATCH), measured=_loss(values))["recovery"].said
    assert first == "loss comes back to 0.5 or below, its level before step 60, within 100 steps"
    (first, *_) = _guided(_finding(cause=Cause.PLATEAU, first_step=0), measured=_loss(values))["recovery"].said
    assert first.startswith("loss falls below 0.5, its lowest so far")


def test_a_norm_is_to_stay_below_what_it_was_before_the_trouble() -> None:
    norms = np.where(np.arange(1, 101) < 60, 2.0, 500.0)
    measured = Measured({"grad/norm": _window(norms)}, {})
    late = _guided(_finding("GRD001", cause=Cause.MISSING_CLIPPING), measured=measured)["recovery"].said
    assert late[0].startswith("grad/norm stays below 2, its highest before step 60")
    early = _guided(_finding("GRD001", cause=Cause.MISSING_CLIPPING, first_step=4), measured=measured)["recovery"].said
    assert early[0].startswith("grad/norm stays within ten times its first value, 2")


def test_memory_recovers_in_its_own_series_and_not_in_the_loss() -> None:
    item = Evidence(tag="host/rss", step=80, value=9e9, expected=1e9)
    said = _guided(_finding("SYS004", cause=Cause.MEMORY_LEAK, evidence=(item,)))["recovery"].said
    assert said[0].startswith("host/rss comes back to about 1e9 (it was 9e9)")
    assert not any(line.startswith("loss ") for line in said)
