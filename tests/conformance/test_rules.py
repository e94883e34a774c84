"""Every rule of the catalogue keeps the house's promises."""

from pathlib import Path

import numpy as np
import pytest

from sonde.core.frames import Columns, Frame
from sonde.diagnosis.doctor import Doctor
from sonde.rules.catalogue import own_rules
from sonde.rules.rule import Rule, causes_of
from sonde.rules.systems.watching_problem import WatchingProblem
from sonde.testing import RuleSuite
from sonde.testing.rule_suite import sightings_of

CODES = [rule.code for rule in own_rules()]


def test_codes_and_names_are_unique_and_in_order() -> None:
    assert sorted(set(CODES)) == CODES
    assert len({rule.name for rule in own_rules()}) == len(own_rules())


class TestOwnRules(RuleSuite):
    @pytest.fixture(params=own_rules(), ids=CODES)
    def rule(self, request: pytest.FixtureRequest) -> type[Rule]:
        return request.param  # type: ignore[no-any-return]


@pytest.mark.parametrize("rule", own_rules(), ids=CODES)
def test_a_rule_speaks_for_causes(rule: type[Rule]) -> None:
    assert causes_of(rule) or rule is WatchingProblem, "which is about Sonde itself"


@pytest.mark.parametrize("rule", own_rules(), ids=CODES)
def test_a_rule_is_tested(rule: type[Rule]) -> None:
    module = rule.__module__.removeprefix("sonde.rules.").split(".")
    folder = Path(__file__).parents[1] / "rules" / module[0]
    assert any(rule.__name__ in test.read_text(encoding="utf-8") for test in folder.glob("test_*.py")), rule.code


@pytest.mark.parametrize("rule", own_rules(), ids=CODES)
def test_infinite_measurements_are_no_reason_to_fail(rule: type[Rule]) -> None:
    """Of every series that the rule needs; once, then at two steps in a row, then at more, since some rules wait."""
    tags = tuple(f"{need}a.weight" if need.endswith("@") else need for need in rule.needs) or ("loss",)
    columns, random = Columns("step", tags), np.random.default_rng(0)
    values = random.uniform(1, 2, (150, len(tags))).astype(np.float32)
    frames = [
        Frame(columns, step, 0.0, np.full_like(row, np.inf) if step % 30 < step // 30 else row)
        for step, row in enumerate(values, 1)
    ]
    with np.errstate(all="ignore"):
        sightings_of(rule(), frames)


def _rows(losses: list[float]) -> list[Frame]:
    columns = Columns("step", ("loss", "lr", "grad/norm"))
    return [Frame(columns, i, 0.0, np.array([x, 0.1, 1.0], np.float32)) for i, x in enumerate(losses, 1)]


def test_a_plain_descent_with_noise_raises_no_alarm() -> None:
    noise = np.random.default_rng(0).normal(0, 0.03, 1000)
    losses = (0.2 + 2 / (1 + np.arange(1000) / 60)) * (1 + noise)
    doctor = Doctor()
    for frame in _rows([float(loss) for loss in losses]):
        doctor.frame(frame)
    assert not [finding for finding in doctor.diagnosis("run") if finding.severity.is_alarm]


def test_a_loss_that_is_no_longer_finite_is_critical_at_once() -> None:
    doctor = Doctor()
    found = [f for frame in _rows([1.0] * 50 + [float("nan")] + [1.0]) for f in doctor.frame(frame)]
    critical = [finding for finding in found if finding.severity == "critical"]
    assert critical
    assert critical[0].first_step == 51
