"""WGT010 weights-start-small."""

from sonde.core.findings import Severity
from sonde.rules.weights.weights_start_small import WeightsStartSmall

from ..traces import alarms, falling, flat, judge, worst
from .test_weights_start_large import begins, model


def test_tiny_weights_are_an_alarm_where_the_loss_does_not_fall() -> None:
    table = begins(0.01, 0.02, 0.6)
    later = [{"loss": loss} for loss in flat(60, noise=0.01)]
    seen = judge(WeightsStartSmall(), [*table, *later], model=model(3))
    assert seen[0][1].severity is Severity.INFO
    ((step, sighting),) = alarms(seen)
    assert step >= 40
    assert sighting.where == ("layers.0.weight", "layers.1.weight")


def test_they_are_information_where_it_falls() -> None:
    table = [{**row, "loss": loss} for row, loss in zip(begins(0.01, 0.02) * 3, falling(90), strict=True)]
    assert worst(judge(WeightsStartSmall(), table, model=model(2))) is Severity.INFO


def test_usual_weights_zeros_and_trained_ones_are_silent() -> None:
    for gains in ((0.58, 0.58), (0.11, 0.2), (0.0, 0.0), (0.01, 0.6, 0.6)):
        assert judge(WeightsStartSmall(), begins(*gains), model=model(len(gains))) == []
    assert judge(WeightsStartSmall(), begins(0.01, 0.01, reach=20.0), model=model(2)) == []
