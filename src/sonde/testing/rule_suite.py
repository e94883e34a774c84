"""The tests that every rule has to pass."""

import dataclasses
import inspect
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sonde.core.findings import Finding
from sonde.core.frames import Columns, Frame
from sonde.diagnosis.doctor import Doctor
from sonde.diagnosis.replay import replay
from sonde.rules.catalogue import own_rules
from sonde.rules.configuring import configured
from sonde.rules.history.run_summary import RunSummaries
from sonde.rules.rule import HEADINGS, Look, Rule, Sighting, claims_of, reads_of
from sonde.rules.shape import check
from sonde.rules.step_view import StepViews
from sonde.rules.tiers import bare
from sonde.signals import states

_NUM_STEPS = 300


class RuleSuite:
    """Inherit from it, override the fixture `rule`, and pytest runs the tests; override `rows` so that the rule speaks.

    Example:
        ```python
        class TestAccuracyFalls(RuleSuite):
            @pytest.fixture
            def rule(self):
                return AccuracyFalls

            @pytest.fixture
            def rows(self, rule):
                columns = Columns("step", ("val/accuracy",))
                values = [0.9] * 10 + [0.1] * 10
                return [Frame(columns, i, 0.0, np.array([x], np.float32)) for i, x in enumerate(values)]
        ```
    """

    @pytest.fixture
    def rule(self) -> type[Rule]:
        """The class of the rule."""
        raise NotImplementedError("override the fixture `rule` to return the class of your rule.")

    @pytest.fixture
    def rows(self, rule: type[Rule]) -> Sequence[Frame]:
        """Rows in which the rule sees its condition; of its series, and at random, unless it is overridden."""
        return _rows(rule.needs or ("loss",), 60, bad=0.01)

    def test_it_can_be_applied(self, rule: type[Rule]) -> None:
        assert check(rule)

    def test_its_manual_page_has_every_heading_in_order(self, rule: type[Rule]) -> None:
        page = inspect.getdoc(rule) or ""
        places = [page.find(f"{heading}:") for heading in HEADINGS]
        missing = [heading for heading, place in zip(HEADINGS, places, strict=True) if place < 0]
        assert not missing, f"the docstring lacks {', '.join(missing)}"
        assert places == sorted(places), f"the headings stand in another order than {', '.join(HEADINGS)}"
        assert page.partition("\n")[0].endswith("."), "the docstring begins with one sentence"

    def test_it_says_nothing_twice_of_a_cause(self, rule: type[Rule]) -> None:
        said = [(cause, claim.when) for cause, claim in claims_of(rule)]
        assert len(set(said)) == len(said)

    def test_every_setting_has_a_default_and_can_be_set_by_name(self, rule: type[Rule]) -> None:
        fields: Any = dataclasses.fields(rule)  # type: ignore[arg-type]  # rules are dataclasses
        given = {f"{rule.code}.{field.name}": getattr(rule(), field.name) for field in fields}
        assert [bare(one) for one in configured(given, kinds=(rule,))] == [rule()]
        assert rule.__dataclass_params__.frozen, "declare it with @dataclass(frozen=True, kw_only=True)"  # type: ignore[attr-defined]

    def test_nothing_is_remembered_but_the_state(self, rule: type[Rule], rows: Sequence[Frame]) -> None:
        asked = rule()
        state = asked.init()
        for look in looks(rows):
            before = _plain(state)
            new, sightings = asked.step(state, look)
            assert _plain(state) == before, "the old state was changed: give back a new one"
            other, others = rule().step(states.load(json.loads(before), rule().init()), look)
            assert _plain(other) == _plain(new), "another object with the same state goes on otherwise"
            assert repr(others) == repr(sightings)
            state = new

    def test_it_abstains_where_its_series_were_not_measured(self, rule: type[Rule]) -> None:
        doctor = Doctor([rule()])
        columns = Columns("other", ("something/else",))
        for step in range(_NUM_STEPS):
            assert not doctor.frame(Frame(columns, step, 0.0, np.array([step], np.float32)))
        assert doctor.diagnosis("run").not_measured == ()

    def test_it_takes_no_notice_of_steps_without_what_it_reads(self, rule: type[Rule], rows: Sequence[Frame]) -> None:
        asked, reads = rule(), reads_of(rule)
        others = sorted({need for kind in own_rules() for need in kind.needs} - {*reads, *rule.needs})
        later = [replace(frame, step=frame.step + rows[-1].step) for frame in _rows(others, 100)]
        state, seen, waits = asked.init(), -rule.quiet_steps, getattr(asked, "waits", lambda state: False)
        for look in looks([*rows, *later] if "" not in reads else []):
            brought = any(read.strip("@") in {*look.view.tags(), *look.view.paths()} for read in reads)
            is_open = look.view.step - seen <= rule.quiet_steps
            new, sightings = asked.step(state, look)
            if not (brought or is_open or waits(state)):
                assert _plain(new) == _plain(state), "it would not have been asked"
                assert not sightings
            state, seen = new, look.view.step if sightings else seen

    def test_a_message_is_one_sentence_without_full_stop(self, rule: type[Rule], rows: Sequence[Frame]) -> None:
        for sighting in sightings_of(rule(), rows):
            message = sighting.message
            assert message == message.strip() != ""
            assert "\n" not in message
            assert not message.endswith((".", "!")), message
            assert ". " not in message, message

    def test_a_replay_finds_what_was_found_while_the_run_went_on(self, rule: type[Rule], rows: Sequence[Frame]) -> None:
        live, found = Doctor([rule()]), list[Finding]()
        for place, frame in enumerate(rows):
            found += live.frame(frame)
            if place == len(rows) // 2:  # from a checkpoint
                kept = json.loads(json.dumps(live.state_dict()))
                live = Doctor([rule()])
                live.load_state_dict(kept)
        found += live.settle()
        tables = [[frame for frame in rows if frame.columns.table == name] for name in _tables(rows)]
        told: list[Finding] = []
        diagnosis = replay("run", map(iter, tables), (), rules=[rule()], on_finding=told.append)
        assert [finding.to_json() for finding in told] == [finding.to_json() for finding in found]
        assert diagnosis.to_json() == live.diagnosis("run").to_json()
        assert not diagnosis.not_measured, "it failed"


def _rows(needs: Sequence[str], num: int, *, bad: float = 0.0) -> list[Frame]:
    """Rows of the series that are needed, with values at random, of which this share is NaN."""
    random = np.random.default_rng(0)
    several = ((f"{need}a.weight", f"{need}b.weight") if need.endswith("@") else (need,) for need in needs)
    columns = Columns("step", tuple(tag for tags in several for tag in tags))
    values = np.exp(random.normal(0, 2, (num, columns.width))).astype(np.float32)
    values[random.random(values.shape) < bad] = np.nan
    return [Frame(columns, step, 0.0, row) for step, row in enumerate(values, 1)]


def looks(rows: Sequence[Frame]) -> Iterator[Look]:
    """What a rule is shown of rows, a step at a time."""
    views, runs = StepViews(), RunSummaries()
    state = runs.init()
    for step in sorted({frame.step for frame in rows}):
        view = views.take(step, [frame for frame in rows if frame.step == step], ())
        state, run = runs.step(state, view)
        yield Look(view, views, run)


def sightings_of(rule: Rule, rows: Sequence[Frame]) -> list[Sighting]:
    """All that a rule sees in rows."""
    state, found = rule.init(), list[Sighting]()
    for look in looks(rows):
        state, seen = rule.step(state, look)
        found += seen
    return found


def _tables(rows: Sequence[Frame]) -> Sequence[str]:
    return tuple(dict.fromkeys(frame.columns.table for frame in rows))


def _plain(state: Any) -> str:
    return json.dumps(states.dump(state))
