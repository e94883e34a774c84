import pytest

from sonde.rules.history.targets import Targets
from sonde.rules.losses.initial_loss_high import InitialLossHigh
from sonde.rules.step_view import Fact

from ..traces import alarms, judge, rows


@pytest.mark.parametrize(
    ("kind", "classes", "distinct", "expected"),
    [
        ("", 0, 10, True),
        ("nll", 10, 10, True),
        ("nll", 0, 10, True),
        ("nll", 127, 10, False),
        ("mse", 0, 10, False),
        ("bce", 0, 10, False),
        ("bce-with-logits", 0, 2, True),
        ("mse", 0, 0, True),
    ],
)
def test_labels_are_those_of_the_loss_unless_its_kind_says_otherwise(
    kind: str, classes: int, distinct: int, expected: bool
) -> None:
    assert Targets(kind, classes, distinct).are_labels is expected


@pytest.mark.parametrize(("kind", "expected"), [("bce", 0), ("nll", 1)])
def test_a_loss_of_other_things_than_the_labels_is_not_compared_with_guessing_them(kind: str, expected: int) -> None:
    run = rows(200, loss=1500.0, label__entropy=2.27, label__num_distinct=10.0, batch__size=128.0)
    facts = {3: [Fact("preflight", {"check": "loss-kind", "value": kind, "classes": 10})]}
    assert len(alarms(judge(InitialLossHigh(), run, facts=facts))) == expected
