from sonde.core.findings import Severity
from sonde.rules.attention.attention_entropy_collapses import AttentionEntropyCollapses

from ..traces import alarms, falling, flat, judge, rows, worst


def run(losses: list[float], values: list[float]) -> list[dict[str, float]]:
    table = rows(len(losses), loss=losses)
    for row, value in zip(table[:: len(losses) // len(values)], values, strict=True):
        row["attn/entropy_relative@attn"] = value
    return table


def test_two_looks_at_a_collapsed_module_are_a_warning_where_the_loss_is_stuck() -> None:
    seen = alarms(judge(AttentionEntropyCollapses(), run(flat(200, noise=0.01), [0.8, 0.05, 0.04, 0.03])))
    assert seen[0][0] == 101


def test_they_are_information_while_the_loss_falls() -> None:
    seen = judge(AttentionEntropyCollapses(), run(falling(200), [0.8, 0.05, 0.04, 0.03]))
    assert worst(seen) is Severity.INFO


def test_heads_that_specialise_are_healthy_and_nan_is_left_out() -> None:
    assert not judge(AttentionEntropyCollapses(), run(flat(200), [0.9, 0.6, 0.4, 0.3]))
    assert not judge(AttentionEntropyCollapses(), run(flat(200), [float("nan")] * 4))


def test_it_is_dated_by_the_first_look_that_saw_it() -> None:
    seen = judge(AttentionEntropyCollapses(), run(falling(200), [0.8, 0.05, 0.04, 0.03]))
    assert {sighting.since for _, sighting in seen} == {51}
