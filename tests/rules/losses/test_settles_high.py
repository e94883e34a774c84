"""LOS011 settles-high."""

import math

from sonde.rules.losses.settles_high import SettlesHigh

from ..traces import alarms, flat, judge, rows

EVERY = 48
COURSE = [1.26, 1.19, 1.16, 1.15, 1.14, 1.135, 1.13, 1.13, 1.13, 1.125]


def run(validations: list[float], *, num: int = 24, opening: float = 0.0) -> list[dict[str, float]]:
    losses: list[float] = [1.39] * 5
    evaluations: list[float | None] = [None] * 5
    for i, validation in enumerate(validations):
        losses += flat(EVERY, validation - opening * i, noise=0.02)
        evaluations += [None] * (EVERY - 1) + [validation]
    series = {"weight__norm_at_0.weight": math.sqrt(num) * 0.3, "weight__rms_at_0.weight": 0.3}
    return rows(len(losses), loss=losses, val__loss=evaluations, batch__size=64, lr=0.01, **series)


def test_a_small_model_that_has_settled_with_most_of_the_loss_left_is_a_warning() -> None:
    seen = alarms(judge(SettlesHigh(), run(COURSE)))
    assert seen
    assert 5 + 5 * EVERY <= seen[0][0] <= 5 + 8 * EVERY
    assert "24 parameters" in seen[0][1].message


def test_a_large_model_may_have_found_the_noise_of_its_targets() -> None:
    assert judge(SettlesHigh(), run(COURSE, num=2000)) == []


def test_a_low_loss_one_that_still_falls_and_a_gap_that_opens_are_silent() -> None:
    assert judge(SettlesHigh(), run([0.6 * loss for loss in COURSE])) == []
    assert judge(SettlesHigh(), run([1.3 - 0.03 * i for i in range(10)])) == []
    assert judge(SettlesHigh(), run(COURSE, opening=0.03)) == []


def test_a_rate_that_has_decayed_and_unknown_sizes_are_not_judged() -> None:
    table = run(COURSE)
    decayed = [row | {"lr": 0.01 if i < 150 else 0.001} for i, row in enumerate(table)]
    assert judge(SettlesHigh(), decayed) == []
    unknown = [{tag: value for tag, value in row.items() if not tag.startswith("weight")} for row in table]
    assert judge(SettlesHigh(), unknown) == []
    no_batch = [{tag: value for tag, value in row.items() if tag != "batch/size"} for row in table]
    assert judge(SettlesHigh(), no_batch) == []
