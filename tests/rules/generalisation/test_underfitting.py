"""GEN002 underfitting."""

import numpy as np

from sonde.core.findings import Severity
from sonde.rules.generalisation.underfitting import Underfitting

from ..traces import falling, flat, judge, rows, worst


def _every(num: int, every: int, values: list[float]) -> list[float | None]:
    return [values[(i + 1) // every - 1] if (i + 1) % every == 0 else None for i in range(num)]


def test_both_high_and_slow_is_a_warning_after_six_evaluations() -> None:
    losses = [*falling(50, start=1.6, end=1.4, noise=0.01), *flat(150, 1.4, noise=0.01)]
    seen = judge(Underfitting(), rows(200, loss=losses, val__loss=_every(200, 20, [1.5, *[1.4] * 9])))
    assert seen[0][0] == 80
    assert worst(seen) is Severity.WARNING


def test_a_pretrained_model_is_held_against_guessing_where_that_is_known() -> None:
    given = rows(200, loss=flat(200, 0.45), val__loss=_every(200, 20, [0.45] * 10), label__entropy=1.4)
    assert judge(Underfitting(), given) == []


def test_low_losses_wide_gaps_and_late_breakthroughs_are_no_warning() -> None:
    given = rows(200, loss=falling(200), val__loss=_every(200, 20, [1.0, *[0.4] * 9]))
    assert judge(Underfitting(), given) == []
    late = [*flat(120, 1.8, noise=0.01), *[1.8 * 0.95**i for i in range(80)]]
    validations = [1.8, 1.8, 1.8, 1.3, 0.3]
    assert worst(judge(Underfitting(), rows(200, loss=late, val__loss=_every(200, 40, validations)))) is None


def test_a_validation_set_that_is_harder_from_the_start_counts_as_level() -> None:
    losses = [*falling(50, start=1.6, end=1.4, noise=0.01), *flat(150, 1.4, noise=0.01)]
    harder = rows(200, loss=losses, val__loss=_every(200, 20, [1.8, *[1.63] * 9]))
    wider = rows(200, loss=losses, val__loss=_every(200, 20, [1.5, *[1.63] * 9]))
    assert worst(judge(Underfitting(), harder)) is Severity.WARNING
    assert judge(Underfitting(), wider) == []


def test_a_loss_that_halves_in_its_first_steps_has_learned() -> None:
    losses = [1.3, 0.55, 0.29, 0.27, 0.26, *flat(195, 0.18, noise=0.01)]
    given = rows(200, loss=losses, val__loss=_every(200, 20, [0.2, *[0.18] * 9]))
    assert judge(Underfitting(), given) == []


def test_a_curve_that_settles_below_guessing_may_be_all_there_is() -> None:
    losses = [*falling(100, start=1.6, end=1.1, noise=0.01), *flat(140, 1.12, noise=0.01)]
    settles = [1.35, 1.22, 1.16, 1.14, 1.13, 1.125, 1.12, 1.12]
    jumps = [1.35, 1.22, 1.16, 1.2, 1.12, 1.19, 1.1, 1.18]
    assert worst(judge(Underfitting(), rows(240, loss=losses, val__loss=_every(240, 30, settles)))) is Severity.INFO
    assert worst(judge(Underfitting(), rows(240, loss=losses, val__loss=_every(240, 30, jumps)))) is Severity.WARNING


def test_small_steps_that_lower_a_loss_of_unknown_units_may_be_fine_tuning() -> None:
    losses = [*falling(40, start=0.06, end=0.043, noise=0.01), *flat(160, 0.045, noise=0.01)]
    given = {"loss": losses, "val__loss": _every(200, 20, [0.05, 0.048, 0.049, 0.045, 0.048, 0.045, *[0.046] * 4])}
    small = rows(200, update__ratio_at_0__weight=1e-4, **given)
    renamed = [{tag.replace("0/weight", "0.weight"): value for tag, value in row.items()} for row in small]
    assert worst(judge(Underfitting(), rows(200, **given))) is Severity.WARNING
    assert worst(judge(Underfitting(), renamed)) is Severity.INFO


def test_a_validation_that_crawls_is_a_warning_though_half_of_the_loss_is_gone() -> None:
    losses = [*falling(30, start=2.1, end=1.15, noise=0.01), *np.linspace(1.15, 0.95, 226).tolist()]
    crawls = [1.15, 1.12, 1.1, 1.07, 1.04, 1.02, 0.99, 0.96]
    given = rows(256, loss=losses, val__loss=_every(256, 32, crawls), lr=0.1)
    assert [step for step, seen in judge(Underfitting(), given) if seen.severity is Severity.WARNING] == [224, 256]


def test_a_learning_curve_and_one_under_a_falling_rate_do_not_crawl() -> None:
    slows = (1.3 - 0.1 * np.log(np.arange(1, 11))).tolist()
    losses = np.interp(np.arange(320), 32 * np.arange(1, 11), slows).tolist()
    given = rows(320, loss=[2.2] * 6 + losses[6:], val__loss=_every(320, 32, slows), lr=0.1)
    assert worst(judge(Underfitting(), given)) is not Severity.WARNING
    crawls = [1.15, 1.12, 1.1, 1.07, 1.04, 1.02, 0.99, 0.96]
    losses = [*[2.1] * 6, *np.linspace(1.15, 0.95, 250).tolist()]
    given = rows(256, loss=losses, val__loss=_every(256, 32, crawls), lr=np.linspace(0.1, 0.0, 256).tolist())
    assert worst(judge(Underfitting(), given)) is not Severity.WARNING


def test_a_likelihood_that_still_improves_may_have_a_high_floor() -> None:
    validations = [95.0, 84.0, 75.0, 70.0, 67.0, 64.5, 62.5, 61.0]
    losses = np.interp(np.arange(240), 30 * np.arange(9), [101.0, *validations]).tolist()
    given = {"loss": losses, "val__loss": _every(240, 30, validations)}
    assert worst(judge(Underfitting(), rows(240, **given))) is Severity.INFO
    of_classes = rows(240, label__entropy=100.0, **given)
    assert worst(judge(Underfitting(), of_classes)) is Severity.WARNING
