"""GEN006 training-held-back."""

import numpy as np

from sonde.core.findings import Severity
from sonde.rules.generalisation.training_held_back import TrainingHeldBack

from ..traces import falling, flat, judge, rows, worst


def _every(num: int, every: int, values: list[float]) -> list[float | None]:
    return [values[(i + 1) // every - 1] if (i + 1) % every == 0 else None for i in range(num)]


def test_training_above_the_validation_before_it_is_a_warning() -> None:
    losses = list(np.linspace(1.6, 1.3, 360) * np.array(flat(360, noise=0.03)))
    entropy = {"label__entropy": 1.6}
    seen = judge(
        TrainingHeldBack(), rows(360, loss=losses, val__loss=_every(360, 72, [1.6, 1.5, 1.35, 1.2, 1.1]), **entropy)
    )
    assert [(step, sighting.severity) for step, sighting in seen][-1] == (360, Severity.WARNING)
    for validations in ([1.55, 1.5, 1.45, 1.4, 1.35], [1.4, 1.35, 1.3, 1.2, 1.1]):  # lags behind; easier from the start
        given = rows(360, loss=losses, val__loss=_every(360, 72, validations), **entropy)
        assert worst(judge(TrainingHeldBack(), given)) is not Severity.WARNING


def test_training_far_above_a_high_validation_that_stands_still_is_a_warning() -> None:
    losses = list(np.linspace(1.35, 0.95, 480) * np.array(flat(480, noise=0.05)))
    for level, severity in ((0.62, Severity.WARNING), (0.3, None)):
        validations = [0.9, *level * np.array(flat(14, noise=0.02))]
        given = rows(480, loss=losses, val__loss=_every(480, 32, validations), label__entropy=1.36)
        assert worst(judge(TrainingHeldBack(), given)) is severity


def test_both_high_alike_short_runs_and_what_is_not_finite_are_silent() -> None:
    high = rows(400, loss=flat(400, 1.4, noise=0.01), val__loss=_every(400, 40, [1.41] * 10), label__entropy=1.6)
    assert judge(TrainingHeldBack(), high) == []
    losses = list(np.linspace(1.6, 1.3, 360) * np.array(flat(360, noise=0.03)))
    held = [1.6, 1.5, 1.35, 1.2, 1.1]
    short = rows(180, loss=losses[::2], val__loss=_every(180, 36, held), label__entropy=1.6)
    assert judge(TrainingHeldBack(), short) == []
    broken = rows(360, loss=losses, val__loss=_every(360, 72, [float("nan")] * 5), label__entropy=1.6)
    assert judge(TrainingHeldBack(), broken) == []
    assert judge(TrainingHeldBack(), rows(360, loss=falling(360))) == []
