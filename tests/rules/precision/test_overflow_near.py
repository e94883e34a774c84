from sonde.core.findings import Severity
from sonde.rules.precision.overflow_near import OverflowNear
from sonde.rules.step_view import Fact

from ..traces import judge, rows


def test_little_headroom_is_information_once_and_a_warning_twice() -> None:
    seen = judge(OverflowNear(), rows(2, act__headroom_at_pool=0.5))
    assert [sighting.severity for _, sighting in seen] == [Severity.INFO, Severity.WARNING]


def test_with_skipped_steps_one_look_is_enough() -> None:
    skipped = {1: [Fact("skipped-step", {"total": total}) for total in (1, 2, 3)]}
    ((_, sighting),) = judge(OverflowNear(), rows(1, act__headroom_at_pool=1.0), facts=skipped)
    assert sighting.severity is Severity.WARNING


def test_ample_or_unknown_headroom_says_nothing() -> None:
    assert not judge(OverflowNear(), rows(5, act__headroom_at_pool=12.0))
    assert not judge(OverflowNear(), rows(5, act__headroom_at_pool=float("nan")))
    assert not judge(OverflowNear(), rows(5, loss=1.0))


def test_headroom_that_will_be_gone_by_the_next_look_is_a_warning_before_it_is() -> None:
    ((step, sighting),) = judge(OverflowNear(), rows(3, act__headroom_at_pool=[12.0, 9.0, 3.0]))
    assert (step, sighting.severity) == (3, Severity.WARNING)
    assert not judge(OverflowNear(), rows(3, act__headroom_at_pool=[12.0, 5.0, 3.0]))
    assert not judge(OverflowNear(), rows(3, act__headroom_at_pool=[100.0, 20.0, 9.0]))
