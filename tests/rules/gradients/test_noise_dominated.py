from sonde.core.findings import Severity
from sonde.rules.gradients.noise_dominated import NoiseDominated

from ..traces import alarms, flat, judge, rows, worst


def bouncing(num: int, noise: float) -> list[float]:
    return [*flat(50, 2.0, noise=noise), *flat(num - 50, 1.0, noise=noise, seed=1)]


def test_noise_that_limits_progress_at_a_constant_rate_is_a_warning() -> None:
    table = rows(500, loss=bouncing(500, 0.5), lr=0.1, grad__cosine=0.01, batch__size=4.0)
    seen = alarms(judge(NoiseDominated(), table))
    assert 200 < seen[0][0] < 400


def test_it_is_information_where_the_loss_is_quiet_or_the_batch_large() -> None:
    quiet = rows(500, loss=bouncing(500, 0.02), lr=0.1, grad__cosine=0.01)
    large = rows(500, loss=bouncing(500, 0.5), lr=0.1, grad__cosine=0.01, batch__size=256.0)
    assert worst(judge(NoiseDominated(), quiet)) is Severity.INFO
    assert worst(judge(NoiseDominated(), large)) is Severity.INFO


def test_gradients_that_agree_say_nothing() -> None:
    assert not judge(NoiseDominated(), rows(300, loss=bouncing(300, 0.5), lr=0.1, grad__cosine=0.4))


def test_it_abstains_without_cosines() -> None:
    assert not judge(NoiseDominated(), rows(300, loss=bouncing(300, 0.5), lr=0.1))
