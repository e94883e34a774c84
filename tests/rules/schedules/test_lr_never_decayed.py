"""SCH003 lr-never-decayed."""

from sonde.core.findings import Severity
from sonde.rules.schedules.lr_never_decayed import LrNeverDecayed

from ..traces import falling, flat, judge, rows, worst


def test_a_constant_rate_on_a_plateau_is_information() -> None:
    losses = [*falling(100), *flat(200, 0.4)]
    seen = judge(LrNeverDecayed(), rows(300, loss=losses, lr=0.1))
    assert worst(seen) is Severity.INFO
    assert seen[0][0] >= 200


def test_a_decayed_rate_and_a_falling_loss_are_silent() -> None:
    losses = [*falling(100), *flat(200, 0.4)]
    assert judge(LrNeverDecayed(), rows(300, loss=losses, lr=[*[0.1] * 100, *[0.01] * 200])) == []
    assert judge(LrNeverDecayed(), rows(300, loss=[2 * 0.98**i for i in range(300)], lr=0.1)) == []
