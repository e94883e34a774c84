"""Tiers: a preview rule informs, a stable one alarms, and the user has the last word."""

from collections.abc import Mapping

import numpy as np
import pytest

from sonde.core.findings import Severity
from sonde.core.frames import Columns, Frame
from sonde.diagnosis.across import compared
from sonde.diagnosis.doctor import Doctor
from sonde.rules.alarm_precision import PRECISION
from sonde.rules.catalogue import own_rules
from sonde.rules.configuring import configured, departures
from sonde.rules.gradients.gain_drift import GainDrift
from sonde.rules.losses.non_finite_loss import NonFiniteLoss
from sonde.rules.ranks.straggler import Straggler
from sonde.rules.tiers import Tier, bare, informing, tier_of

COLUMNS = Columns("step", ("loss",))


def findings(settings: Mapping[str, object]) -> list[tuple[str, Severity]]:
    doctor = Doctor(configured(settings, kinds=(NonFiniteLoss,)))
    for step, loss in enumerate([1.0, 0.9, float("nan"), float("nan")], 1):
        doctor.frame(Frame(COLUMNS, step, 0.0, np.array([loss], np.float32)))
    return [(finding.code, finding.severity) for finding in doctor.diagnosis("run")]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[int, int]]:
    """The generated table, to be filled."""
    table: dict[str, tuple[int, int]] = {}
    monkeypatch.setattr("sonde.rules.tiers.PRECISION", table)
    return table


def test_the_generated_table_is_of_rules_that_exist() -> None:
    assert set(PRECISION) <= {rule.code for rule in own_rules()}
    assert all(0 <= right <= num for right, num in PRECISION.values())


@pytest.mark.parametrize(
    ("right", "num", "tier"),
    [(0, 0, "stable"), (0, 19, "stable"), (17, 20, "preview"), (18, 20, "stable"), (89, 100, "preview")],
)
def test_enough_alarms_of_which_too_few_are_right_make_a_rule_preview(
    measured: dict[str, tuple[int, int]], right: int, num: int, tier: str
) -> None:
    measured["LOS001"] = (right, num)
    assert tier_of(NonFiniteLoss) == tier
    severity = {"stable": Severity.CRITICAL, "preview": Severity.INFO}[tier]
    assert findings({}) == [("LOS001", severity)]


def test_the_users_tier_goes_before_the_measured_one(measured: dict[str, tuple[int, int]]) -> None:
    assert findings({"non-finite-loss.tier": "preview"}) == [("LOS001", Severity.INFO)]
    measured["LOS001"] = (1, 100)
    assert findings({"LOS001.tier": "stable"}) == [("LOS001", Severity.CRITICAL)]
    assert departures({"LOS001.tier": "stable"}) == ((), {"LOS001.tier": "stable"})
    assert departures({"LOS001.tier": "preview"}) == ((), {})


def test_a_rules_class_may_say_that_it_is_preview_until_enough_is_measured(
    measured: dict[str, tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NonFiniteLoss, "tier", Tier.PREVIEW, raising=False)
    assert findings({}) == [("LOS001", Severity.INFO)]
    measured["LOS001"] = (20, 20)
    assert findings({}) == [("LOS001", Severity.CRITICAL)]


@pytest.mark.parametrize("value", ["beta", 3, True, None])
def test_a_tier_that_is_none_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r'`LOS001.tier` must be "stable" or "preview", got'):
        configured({"LOS001.tier": value})


def test_a_preview_rule_is_the_same_rule_in_all_else() -> None:
    rule = informing(GainDrift(window=4))
    assert bare(rule) == GainDrift(window=4)
    assert bare(bare(rule)) is bare(rule)
    assert (rule.code, rule.name, rule.needs, rule.quiet_steps) == (
        GainDrift.code,
        GainDrift.name,
        GainDrift.needs,
        GainDrift.quiet_steps,
    )
    rules, across = compared([informing(Straggler())])
    assert [rule.code for rule in rules] == [Straggler.code]
    assert len(across) == 1, "it is told about the other ranks all the same"
