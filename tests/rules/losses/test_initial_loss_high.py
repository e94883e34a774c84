"""LOS008 initial-loss-high."""

from sonde.core.findings import Severity
from sonde.rules.losses.initial_loss_high import InitialLossHigh

from ..traces import alarms, falling, judge, rows


def test_a_start_far_above_guessing_is_said_once() -> None:
    entropy = [2.3 if i == 100 else None for i in range(140)]
    seen = judge(InitialLossHigh(), rows(140, loss=falling(140, start=9.0, end=1.0), label__entropy=entropy))
    assert [(step, sighting.severity) for step, sighting in seen] == [(101, Severity.INFO)]


def test_still_worse_than_guessing_after_150_steps_is_a_warning() -> None:
    given = rows(300, loss=falling(300, start=900, end=9.0), label__entropy=1.4, batch__size=64)
    assert alarms(judge(InitialLossHigh(), given))[0][0] == 150


def test_a_summed_loss_that_starts_at_the_batch_times_guessing_is_no_warning() -> None:
    given = rows(300, loss=falling(300, start=64 * 1.4, end=9.0), label__entropy=1.4, batch__size=64)
    assert alarms(judge(InitialLossHigh(), given)) == []


def test_a_steep_first_fall_counts_without_labels() -> None:
    losses = [50.0, *[10.0] * 5, *[1.0] * 30]
    assert [step for step, _ in judge(InitialLossHigh(), rows(36, loss=losses))] == [20]


def test_an_ordinary_start_is_silent() -> None:
    assert judge(InitialLossHigh(), rows(200, loss=falling(200, start=2.35), label__entropy=2.3, batch__size=8)) == []


def _shares(*values: float, every: int = 10) -> list[float | None]:
    return [values[i // every] if i % every == 1 else None for i in range(every * len(values))]


def test_a_start_far_above_guessing_by_its_own_targets_is_a_warning_soon_whatever_the_units() -> None:
    given = rows(60, loss=falling(60, start=6400, end=2000), loss__relative=_shares(64, 50, 40, 30, 25, 20))
    assert alarms(judge(InitialLossHigh(), given))[0][0] == 12


def test_a_start_that_comes_down_to_guessing_soon_is_no_warning() -> None:
    given = rows(60, loss=falling(60, start=6.4, end=0.1), loss__relative=_shares(6.4, 1.8, 1.5, 1.1, 1, 1))
    assert alarms(judge(InitialLossHigh(), given)) == []


def test_targets_far_from_zero_are_no_bad_start() -> None:
    losses = falling(60, start=6400, end=2000)
    given = rows(60, loss=losses, loss__relative=_shares(64, 50, 40, 30, 25, 20), loss__trivial=100.0, loss__zeros=6500)
    assert alarms(judge(InitialLossHigh(), given)) == []


def test_answers_that_never_reach_guessing_are_a_warning_after_150_losses_and_those_that_do_are_none() -> None:
    for least, expected in ((1.2, [150]), (0.9, [])):
        shares = _shares(2.5, 1.8, *[1.3] * 10, least, *[1.3] * 7)
        found = alarms(
            judge(InitialLossHigh(), rows(200, loss=falling(200, start=2.5, end=1.3), loss__relative=shares))
        )
        assert [step for step, _ in found] == expected


def test_a_bad_start_that_ends_in_nan_is_a_warning() -> None:
    losses = [1200.0, 4000.0, 1e6, float("nan")]
    given = rows(4, loss=losses, loss__relative=[None, 1900.0, None, None])
    assert alarms(judge(InitialLossHigh(), given))[0][0] == 4


def test_a_loss_that_explodes_before_the_first_look_had_no_bad_start() -> None:
    losses = [0.75, 40.0, 900.0, 4000.0, *[1e6] * 30]
    given = rows(34, loss=losses, loss__relative=[None, None, None, 5900.0, *[9000.0] * 30], loss__trivial=0.7)
    assert alarms(judge(InitialLossHigh(), given)) == []
