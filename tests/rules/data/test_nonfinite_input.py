import math

from tests.rules.traces import judge, rows

from sonde.core.findings import Severity
from sonde.rules.data.nonfinite_input import NonfiniteInput
from sonde.rules.step_view import Fact


def test_the_step_and_the_input_are_named() -> None:
    table = rows(20, loss=1.0)
    table[6]["batch/nonfinite@image"] = 3.0
    table[7]["batch/nonfinite@image"] = 0.0
    seen = judge(NonfiniteInput(), table)
    assert [step for step, _ in seen] == [7]
    assert seen[0][1].severity is Severity.CRITICAL
    assert seen[0][1].where == ("image",)
    assert "step 7" in seen[0][1].message


def test_targets_and_preflight_count_too() -> None:
    table = rows(20, loss=1.0)
    table[2]["label/nonfinite"] = 1.0
    assert judge(NonfiniteInput(), table)[0][1].where == ("targets",)
    fact = Fact("preflight", {"check": "nonfinite-input", "where": [], "value": 1, "line": "train.py:3"})
    seen = judge(NonfiniteInput(), rows(20, loss=1.0), facts={5: [fact]})
    assert [step for step, _ in seen] == [5]
    assert "train.py:3" in seen[0][1].message


def test_a_loss_that_is_not_finite_says_nothing_of_the_input() -> None:
    assert judge(NonfiniteInput(), rows(20, loss=float("nan"))) == []


def test_a_count_that_overflowed_still_tells_of_the_batch() -> None:
    table = rows(3, loss=1.0)
    table[1]["batch/nonfinite@image"] = math.inf
    ((step, sighting),) = judge(NonfiniteInput(), table)
    assert (step, sighting.severity) == (2, Severity.CRITICAL)
    assert "an unknown number of NaN or infinite values in input `image`" in sighting.message
