from sonde.core.findings import Severity
from sonde.rules.gradients.gradient_spike import GradientSpike

from ..traces import alarms, falling, flat, judge, rows


def test_a_spike_alone_is_information_at_its_step() -> None:
    norms = [*flat(50), 20.0, *flat(20)]
    seen = judge(GradientSpike(), rows(71, loss=falling(71), grad__norm=norms))
    assert [(step, sighting.severity) for step, sighting in seen] == [(51, Severity.INFO)]


def test_it_is_a_warning_when_the_loss_follows_above_its_start_and_stays() -> None:
    norms = [*flat(50), 20.0, *flat(20)]
    losses = [*flat(52), *[9.0] * 4, *flat(15)]
    seen = alarms(judge(GradientSpike(), rows(71, loss=losses, grad__norm=norms)))
    assert [step for step, _ in seen] == [55, 56]
    assert seen[0][1].since == 51


def test_a_loss_that_jumps_but_stays_below_its_start_is_no_alarm() -> None:
    norms = [*flat(150), 20.0, *flat(20)]
    losses = falling(171)
    losses[151] = 1.0
    assert not alarms(judge(GradientSpike(), rows(171, loss=losses, grad__norm=norms)))


def test_it_abstains_below_twenty_norms_and_on_nan() -> None:
    assert not judge(GradientSpike(), rows(12, loss=1.0, grad__norm=[*flat(10), 50.0, float("nan")]))


def test_a_loss_that_comes_back_at_once_is_no_alarm() -> None:
    norms = [*flat(50), 20.0, *flat(20)]
    for away in (1, 2):
        losses = [*flat(52), *[9.0] * away, *flat(19 - away)]
        assert not alarms(judge(GradientSpike(), rows(71, loss=losses, grad__norm=norms)))


def test_a_loss_below_the_very_first_one_is_no_alarm() -> None:
    norms = [*flat(150), *[20.0] * 8, *flat(20)]
    losses = [1.2, 0.5, *flat(148, 0.25), *[0.6] * 8, *flat(20, 0.25)]
    assert not alarms(judge(GradientSpike(), rows(178, loss=losses, grad__norm=norms)))
