from sonde.core.findings import Severity
from sonde.rules.attention.output_logits_drift import OutputLogitsDrift

from ..traces import alarms, falling, flat, judge, rows


def run(losses: list[float], values: list[float]) -> list[dict[str, float]]:
    table = rows(len(losses), loss=losses, grad__norm=[1.0 + 0.02 * step for step in range(len(losses))])
    for row, value in zip(table[:: len(losses) // len(values)], values, strict=True):
        row["logits/log_z"] = value
    return table


def test_a_drift_is_information_at_the_third_look_while_the_loss_falls() -> None:
    seen = judge(OutputLogitsDrift(), run(falling(200), [3.5, 8.0, 16.0, 30.0]))
    assert (seen[0][0], seen[0][1].severity) == (101, Severity.INFO)
    assert not alarms(seen)


def test_it_is_a_warning_where_the_loss_stalls_between_two_looks() -> None:
    seen = alarms(
        judge(OutputLogitsDrift(), run([*falling(230), *flat(170, 0.4, noise=0.01)], [3.5, -8.0, -16.0, -9.0]))
    )
    assert 201 < seen[0][0] < 301


def test_a_classifier_that_becomes_sure_is_no_alarm() -> None:
    table = run([*falling(230), *flat(170, 0.4, noise=0.01)], [1.6, 6.0, 12.0, 15.0])
    calm = [{**row, "grad/norm": 1.0} for row in table]
    assert not alarms(judge(OutputLogitsDrift(), calm))


def test_log_z_of_a_large_vocabulary_that_stays_is_healthy() -> None:
    assert not judge(OutputLogitsDrift(), rows(10, logits__log_z=[11.0, 12.0, 11.5, 12.5, 12.0] * 2))
    assert not judge(OutputLogitsDrift(), rows(10, logits__log_z=float("nan")))
    assert not judge(OutputLogitsDrift(), rows(10, loss=1.0))


def test_a_first_log_z_that_is_one_large_logit_is_no_sign_of_many_outputs() -> None:
    table = run([*falling(230), *flat(170, 0.4, noise=0.01)], [3.6, 8.0, 16.0, 30.0])
    assert alarms(judge(OutputLogitsDrift(), [table[0] | {"logits/absmax": 2.4}, *table[1:]]))
    assert not judge(OutputLogitsDrift(), [table[0] | {"logits/absmax": 10.3}, *table[1:]])


def test_a_steady_drift_counts_as_having_gone_on_where_looks_are_far_apart() -> None:
    losses = [*falling(230), *flat(170, 0.4, noise=0.01)]
    looks = {1: 3.5, 26: 4.4, 51: 5.3, 76: 6.2, 130: 8.6}
    table = rows(400, loss=losses, grad__norm=[1.0 + 0.02 * step for step in range(400)])
    for last, is_alarm in ((8.6, True), (6.4, False)):
        at = {**looks, 130: last}
        looked = [row | ({"logits/log_z": at[step]} if step in at else {}) for step, row in enumerate(table, 1)]
        assert bool(alarms(judge(OutputLogitsDrift(), looked))) == is_alarm
