from sonde.core.findings import Severity
from sonde.rules.attention.attention_logits_grow import AttentionLogitsGrow

from ..traces import alarms, falling, judge, rows, worst


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
