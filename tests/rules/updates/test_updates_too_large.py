from sonde.core.findings import Severity
from sonde.rules.updates.updates_too_large import UpdatesTooLarge

from ..traces import alarms, falling, flat, judge, rows, worst


def ratios(value: float) -> dict[str, float]:
    return {f"update/ratio@{layer}.weight": value for layer in range(4)}


def test_large_updates_and_a_lost_loss_are_a_warning_within_ten_losses() -> None:
    losses = [1.0] * 5 + [1.5**step for step in range(20)]
    seen = alarms(judge(UpdatesTooLarge(), [row | ratios(0.4) for row in rows(25, loss=losses, lr=1.0)]))
    assert 10 <= seen[0][0] <= 13


def test_large_updates_of_a_training_that_goes_well_are_information() -> None:
    seen = judge(UpdatesTooLarge(), [row | ratios(0.2) for row in rows(300, loss=falling(300), lr=0.1)])
    assert worst(seen) is Severity.INFO


def test_ordinary_updates_say_nothing_even_where_the_loss_is_stuck() -> None:
    assert not judge(UpdatesTooLarge(), [row | ratios(0.01) for row in rows(300, loss=flat(300), lr=0.1)])


def test_one_layer_alone_is_not_the_rate() -> None:
    one = ratios(1e-3) | {"update/ratio@0.weight": 0.9}
    assert not judge(UpdatesTooLarge(), [row | one for row in rows(300, loss=flat(300), lr=0.1)])


def test_it_abstains_without_updates() -> None:
    assert not judge(UpdatesTooLarge(), rows(50, loss=[2.0**step for step in range(50)], lr=0.1))


def test_far_too_large_updates_and_a_loss_that_stands_need_no_hundred_steps() -> None:
    table = rows(120, loss=flat(120, 2.5, noise=0.01), lr=0.1)
    assert alarms(judge(UpdatesTooLarge(), [row | ratios(0.3) for row in table]))[0][0] <= 60


def test_of_several_optimisers_the_loss_does_not_tell() -> None:
    table = rows(300, loss=[*flat(150), *flat(150, 1.3)], lr=0.1, grad__norm_applied_at_G=1.0)
    assert not alarms(judge(UpdatesTooLarge(), [row | ratios(0.2) for row in table]))


def test_large_updates_that_the_loss_survived_are_not_to_blame_for_what_comes_later() -> None:
    table = rows(220, loss=[*falling(200, start=2.0, end=0.1, noise=0.02), *[50.0] * 20], lr=0.1)
    early = [row | ratios(0.15 if step < 5 else 1e-3) for step, row in enumerate(table)]
    assert not alarms(judge(UpdatesTooLarge(), early))
    always = [row | ratios(0.15) for row in table]
    assert alarms(judge(UpdatesTooLarge(), always))[0][0] > 200


def test_a_rate_of_adam_that_is_as_large_as_the_weights_is_known_at_the_first_step() -> None:
    sizes = {f"weight/rms@{layer}.weight": 0.3 for layer in range(4)}
    for rate, expected in ((0.3, Severity.INFO), (0.03, None)):
        table = rows(3, loss=[1.0, 9.0, 90.0], lr=rate, optimizer__beta2_at_0=0.999)
        assert worst(judge(UpdatesTooLarge(), [table[0] | sizes, *table[1:]])) is expected
    plain = rows(3, loss=[1.0, 9.0, 90.0], lr=0.3)
    assert not judge(UpdatesTooLarge(), [plain[0] | sizes, *plain[1:]])
