"""LOS010 statistical-anomaly."""

from sonde.core.findings import Severity
from sonde.rules.losses.statistical_anomaly import StatisticalAnomaly

from ..traces import flat, judge, rows, worst


def test_a_lasting_shift_is_information_soon_after() -> None:
    losses = [*flat(300, 1.0), *flat(100, 1.4, seed=1)]
    seen = judge(StatisticalAnomaly(), rows(400, loss=losses, grad__norm=flat(400, seed=2)))
    assert worst(seen) is Severity.INFO
    assert 300 < seen[0][0] < 320
    assert seen[0][1].evidence[0].tag == "loss"


def test_noise_and_a_single_outlier_are_not() -> None:
    losses = flat(1500, noise=0.1)
    losses[700] = 50.0
    assert judge(StatisticalAnomaly(), rows(1500, loss=losses, grad__norm=flat(1500, seed=2))) == []
