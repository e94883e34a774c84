import copy
import dataclasses
import itertools
import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.core.causes import Cause
from sonde.core.errors import FormatError
from sonde.core.findings import Diagnosis, Evidence, Finding, Severity, Suspect, Verdict
from sonde.core.remedies import Action, Remedy, Safety
from sonde.core.strict_json import dumps, loads

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "findings.md"
LR_TOO_HIGH = Suspect(
    cause=Cause.LR_TOO_HIGH, confidence=0.8, because="update ratio rose 3× since the warmup ended at 1500"
)
EXPLODING = Finding(
    code="GRD001",
    name="exploding-gradients",
    severity=Severity.CRITICAL,
    first_step=1840,
    last_step=1852,
    open=True,
    where=("blocks.11.mlp.up.weight", "blocks.10.mlp.up.weight", "blocks.9.mlp.up.weight", "head.weight"),
    message="global gradient norm 417, 38 robust deviations above its last 200 steps (median 2.1)",
    evidence=(Evidence(tag="grad/norm", step=1840, value=417.0, expected=2.1),),
    causes=(LR_TOO_HIGH,),
    remedies=(
        Remedy(
            action=Action.LOWER_LR,
            args={"factor": 0.3},
            safety=Safety.OPT_IN,
            text="lower the learning rate 3e-4 → 1e-4",
        ),
        Remedy(
            action=Action.CLIP,
            args={"max_norm": 2.0},
            safety=Safety.OPT_IN,
            text="clip the global norm at 2.0",
        ),
    ),
)

steps = st.integers(0, 2**53)
sentences = st.text(min_size=1).filter(lambda text: text.strip() != "")
evidences = st.builds(
    Evidence,
    tag=st.sampled_from(["loss", "grad/norm@blocks.3.attn.qkv.weight"]),
    step=steps,
    value=st.floats(),
    expected=st.none() | st.floats(),
)
remedies = st.builds(
    Remedy,
    action=st.sampled_from(Action),
    args=st.dictionaries(st.text(), st.integers() | st.floats(allow_nan=False, allow_infinity=False), max_size=2),
    safety=st.sampled_from([Safety.OPT_IN, Safety.ADVICE]),
    text=sentences,
)


@st.composite
def suspects(draw: st.DrawFn) -> tuple[Suspect, ...]:
    causes = draw(st.lists(st.sampled_from(Cause), max_size=4, unique=True))
    confidences = sorted((draw(st.floats(0, 1)) for _ in causes), reverse=True)
    return tuple(
        Suspect(cause=cause, confidence=confidence, because=draw(sentences))
        for cause, confidence in zip(causes, confidences, strict=True)
    )


@st.composite
def findings(draw: st.DrawFn) -> Finding:
    first_step, last_step = sorted((draw(steps), draw(steps)))
    return Finding(
        code=draw(st.from_regex(r"[A-Z]{3}[0-9]{3}", fullmatch=True)),
        name=draw(st.from_regex(r"[a-z]{1,5}(-[a-z0-9]{1,5}){0,3}", fullmatch=True)),
        severity=draw(st.sampled_from(Severity)),
        first_step=first_step,
        last_step=last_step,
        open=draw(st.booleans()),
        where=tuple(draw(st.lists(st.text(), max_size=3))),
        message=draw(sentences),
        evidence=tuple(draw(st.lists(evidences, max_size=3))),
        causes=draw(suspects()),
        remedies=tuple(draw(st.lists(remedies, max_size=2))),
    )


def test_severities_are_ordered_by_how_bad_they_are_not_by_the_alphabet() -> None:
    ordered = [Severity.INFO, Severity.WARNING, Severity.CRITICAL]
    assert sorted([Severity.CRITICAL, Severity.INFO, Severity.WARNING]) == ordered
    for (i, a), (j, b) in itertools.product(enumerate(ordered), repeat=2):
        assert (a < b, a <= b, a > b, a >= b, a == b) == (i < j, i <= j, i > j, i >= j, i == j)


def test_a_severity_compares_with_its_plain_text() -> None:
    assert Severity.CRITICAL > "warning"
    assert {"info": 1}[Severity.INFO] == 1


def test_warnings_are_alarms_and_information_is_not() -> None:
    assert [severity.is_alarm for severity in Severity] == [False, True, True]


def test_a_finding_prints_like_a_compiler_diagnostic() -> None:
    assert str(EXPLODING) == (
        "GRD001 exploding-gradients  critical  step 1840  blocks.11.mlp.up.weight (+3)\n"
        "  global gradient norm 417, 38 robust deviations above its last 200 steps (median 2.1)\n"
        "  likely: lr-too-high (0.8): update ratio rose 3× since the warmup ended at 1500\n"
        "  try [opt-in]  lower the learning rate 3e-4 → 1e-4\n"
        "  try [opt-in]  clip the global norm at 2.0\n"
        "  more: sonde explain GRD001"
    )


def test_a_single_place_is_printed_without_a_count_and_no_place_without_anything() -> None:
    one = dataclasses.replace(EXPLODING, where=("head.weight",))
    none = dataclasses.replace(EXPLODING, where=())
    assert str(one).splitlines()[0] == "GRD001 exploding-gradients  critical  step 1840  head.weight"
    assert str(none).splitlines()[0] == "GRD001 exploding-gradients  critical  step 1840"


def test_a_closed_finding_prints_its_span() -> None:
    closed = dataclasses.replace(EXPLODING, open=False, where=())
    assert str(closed).splitlines()[0].endswith("critical  steps 1840–1852 (closed)")
    at_once = dataclasses.replace(closed, last_step=1840)
    assert str(at_once).splitlines()[0].endswith("critical  step 1840 (closed)")


def test_further_causes_are_printed_below_the_likeliest() -> None:
    clipping = Suspect(cause=Cause.MISSING_CLIPPING, confidence=0.15, because="no clip was seen")
    lines = str(dataclasses.replace(EXPLODING, causes=(LR_TOO_HIGH, clipping))).splitlines()
    assert lines[2].startswith("  likely: lr-too-high (0.8): ")
    assert lines[3] == "      or: missing-clipping (0.15): no clip was seen"


def test_every_line_of_a_long_message_is_indented() -> None:
    lines = str(dataclasses.replace(EXPLODING, message="one\ntwo", causes=(), remedies=())).splitlines()
    assert lines[1:] == ["  one", "  two", "  more: sonde explain GRD001"]


def test_the_json_of_a_finding_is_the_documented_one() -> None:
    assert EXPLODING.to_json() == {
        "code": "GRD001",
        "name": "exploding-gradients",
        "severity": "critical",
        "first_step": 1840,
        "last_step": 1852,
        "open": True,
        "where": [
            "blocks.11.mlp.up.weight",
            "blocks.10.mlp.up.weight",
            "blocks.9.mlp.up.weight",
            "head.weight",
        ],
        "message": "global gradient norm 417, 38 robust deviations above its last 200 steps (median 2.1)",
        "evidence": [{"tag": "grad/norm", "step": 1840, "value": 417.0, "expected": 2.1}],
        "causes": [
            {
                "cause": "lr-too-high",
                "confidence": 0.8,
                "because": "update ratio rose 3× since the warmup ended at 1500",
            }
        ],
        "remedies": [
            {
                "action": "lower-lr",
                "args": {"factor": 0.3},
                "safety": "opt-in",
                "text": "lower the learning rate 3e-4 → 1e-4",
            },
            {
                "action": "clip",
                "args": {"max_norm": 2.0},
                "safety": "opt-in",
                "text": "clip the global norm at 2.0",
            },
        ],
    }


def test_non_finite_evidence_is_written_as_text_and_read_as_a_number() -> None:
    evidence = Evidence(tag="loss", step=3, value=math.nan, expected=-math.inf)
    assert evidence.to_json() == {"tag": "loss", "step": 3, "value": "NaN", "expected": "-Infinity"}
    back = Evidence.from_json(evidence.to_json())
    assert math.isnan(back.value)
    assert back.expected == -math.inf


def test_what_cannot_be_expected_is_null() -> None:
    evidence = Evidence(tag="loss", step=3, value=1.0)
    assert evidence.to_json()["expected"] is None
    assert Evidence.from_json(evidence.to_json()) == evidence


@given(findings())
def test_any_finding_survives_strict_json(finding: Finding) -> None:
    written = json.dumps(finding.to_json(), allow_nan=False)
    back = Finding.from_json(loads(written))
    # NaN equals nothing, itself included, so that what is written is compared; it holds every field.
    assert back.to_json() == finding.to_json()
    assert str(back) == str(finding)


@given(st.lists(findings(), max_size=3), steps, st.lists(st.text(), max_size=2))
def test_any_diagnosis_survives_strict_json(found: list[Finding], num_steps: int, missing: list[str]) -> None:
    diagnosis = Diagnosis(run="runs/demo", steps=num_steps, findings=tuple(found), not_measured=tuple(missing))
    back = Diagnosis.from_json(loads(dumps(diagnosis.to_json())))
    assert back.to_json() == diagnosis.to_json()


def test_a_finding_can_be_copied_and_pickled() -> None:
    assert copy.deepcopy(EXPLODING) == pickle.loads(pickle.dumps(EXPLODING)) == EXPLODING


def test_numpy_values_become_plain_ones() -> None:
    evidence: dict[str, Any] = {"step": np.int64(3), "value": np.float32(0.5), "expected": np.float64(0.25)}
    confidence: Any = np.float32(0.5)
    changes: dict[str, Any] = {
        "first_step": np.int64(3),
        "last_step": np.int32(4),
        "open": np.bool_(False),
        "evidence": [Evidence(tag="loss", **evidence)],
        "causes": [Suspect(cause=Cause.PLATEAU, confidence=confidence, because="flat")],
    }
    data = json.loads(json.dumps(dataclasses.replace(EXPLODING, **changes).to_json()))
    assert (data["first_step"], data["last_step"], data["open"]) == (3, 4, False)
    assert data["evidence"] == [{"tag": "loss", "step": 3, "value": 0.5, "expected": 0.25}]
    assert data["causes"] == [{"cause": "plateau", "confidence": 0.5, "because": "flat"}]


@pytest.mark.parametrize("code", ["GRD1", "grd001", "GRD0001", "GRD00١", "GRD001\n", ""])
def test_a_code_is_three_capital_letters_and_three_digits(code: str) -> None:
    with pytest.raises(ValueError, match=r"`Finding\(code=\.\.\.\)`"):
        dataclasses.replace(EXPLODING, code=code)


@pytest.mark.parametrize("name", ["Loss-Spike", "loss_spike", "loss--spike", "-loss", "loss-", "loss spike", ""])
def test_a_name_is_kebab_case(name: str) -> None:
    with pytest.raises(ValueError, match=r"`Finding\(name=\.\.\.\)`"):
        dataclasses.replace(EXPLODING, name=name)


@pytest.mark.parametrize(
    ("change", "error", "complaint"),
    [
        ({"severity": "fatal"}, ValueError, "fatal"),
        ({"first_step": -1}, ValueError, r"first_step=\.\.\.\)` must be at least 0, got -1"),
        ({"first_step": 1.5}, TypeError, r"first_step=\.\.\.\)` must be a whole number, got 1.5"),
        ({"first_step": True}, TypeError, "first_step"),
        ({"last_step": 1839}, ValueError, "must be at least its first_step, 1840, got 1839"),
        ({"open": "yes"}, TypeError, r"open=\.\.\.\)` must be True or False, got 'yes'"),
        ({"message": "  "}, ValueError, "message"),
        ({"where": "head.weight"}, TypeError, "where=.* got the text 'head.weight'"),
        ({"where": [3]}, TypeError, "where"),
        ({"evidence": [{"tag": "loss"}]}, TypeError, "evidence"),
        ({"causes": [Cause.PLATEAU]}, TypeError, "causes"),
        ({"remedies": [Action.CLIP]}, TypeError, "remedies"),
        ({"causes": [LR_TOO_HIGH, LR_TOO_HIGH]}, ValueError, "each cause once"),
        (
            {"causes": [Suspect(cause=Cause.PLATEAU, confidence=0.1, because="flat"), LR_TOO_HIGH]},
            ValueError,
            r"in order of likelihood, got confidences \[0.1, 0.8\]",
        ),
    ],
)
def test_a_wrong_finding_is_refused_at_construction(
    change: dict[str, Any], error: type[Exception], complaint: str
) -> None:
    with pytest.raises(error, match=complaint):
        dataclasses.replace(EXPLODING, **change)


@pytest.mark.parametrize("confidence", [-0.1, 1.1, math.nan])
def test_a_confidence_lies_between_0_and_1(confidence: float) -> None:
    with pytest.raises(ValueError, match=r"must be in \[0, 1\]"):
        Suspect(cause=Cause.PLATEAU, confidence=confidence, because="flat")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"tag": "no tag!"}, FormatError),
        ({"step": -1}, ValueError),
        ({"value": "417"}, TypeError),
        ({"value": None}, TypeError),
        ({"expected": True}, TypeError),
    ],
)
def test_wrong_evidence_is_refused_at_construction(change: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        dataclasses.replace(EXPLODING.evidence[0], **change)


def test_a_finding_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        EXPLODING.severity = Severity.INFO  # type: ignore[misc]


def test_reading_ignores_keys_it_does_not_know() -> None:
    data = EXPLODING.to_json()
    data["evidence"][0]["unit"] = "1"
    data["causes"][0]["rank"] = 1
    assert Finding.from_json(data | {"group": "gradients"}) == EXPLODING


@pytest.mark.parametrize("key", sorted(EXPLODING.to_json()))
def test_reading_says_which_key_of_a_finding_is_missing(key: str) -> None:
    data = EXPLODING.to_json()
    del data[key]
    with pytest.raises(FormatError, match=f"^{key}: missing"):
        Finding.from_json(data)


@pytest.mark.parametrize("key", sorted(EXPLODING.to_json()))
@pytest.mark.parametrize("value", [None, 1.5, [[]]])
def test_reading_says_which_key_of_a_finding_is_wrong(key: str, value: object) -> None:
    with pytest.raises(FormatError, match=key):
        Finding.from_json(EXPLODING.to_json() | {key: value})


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        (("evidence", 0, "value"), "417", r"evidence: \[0\]: value: expected a number"),
        (("evidence", 0, "value"), 10**400, r"evidence: \[0\]: value: expected a number"),
        (("evidence", 0, "tag"), "", r"evidence: \[0\]: tag"),
        (("causes", 0, "cause"), "lr-to-high", r"causes: \[0\]: cause: .*did you mean 'lr-too-high'\?"),
        (("causes", 0, "confidence"), 2, r"causes: \[0\]: .*confidence"),
        (("remedies", 1, "action"), "pray", r"remedies: \[1\]: action: .*'pray'"),
    ],
)
def test_reading_names_the_place_of_a_mistake_deep_inside(
    path: tuple[str, int, str], value: object, complaint: str
) -> None:
    data = EXPLODING.to_json()
    data[path[0]][path[1]][path[2]] = value
    with pytest.raises(FormatError, match=complaint):
        Finding.from_json(data)


@pytest.mark.parametrize("data", [None, [], "finding", 3])
def test_reading_refuses_what_is_no_object(data: object) -> None:
    for kind in (Evidence, Suspect, Finding, Diagnosis):
        with pytest.raises(FormatError, match="expected an object"):
            kind.from_json(data)


@pytest.mark.parametrize(
    ("severities", "verdict"),
    [
        ([], Verdict.HEALTHY),
        ([Severity.INFO], Verdict.INFO),
        ([Severity.WARNING, Severity.INFO], Verdict.WARNING),
        ([Severity.INFO, Severity.CRITICAL, Severity.WARNING], Verdict.CRITICAL),
    ],
)
def test_the_verdict_is_the_worst_finding(severities: list[Severity], verdict: Verdict) -> None:
    found = tuple(dataclasses.replace(EXPLODING, severity=severity) for severity in severities)
    assert Diagnosis(run="r", steps=5, findings=found).verdict is verdict


def test_a_closed_finding_still_counts_in_the_verdict() -> None:
    closed = dataclasses.replace(EXPLODING, open=False)
    assert Diagnosis(run="r", steps=5, findings=(closed,)).verdict is Verdict.CRITICAL


def test_the_json_of_a_diagnosis_is_the_documented_one() -> None:
    diagnosis = Diagnosis(run="runs/demo", steps=2000, findings=(EXPLODING,), not_measured=("activations",))
    assert diagnosis.to_json() == {
        "schema": 2,
        "run": "runs/demo",
        "verdict": "critical",
        "steps": 2000,
        "findings": [EXPLODING.to_json()],
        "groups": [
            {
                "cause": "lr-too-high",
                "confidence": 0.8,
                "because": "update ratio rose 3× since the warmup ended at 1500",
                "place": None,
                "severity": "critical",
                "first_step": 1840,
                "open": True,
                "findings": [0],
                "others": [],
                "remedies": [remedy.to_json() for remedy in EXPLODING.remedies],
            }
        ],
        "not_measured": ["activations"],
        "own_settings": {"off": [], "changed": {}, "ignored": {}},
        "not_enough": [],
        "rule_problems": [],
    }


def test_the_example_of_the_reference_page_is_a_diagnosis() -> None:
    example = PAGE.read_text(encoding="utf-8").split("```json")[1].split("```")[0]
    assert Diagnosis.from_json(loads(example)).to_json() == loads(example)


def test_a_diagnosis_gives_its_findings_when_iterated_and_prints_their_groups_and_notes() -> None:
    note = dataclasses.replace(EXPLODING, code="LOS010", severity=Severity.INFO, causes=(), remedies=(), where=())
    found = (EXPLODING, note)
    diagnosis = Diagnosis(run="runs/demo", steps=2000, findings=found, not_measured=("gains", "attention"))
    assert list(diagnosis) == [EXPLODING, note]
    assert diagnosis.notes == (note,)
    (group,) = diagnosis.groups
    assert str(diagnosis) == (
        f"{group}\n\nLOS010 exploding-gradients  info  step 1840\n  {note.message}\n\n"
        "runs/demo: critical after 2,000 steps\nnot measured: gains, attention"
    )


def test_a_diagnosis_of_schema_1_is_read_and_gets_groups() -> None:
    written = Diagnosis(run="runs/demo", steps=2000, findings=(EXPLODING,)).to_json()
    old = {key: value for key, value in written.items() if key != "groups"} | {"schema": 1}
    assert Diagnosis.from_json(old).to_json() == written


def test_a_newer_schema_is_refused_before_anything_else_is_read() -> None:
    with pytest.raises(FormatError, match=r"schema: 3 is newer than 2.*pip install --upgrade sonde"):
        Diagnosis.from_json({"schema": 3, "something": "else"})


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"schema": "1"}, "schema: expected a whole number"),
        ({"schema": 0}, "schema: expected 1 to 2"),
        ({"run": None}, "run: expected text"),
        ({"run": ""}, "run"),
        ({"steps": -1}, "steps"),
        ({"verdict": "healthy"}, "verdict: by the findings it is critical, got healthy"),
        ({"verdict": "fine"}, "verdict: expected a known verdict"),
        ({"findings": {}}, "findings: expected a list"),
        ({"findings": [EXPLODING.to_json(), {}]}, r"findings: \[1\]: code: missing"),
        ({"not_measured": [None]}, r"not_measured: \[0\]: expected text"),
    ],
)
def test_reading_says_which_key_of_a_diagnosis_is_wrong(change: dict[str, Any], complaint: str) -> None:
    data = Diagnosis(run="runs/demo", steps=2000, findings=(EXPLODING,)).to_json()
    with pytest.raises(FormatError, match=complaint):
        Diagnosis.from_json(data | change)
