"""What is said of alarms as they come, one after the other."""

from dataclasses import replace

from tests.console.views import finding

from sonde.console.announcements import Announcements
from sonde.core.causes import Cause
from sonde.core.findings import Finding, Severity, Suspect
from sonde.core.remedies import Action, Remedy, Safety

LOWER = Remedy(action=Action.LOWER_LR, safety=Safety.ADVICE, text="lower the learning rate")


def alarm(code: str, cause: Cause | None = Cause.LR_TOO_HIGH, *, step: int = 5, still: bool = True) -> Finding:
    made = finding(code, "something-wrong", Severity.WARNING, step, still=still)
    if cause is None:
        return made
    suspect = Suspect(cause=cause, confidence=0.8, because="it is so, as was seen")
    return replace(made, causes=(suspect,), remedies=(LOWER,) if cause is Cause.LR_TOO_HIGH else ())


def test_a_cause_is_told_in_full_once_and_each_further_sign_of_it_in_a_line() -> None:
    told, first, second = Announcements(), alarm("AAA001"), alarm("AAA002", step=9)
    assert "try: lower the learning rate" in told.of(first, [first])
    more = told.of(second, [first, second])
    assert more == "one more sign of lr-too-high (confidence 0.8): AAA002 something-wrong  warning  step 9"
    worse = replace(first, severity=Severity.CRITICAL)
    assert "\n" not in told.of(worse, [worse, second])


def test_an_alarm_that_showed_the_cause_when_it_was_told_is_not_told_again_until_it_gets_worse() -> None:
    told, first, second = Announcements(), alarm("AAA001"), alarm("AAA002")
    assert "AAA002" in told.of(first, [first, second])
    assert told.of(second, [first, second]) == ""
    worse = replace(second, severity=Severity.CRITICAL)
    assert told.of(worse, [first, worse]).endswith("AAA002 something-wrong  critical  step 5")


def test_another_cause_is_told_in_full() -> None:
    told, rate, leak = Announcements(), alarm("AAA001"), alarm("SYS004", Cause.MEMORY_LEAK)
    told.of(rate, [rate])
    said = told.of(leak, [rate, leak])
    assert said.startswith("warning: memory-leak (confidence 0.8)")
    assert "lr-too-high" not in said


def test_a_cause_whose_alarms_are_over_is_told_anew() -> None:
    told, over, again = Announcements(), alarm("AAA001"), alarm("AAA002", step=90)
    told.of(over, [over])
    assert "\n" in told.of(again, [replace(over, open=False), again])


def test_a_cause_that_is_found_to_be_another_says_what_it_takes_the_place_of() -> None:
    told, first = Announcements(), alarm("AAA001")
    told.of(first, [first])
    now, second = alarm("AAA001", Cause.MISSING_ZERO_GRAD), alarm("AAA002", Cause.MISSING_ZERO_GRAD, step=9)
    said = told.of(second, [now, second])
    assert said.startswith("warning: missing-zero-grad")
    assert said.endswith("this takes the place of what was said of lr-too-high")
    assert "lower the learning rate" not in said


def test_alarms_without_a_known_cause_are_one_trouble_too() -> None:
    told, first, second = Announcements(), alarm("AAA001", None), alarm("AAA002", None)
    assert told.of(first, [first]).startswith("warning: cause not known")
    assert told.of(second, [first, second]).startswith("one more sign of a cause that is not known: AAA002")


def test_an_alarm_that_the_findings_do_not_have_is_told_all_the_same() -> None:
    assert Announcements().of(alarm("AAA001"), []).startswith("warning: lr-too-high")
