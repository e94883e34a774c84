import dataclasses
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st
from tests.core.test_findings import findings

from sonde.core.causes import Cause
from sonde.core.findings import Diagnosis, Evidence, Finding, Severity, Suspect
from sonde.core.groups import Group, groups
from sonde.core.remedies import Action, Remedy, Safety

LOWER = Remedy(action=Action.LOWER_LR, args={"factor": 0.1}, safety=Safety.ADVICE, text="lower the learning rate")
RATE, LEAK, ZERO = Cause.LR_TOO_HIGH, Cause.MEMORY_LEAK, Cause.MISSING_ZERO_GRAD


def found(
    code: str,
    *causes: tuple[Cause, float],
    severity: Severity = Severity.WARNING,
    steps: tuple[int, int | None] = (10, None),
    message: str = "",
    because: str = "steps are large",
    where: tuple[str, ...] = (),
    remedies: tuple[Remedy, ...] = (),
) -> Finding:
    first, last = steps
    return Finding(
        code=code,
        name=f"condition-{code[3:]}",
        severity=severity,
        first_step=first,
        last_step=first if last is None else last,
        open=last is None,
        where=where,
        message=message or f"{code} was seen",
        evidence=(Evidence(tag="loss", step=first, value=2.0),),
        causes=tuple(Suspect(cause=cause, confidence=sure, because=because) for cause, sure in causes),
        remedies=remedies,
    )


def codes(group: Group) -> list[str]:
    return [finding.code for finding in group.findings]


def told(found: Iterable[Finding]) -> list[tuple[Cause | None, list[str]]]:
    return [(group.cause, codes(group)) for group in groups(found)]


def test_alarms_that_surely_name_the_same_cause_first_are_one_group_whenever_they_came() -> None:
    early = found("AAA001", (RATE, 0.6), steps=(3, 9))
    late = found("AAA002", (RATE, 0.9), steps=(500, None))
    (group,) = groups([early, late])
    assert (group.cause, group.confidence, group.first_step, group.open) == (RATE, 0.9, 3, True)
    assert codes(group) == ["AAA001", "AAA002"]


def test_alarms_that_surely_name_different_causes_are_never_joined() -> None:
    rate, leak = found("AAA001", (RATE, 0.6), (LEAK, 0.35)), found("SYS004", (LEAK, 0.55), (RATE, 0.4))
    assert told([rate, leak]) == [(RATE, ["AAA001"]), (LEAK, ["SYS004"])]


def test_an_alarm_that_is_not_sure_joins_a_cause_it_names_that_explains_another_at_the_same_time() -> None:
    sure = found("AAA001", (RATE, 0.6), steps=(10, 50))
    unsure = found("AAA002", (ZERO, 0.28), (RATE, 0.2), steps=(40, 60))
    assert told([unsure, sure]) == [(RATE, ["AAA001", "AAA002"])]


def test_an_alarm_that_is_not_sure_stays_alone_where_its_causes_explain_nothing_else_then() -> None:
    over = found("AAA001", (RATE, 0.6), steps=(10, 39))
    later, other = found("AAA002", (RATE, 0.2), steps=(40, 60)), found("SYS004", (LEAK, 0.2))
    assert told([over, later, other]) == [(RATE, ["AAA001"]), (None, ["AAA002", "SYS004"])]


def test_information_goes_to_the_cause_it_is_sure_of_and_is_a_note_otherwise() -> None:
    alarm = found("AAA001", (RATE, 0.6))
    mine = found("INF001", (RATE, 0.4), severity=Severity.INFO)
    unsure = found("INF002", (RATE, 0.2), severity=Severity.INFO)
    others = found("INF003", (LEAK, 0.9), severity=Severity.INFO)
    diagnosis = Diagnosis(run="r", steps=9, findings=(mine, alarm, unsure, others))
    assert [codes(group) for group in diagnosis.groups] == [["AAA001", "INF001"]]
    assert diagnosis.notes == (unsure, others)


def test_information_alone_is_no_group() -> None:
    assert groups([found("INF001", (RATE, 0.9), severity=Severity.INFO)]) == ()


def test_groups_are_ordered_by_how_bad_they_are_and_then_by_how_sure() -> None:
    doubtful, surer = found("AAA001", (RATE, 0.4)), found("SYS004", (LEAK, 0.8))
    worst = found("LOS001", (ZERO, 0.31), severity=Severity.CRITICAL)
    assert [group.cause for group in groups([doubtful, surer, worst])] == [ZERO, LEAK, RATE]


def test_the_finding_that_is_the_reason_comes_first_and_gives_the_place() -> None:
    because = "weights swell (weights are replaced)"
    seen = found("AAA001", (RATE, 0.6), because=because, where=("2.weight",))
    reason = found("WGT006", (RATE, 0.6), message="weights swell", because=because, where=("4.weight", "0.weight"))
    (group,) = groups([seen, reason])
    assert codes(group) == ["WGT006", "AAA001"]
    assert group.place == "4.weight"
    assert str(group).splitlines()[0].endswith(", seen in `4.weight`")
    assert str(group).splitlines()[2] == "  because weights swell"
    assert str(group).count("weights swell") == 1  # what is the reason is not told again as a sign of it


def test_a_line_of_code_in_the_reason_is_the_place() -> None:
    alarm = found(
        "LOP001", (ZERO, 1.0), because="gradients pile up (train.py:44) (seen uncleared)", where=("0.weight",)
    )
    (group,) = groups([alarm])
    assert group.place == "train.py:44"
    assert str(group).splitlines()[0] == "warning: missing-zero-grad (confidence 1), since step 10, at train.py:44"


def test_remedies_are_told_once_and_none_where_the_cause_is_not_known() -> None:
    one, two = (found(code, (RATE, 0.6), remedies=(LOWER,)) for code in ("AAA001", "AAA002"))
    (group,) = groups([one, two])
    assert group.remedies == (LOWER,)
    assert str(group).count("lower the learning rate") == 1
    (unknown,) = groups([found("AAA003", (RATE, 0.2), (ZERO, 0.1))])
    assert (unknown.cause, unknown.confidence, unknown.remedies, unknown.place) == (None, 0.0, (), None)
    assert str(unknown).splitlines() == [
        "warning: cause not known, since step 10",
        "  look at loss around step 10",
        "  perhaps: lr-too-high (0.2), missing-zero-grad (0.1)",
        "  seen by:",
        "    AAA003 condition-003  warning  step 10",
        "      AAA003 was seen",
        "  more: sonde explain AAA003",
    ]


def test_a_cause_with_a_group_of_its_own_is_not_said_to_be_the_others_possible_cause() -> None:
    rate, leak = found("AAA001", (RATE, 0.6), (LEAK, 0.35), (ZERO, 0.05)), found("SYS004", (LEAK, 0.7))
    (_, second) = groups([rate, leak])
    assert [suspect.cause for suspect in second.others] == [ZERO]


def test_another_cause_that_is_sure_is_explained_and_those_that_are_not_are_only_named() -> None:
    (group,) = groups([found("AAA001", (RATE, 0.5), (ZERO, 0.35), (LEAK, 0.1), (Cause.PLATEAU, 0.05))])
    assert str(group).splitlines()[3:5] == [
        f"  possible as well: missing-zero-grad (confidence 0.35): {ZERO.meaning}",
        "  less likely: memory-leak (0.1), plateau (0.05)",
    ]


def test_a_rule_that_saw_its_condition_often_is_listed_once() -> None:
    spikes = [found("LOS002", (RATE, 0.6), steps=(step, step)) for step in (10, 20, 30)]
    (group,) = groups(spikes)
    lines = [line.strip() for line in str(group).splitlines() if "LOS002 condition" in line]
    assert lines == ["LOS002 condition-002  warning  step 30 (closed), and 2 other times"]
    assert group.when == "steps 10 to 30 (closed)"
    assert group.summary == "warning: lr-too-high (confidence 0.6), steps 10 to 30 (closed): LOS002 condition-002"


@given(st.lists(findings(), max_size=6))
def test_every_alarm_is_in_exactly_one_group_and_no_finding_in_two(found: list[Finding]) -> None:
    found = [dataclasses.replace(finding, message=f"{i} {finding.message}") for i, finding in enumerate(found)]
    grouped = [id(finding) for group in groups(found) for finding in group.findings]
    assert len(grouped) == len(set(grouped))
    assert {id(finding) for finding in found if finding.severity.is_alarm} <= set(grouped)
    for group in Diagnosis(run="r", steps=1, findings=tuple(found)).to_json()["groups"]:
        assert group["findings"]
    assert all(group.severity.is_alarm and str(group) for group in groups(found))


def test_nothing_of_a_name_or_message_steers_the_terminal() -> None:
    bad = found(
        "AAA001", (RATE, 0.6), message="two\nlines\x1b[2J", because="\x1b[31mred (a\x1bb.py:3)", where=("a\x1bb",)
    )
    (group,) = groups([bad])
    assert "\x1b" not in f"{group}{group.summary}"
    assert all(line.startswith("  ") for line in str(group).splitlines()[1:])
