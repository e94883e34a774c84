"""WGT003 weight-norms-diverge."""

from sonde.core.findings import Severity
from sonde.rules.weights.weight_norms_diverge import WeightNormsDiverge

from ..traces import falling, flat, judge, rows, worst


def _rows(losses: list[float], growth: float) -> list[dict[str, float]]:
    grown = [0.1 * growth**i for i in range(150)]
    return rows(150, loss=losses, weight__rms_at_a=0.1, weight__rms_at_b=grown)


def test_weights_that_grow_apart_are_information_and_a_warning_where_impaired() -> None:
    assert worst(judge(WeightNormsDiverge(), _rows([2 * 0.97**i for i in range(150)], 1.06))) is Severity.INFO
    assert worst(judge(WeightNormsDiverge(), _rows(flat(150), 1.06))) is Severity.WARNING


def test_a_condition_number_that_blows_up_is_named() -> None:
    given = rows(3, loss=falling(3), spectrum__condition_at_m=[50.0, 60.0, 1e8])
    seen = judge(WeightNormsDiverge(), given)
    assert [(step, sighting.where) for step, sighting in seen] == [(3, ("m",))]


def test_a_spread_that_was_there_from_the_start_is_silent() -> None:
    given = rows(50, loss=falling(50), weight__rms_at_a=1e-5, weight__rms_at_b=1.0)
    assert judge(WeightNormsDiverge(), given) == []
