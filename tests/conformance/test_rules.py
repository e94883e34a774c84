"""Every rule of the catalogue keeps the house's promises."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

from sonde.core.frames import Columns, Frame
from sonde.diagnosis.doctor import Doctor, is_idle_without
from sonde.rules.catalogue import all_rules
from sonde.rules.picture import Pictures
from sonde.rules.rule import HEADINGS, Look, Rule, causes_of, claims_of
from sonde.rules.scene import Scenes

CODES = [rule.code for rule in all_rules()]


def test_codes_and_names_are_unique_and_in_order() -> None:
    assert sorted(set(CODES)) == CODES
    assert len({rule.name for rule in all_rules()}) == len(all_rules())


@pytest.mark.parametrize("rule", all_rules(), ids=CODES)
def test_a_rule_has_its_manual_page_its_needs_and_its_causes(rule: type[Rule]) -> None:
    page = inspect.getdoc(rule) or ""
    places = [page.find(f"{heading}:") for heading in HEADINGS]
    assert -1 not in places
    assert places == sorted(places)
    assert re.fullmatch(r"[A-Z]{3}[0-9]{3}", rule.code)
    assert all(tag and not tag.endswith("/") for tag in rule.needs), "none where it lives on facts alone"
    assert causes_of(rule) or rule.code == "SYS006", "which is about Sonde itself"
    assert rule.quiet_steps > 0


@pytest.mark.parametrize("rule", all_rules(), ids=CODES)
def test_a_rule_is_tested(rule: type[Rule]) -> None:
    module = rule.__module__.removeprefix("sonde.rules.").split(".")
    folder = Path(__file__).parents[1] / "rules" / module[0]
    assert any(rule.__name__ in test.read_text(encoding="utf-8") for test in folder.glob("test_*.py")), rule.code


@pytest.mark.parametrize("rule", all_rules(), ids=CODES)
def test_a_rule_says_nothing_twice_of_a_cause(rule: type[Rule]) -> None:
    said = [(cause, claim.when) for cause, claim in claims_of(rule)]
    assert len(set(said)) == len(said)


def _rows(losses: list[float]) -> list[Frame]:
    columns = Columns("step", ("loss", "lr", "grad/norm"))
    return [Frame(columns, i, 0.0, np.array([x, 0.1, 1.0], np.float32)) for i, x in enumerate(losses, 1)]


@pytest.mark.parametrize("rule", all_rules(), ids=CODES)
def test_a_rule_says_nothing_where_its_series_were_not_measured(rule: type[Rule]) -> None:
    doctor = Doctor([rule()])
    columns = Columns("other", ("something/else",))
    for step in range(1, 300):
        assert not doctor.frame(Frame(columns, step, 0.0, np.array([float(step)], np.float32)))


@pytest.mark.parametrize("rule", all_rules(), ids=CODES)
def test_a_rule_that_takes_no_notice_of_a_step_takes_none_until_its_series_come(rule: type[Rule]) -> None:
    others = {need for kind in all_rules() for need in kind.needs} - set(rule.needs)
    tags = sorted(f"{need}a.weight" if need.endswith("@") else need for need in others)
    columns, random = Columns("step", tags), np.random.default_rng(0)
    asked, scenes, pictures = rule(), Scenes(), Pictures()
    state, picture_state, is_idle = asked.init(), pictures.init(), False
    for step in range(1, 200 if is_idle_without(asked, set(rule.needs)) else 1):
        scene = scenes.take(step, [Frame(columns, step, 0.0, random.random(len(tags)).astype(np.float32))], ())
        picture_state, picture = pictures.step(picture_state, scene)
        new, sightings = asked.step(state, Look(scene, scenes, picture))
        assert not is_idle or (new is state and not sightings)
        state, is_idle = new, new is state and not sightings


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
