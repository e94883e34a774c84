"""The life of a finding."""

from sonde.core.findings import Severity
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
