from sonde.core.findings import Severity
from sonde.rules.optimisers.loss_scale_collapse import LossScaleCollapse
from sonde.rules.step_view import Fact

from ..traces import alarms, judge, rows, worst


def test_a_scale_below_one_is_an_alarm_at_once_and_critical_when_it_is_gone() -> None:
    skipped = {1: [Fact("skipped-step", {"total": total}) for total in range(1, 30)]}
    seen = judge(LossScaleCollapse(), rows(1, loss=1.0, amp__scale=2.0**-13), facts=skipped)
    assert worst(seen) is Severity.CRITICAL
    assert "29 skipped" in seen[0][1].message
    assert worst(judge(LossScaleCollapse(), rows(1, amp__scale=0.25))) is Severity.WARNING


def test_skipping_forty_steps_in_a_row_is_critical_whatever_is_known_of_the_scale() -> None:
    skipped = {3: [Fact("skipped-step", {"total": total}) for total in range(1, 41)]}
    seen = judge(LossScaleCollapse(), rows(3, loss=1.0), facts=skipped)
    assert [(step, sighting.severity) for step, sighting in seen] == [(3, Severity.CRITICAL)]
    assert not judge(LossScaleCollapse(), rows(3, loss=1.0), facts={3: skipped[3][:39]})


def test_the_first_search_is_healthy() -> None:
    scales = [65536.0 / 2**step for step in range(8)] + [512.0] * 100
    assert not judge(LossScaleCollapse(), rows(108, amp__scale=scales))


def test_falling_again_and_again_after_the_search_is_an_alarm_when_little_is_left() -> None:
    scales = [1024.0] * 40 + [1024.0 / 2**step for step in range(1, 9)]
    seen = judge(LossScaleCollapse(), rows(48, amp__scale=scales))
    assert (seen[0][0], seen[0][1].severity) == (43, Severity.INFO)
    assert alarms(seen)[0][0] == 47


def test_halving_now_and_then_with_recovery_is_healthy() -> None:
    scales = ([1024.0] * 150 + [512.0] * 150) * 4
    assert not judge(LossScaleCollapse(), rows(1200, amp__scale=scales))


def test_it_abstains_without_a_scaler() -> None:
    assert not judge(LossScaleCollapse(), rows(20, loss=1.0))
