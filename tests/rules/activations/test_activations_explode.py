from sonde.core.findings import Severity
from sonde.rules.activations.activations_explode import ActivationsExplode

from ..traces import alarms, falling, flat, judge, rows, worst


def run(losses: list[float], **looks: float) -> list[dict[str, float]]:
    table = rows(len(losses), loss=losses)
    for look, row in enumerate(table[::20]):
        row["act/absmax@block"] = 2.0**look
        row |= {tag.replace("__", "/") + "@block": value - look for tag, value in looks.items()}
    return table


def test_doubling_at_every_look_with_little_headroom_is_a_warning_with_the_steps_left() -> None:
    seen = alarms(judge(ActivationsExplode(), run(falling(200), act__headroom=16.0)))
    assert seen[0][0] == 101
    assert "overflows in about 220 steps" in seen[0][1].message


def test_without_a_known_format_it_is_information_while_the_loss_falls() -> None:
    assert worst(judge(ActivationsExplode(), run(falling(200)))) is Severity.INFO


def test_a_loss_that_is_stuck_makes_it_a_warning() -> None:
    assert alarms(judge(ActivationsExplode(), run(flat(200, noise=0.01))))[0][0] == 101


def test_activations_that_stay_say_nothing() -> None:
    table = [row | {"act/absmax@block": value} for row, value in zip(rows(60, loss=flat(60)), flat(60), strict=True)]
    assert not judge(ActivationsExplode(), table)
    assert not judge(ActivationsExplode(), rows(20, loss=1.0))
