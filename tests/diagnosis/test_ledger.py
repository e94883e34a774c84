"""The life of a finding."""

from sonde.core.findings import Evidence, Severity
from sonde.diagnosis.ledger import Ledger
from sonde.rules.losses.loss_spike import LossSpike
from sonde.rules.rule import Sighting

WARNING = Sighting(Severity.WARNING, "it is high", where=("a",))
CRITICAL = Sighting(Severity.CRITICAL, "it is very high", where=("b",))


def test_a_finding_is_opened_once_updated_and_closed() -> None:
    ledger, rule = Ledger(), LossSpike()
    opened = ledger.take(rule, 10, [WARNING])
    assert opened is not None
    assert (opened.first_step, opened.open) == (10, True)
    assert ledger.take(rule, 11, [WARNING]) is None
    for step in range(12, 13 + rule.quiet_steps):
        assert ledger.take(rule, step, []) is None
    assert len(ledger.open) == 0
    (finding,) = ledger.findings
    assert (finding.first_step, finding.last_step, finding.open) == (10, 11, False)


def test_a_finding_that_gets_worse_is_told_again() -> None:
    ledger, rule = Ledger(), LossSpike()
    ledger.take(rule, 10, [WARNING])
    worse = ledger.take(rule, 12, [CRITICAL])
    assert worse is not None
    assert (worse.severity, worse.message, worse.where) == (Severity.CRITICAL, "it is very high", ("a", "b"))
    assert ledger.take(rule, 13, [WARNING]) is None
    assert ledger.findings[0].severity is Severity.CRITICAL


def test_a_finding_may_have_begun_earlier_than_it_was_sure() -> None:
    ledger = Ledger()
    opened = ledger.take(LossSpike(), 10, [WARNING._replace(since=4)])
    assert opened is not None
    assert opened.first_step == 4


def test_a_finding_that_is_merely_seen_again_is_dated_by_the_last_time() -> None:
    ledger, rule = Ledger(), LossSpike()
    seen = WARNING._replace(evidence=(Evidence(tag="loss", step=10, value=2.0),))
    ledger.take(rule, 10, [seen])
    assert ledger.take(rule, 20, [seen]) is None
    assert ledger.open[0].last_step == 20
    assert ledger.take(rule, 30, [seen]) is None
    for step in range(31, 32 + rule.quiet_steps):
        ledger.take(rule, step, [])
    (finding,) = ledger.findings
    assert (finding.first_step, finding.last_step, finding.open) == (10, 30, False)


def test_what_was_closed_is_told_once_and_what_was_closed_before_a_resumption_is_not() -> None:
    ledger, rule = Ledger(), LossSpike()
    ledger.take(rule, 10, [WARNING])
    assert ledger.newly_closed() == []
    for step in range(11, 12 + rule.quiet_steps):
        ledger.take(rule, step, [])
    (over,) = ledger.newly_closed()
    assert (over.first_step, over.open) == (10, False)
    assert ledger.newly_closed() == []
    resumed = Ledger()
    resumed.restore(ledger.findings)
    assert resumed.newly_closed() == []


def test_what_comes_and_goes_for_ever_leaves_few_findings_and_loses_neither_beginning_nor_worst() -> None:
    ledger, rule = Ledger(), LossSpike()
    told = 0
    for turn in range(50):
        step = 10 + turn * 1_000
        ledger.take(rule, step, [CRITICAL if turn == 3 else WARNING])
        ledger.take(rule, step + rule.quiet_steps + 1, [])
        told += len(ledger.newly_closed())
    findings = ledger.findings
    assert told == 50
    assert len(findings) < 10
    assert (findings[0].first_step, findings[0].severity, findings[0].where) == (10, Severity.CRITICAL, ("a", "b"))
    assert [finding.first_step for finding in findings[-2:]] == [48_010, 49_010]
    again = Ledger()
    again.restore(findings)
    assert again.findings == findings
