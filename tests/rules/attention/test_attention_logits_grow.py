from sonde.core.findings import Severity
from sonde.rules.attention.attention_logits_grow import AttentionLogitsGrow

from ..traces import alarms, falling, flat, judge, rows, worst


def run(values: list[float]) -> list[dict[str, float]]:
    table = rows(20 * len(values), loss=falling(20 * len(values)))
    for row, value in zip(table[::20], values, strict=True):
        row["attn/logit_max@blocks.0.attn"] = value
    return table


def test_logits_past_the_limit_that_rise_on_are_information_and_past_the_high_one_a_warning() -> None:
    seen = judge(AttentionLogitsGrow(), run([5.0, 20.0, 60.0, 90.0, 150.0]))
    assert (seen[0][0], seen[0][1].severity) == (41, Severity.INFO)
    assert alarms(seen)[0][0] == 81


def test_sharp_heads_that_stay_are_healthy() -> None:
    assert not judge(AttentionLogitsGrow(), run([55.0, 54.0, 55.0, 54.0, 55.0, 54.0]))
    assert worst(judge(AttentionLogitsGrow(), run([120.0, 119.0, 118.0]))) is Severity.INFO


def test_it_abstains_without_attention() -> None:
    assert not judge(AttentionLogitsGrow(), rows(20, loss=1.0))


def two(first: float, second: float, losses: list[float]) -> list[dict[str, float]]:
    """A look at one module at the second step, and at another one fifty steps later."""
    table = rows(60, loss=losses)
    table[1]["attn/logit_max@blocks.0.attn"] = first
    table[51]["attn/logit_max@blocks.1.attn"] = second
    return table


def test_logits_far_above_those_of_another_module_at_the_start_are_a_warning_while_little_is_learned() -> None:
    seen = judge(AttentionLogitsGrow(), two(3.0, 85.0, flat(60)))
    assert [(step, sighting.severity) for step, sighting in seen] == [(52, Severity.WARNING)]
    assert worst(judge(AttentionLogitsGrow(), two(3.0, 85.0, falling(60, end=0.0)))) is Severity.INFO


def test_modules_that_are_all_sharp_at_their_first_look_are_a_warning_and_less_is_not() -> None:
    assert alarms(judge(AttentionLogitsGrow(), two(220.0, 190.0, flat(60))))[0][0] == 52
    assert not judge(AttentionLogitsGrow(), two(3.0, 29.0, flat(60)))
