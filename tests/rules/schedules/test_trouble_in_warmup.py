"""SCH004 trouble-in-warmup."""

from sonde.core.findings import Severity
from sonde.rules.schedules.trouble_in_warmup import TroubleInWarmup

from ..traces import falling, flat, judge, rows, worst

_STALLED = [*falling(30, start=3.0, end=2.4, noise=0.01), *flat(170, 2.5, noise=0.01)]


def test_a_transformer_thrown_off_by_its_first_steps_is_a_warning() -> None:
    given = rows(200, loss=_STALLED, lr=0.01, update__ratio=0.07, adam__v_ratio_at_w=1.0, attn__entropy_at_a=0.1)
    seen = judge(TroubleInWarmup(), given)
    assert seen[0][1].severity is Severity.INFO
    assert worst(seen) is Severity.WARNING


def test_a_long_warmup_or_an_optimiser_without_moments_is_no_warning() -> None:
    warmup = [min(0.01, 1e-4 * (i + 1)) for i in range(200)]
    more = {"update__ratio": 0.07, "attn__entropy_at_a": 0.1}
    assert judge(TroubleInWarmup(), rows(200, loss=_STALLED, lr=warmup, adam__v_ratio_at_w=1.0, **more)) == []
    assert worst(judge(TroubleInWarmup(), rows(200, loss=_STALLED, lr=0.01, **more))) is Severity.INFO


def test_a_run_that_gets_on_is_information_and_calm_ones_silent() -> None:
    given = rows(200, loss=falling(200), lr=0.01, update__ratio=0.07, adam__v_ratio_at_w=1.0, attn__entropy_at_a=1.0)
    assert worst(judge(TroubleInWarmup(), given)) is Severity.INFO
    assert judge(TroubleInWarmup(), rows(200, loss=falling(200), lr=0.01, update__ratio=1e-3)) == []


def test_steps_too_small_to_throw_anything_are_not_to_blame() -> None:
    climbs = [*flat(8, 0.15, noise=0.01), *flat(192, 0.25, noise=0.01)]
    given = {"loss": climbs, "lr": 1e-5, "adam__v_ratio_at_w": 1.0}
    thrown = [1.0] * 8 + [3.0] * 192
    seen = judge(TroubleInWarmup(), rows(200, update__ratio=5e-3, weight__norm=thrown, **given))
    assert worst(seen) is Severity.WARNING
    calm = judge(TroubleInWarmup(), rows(200, update__ratio=5e-3, weight__norm=1.0, **given))
    assert worst(calm) is not Severity.WARNING
    assert worst(judge(TroubleInWarmup(), rows(200, update__ratio=4e-5, weight__norm=thrown, **given))) is Severity.INFO
