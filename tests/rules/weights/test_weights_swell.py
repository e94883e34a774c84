"""WGT006 weights-swell."""

from sonde.core.findings import Severity
from sonde.rules.weights.weights_swell import WeightsSwell

from ..traces import falling, flat, judge, rows, worst


def _weights(num: int, ends: dict[str, float], *, by: int = 40) -> dict[str, list[float | None]]:
    """RMS of parameters at every tenth step, each growing in a line to its end at step `by` and constant then."""
    return {
        f"weight__rms_at_{name}": [None if i % 10 else 0.1 * (1 + (end - 1) * min(1.0, i / by)) for i in range(num)]
        for name, end in ends.items()
    }


_SWOLLEN = {"0.weight": 4.0, "2.weight": 3.5, "4.weight": 1.5}


def test_matrices_that_treble_in_the_first_steps_of_a_lost_run_are_a_warning() -> None:
    losses = [2.0 + 0.1 * i for i in range(120)]
    seen = judge(WeightsSwell(), rows(120, loss=losses, **_weights(120, _SWOLLEN)))
    assert worst(seen) is Severity.WARNING
    assert seen[0][0] == 41
    assert seen[0][1].since == 1
    assert seen[0][1].where == ("0.weight",)


def test_a_loss_that_falls_makes_it_information() -> None:
    assert worst(judge(WeightsSwell(), rows(120, loss=falling(120), **_weights(120, _SWOLLEN)))) is Severity.INFO


def test_slow_growth_single_matrices_and_a_minority_of_matrices_say_nothing() -> None:
    slow = _weights(300, _SWOLLEN, by=300)
    alone = _weights(300, {"0.weight": 9.0})
    few = _weights(300, {"0.weight": 9.0, "2.weight": 1.2, "4.weight": 1.1})
    biases = _weights(300, {"0.bias": 9.0, "2.bias": 9.0, "0.weight": 1.0, "2.weight": 1.0})
    for weights in (slow, alone, few, biases):
        assert judge(WeightsSwell(), rows(300, loss=flat(300), **weights)) == []


def test_missing_and_non_finite_weights_are_passed_over() -> None:
    assert judge(WeightsSwell(), rows(100, loss=flat(100))) == []
    broken = _weights(100, _SWOLLEN) | {"weight__rms_at_0.weight": [float("nan")] * 100}
    assert judge(WeightsSwell(), rows(100, loss=flat(100), **broken)) == []


def test_tables_that_start_at_zero_say_nothing() -> None:
    table = rows(120, loss=flat(120), **_weights(120, {"u.weight": 1.5, "i.weight": 1.5}))
    for i, row in enumerate(table):
        if i % 10 == 0:
            row |= {"weight/rms@bu.weight": 1e-4 * (1 + i), "weight/rms@bi.weight": 1e-4 * (1 + i)}
    assert judge(WeightsSwell(), table) == []
