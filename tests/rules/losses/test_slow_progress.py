"""LOS007 slow-progress."""

import numpy as np

from sonde.core.findings import Severity
from sonde.rules.losses.slow_progress import SlowProgress

from ..traces import falling, flat, judge, rows, worst


def _line(num: int, *, noise: float = 0.05) -> list[float]:
    return list(np.linspace(1.0, 0.8, num) * np.array(flat(num, noise=noise)))


def test_a_shallow_line_with_tiny_updates_is_a_warning_from_150_steps_on() -> None:
    seen = judge(SlowProgress(), rows(250, loss=_line(250), update__ratio=2e-4, lr=1e-5, grad__norm=1.0))
    first = next(step for step, sighting in seen if sighting.severity is Severity.WARNING)
    assert 150 <= first <= 220


def test_with_healthy_updates_it_is_information() -> None:
    assert worst(judge(SlowProgress(), rows(250, loss=_line(250), update__ratio=5e-3, lr=0.1))) is Severity.INFO


def test_learning_curves_plateaus_and_warmups_are_silent() -> None:
    assert judge(SlowProgress(), rows(300, loss=falling(300), update__ratio=1e-4, lr=0.1)) == []
    assert judge(SlowProgress(), rows(300, loss=flat(300), update__ratio=1e-4, lr=0.1)) == []
    warmup = [1e-5 * (i + 1) for i in range(250)]
    assert judge(SlowProgress(), rows(250, loss=_line(250), update__ratio=1e-4, lr=warmup)) == []


def test_a_straight_line_that_will_soon_be_done_is_no_warning() -> None:
    steep = list(np.linspace(1.0, 0.28, 300) * np.array(flat(300, noise=0.02)))
    assert worst(judge(SlowProgress(), rows(300, loss=steep, update__ratio=2e-4, lr=1e-4))) is Severity.INFO


def _creeping(bend: float) -> list[dict[str, float]]:
    losses = [1.2, 1.2, 1.1, 0.9, 0.8, *(0.72 - 0.2 * (i / 395) ** bend for i in range(395))]
    noisy = [loss * factor for loss, factor in zip(losses, flat(400, 1.0, noise=0.05), strict=True)]
    validations = [losses[i] if i % 32 == 31 else None for i in range(400)]
    return rows(400, loss=noisy, val__loss=validations, update__ratio=2e-3, lr=0.01)


def test_validation_that_creeps_along_the_line_makes_it_a_warning_with_steps_of_any_length() -> None:
    assert worst(judge(SlowProgress(), _creeping(1.0))) is Severity.WARNING
    table = _creeping(1.0)
    assert worst(judge(SlowProgress(), [row | {"val/loss": np.nan} for row in table])) is Severity.INFO


def test_a_validation_curve_that_slows_down_is_no_warning() -> None:
    assert worst(judge(SlowProgress(), _creeping(0.4))) is not Severity.WARNING


def test_updates_that_all_point_one_way_could_be_longer_even_where_the_end_is_in_sight() -> None:
    steep = list(np.linspace(1.0, 0.6, 300) * np.array(flat(300, noise=0.02)))
    table = rows(300, loss=steep, update__ratio=4e-4, lr=1e-4, update__cosine=0.99)
    assert worst(judge(SlowProgress(), table)) is Severity.WARNING
