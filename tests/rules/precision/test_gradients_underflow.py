from sonde.rules.precision.gradients_underflow import GradientsUnderflow

from ..traces import alarms, falling, judge, rows, worst

TINY = {
    "grad/zeros@0.weight": 0.6,
    "grad/rms@0.weight": 2.0**-22,
    "grad/zeros@2.weight": 0.5,
    "grad/rms@2.weight": 2e-7,
}


def test_zeros_beside_numbers_near_fp16_s_smallest_are_a_warning_at_the_second_look() -> None:
    seen = alarms(judge(GradientsUnderflow(), [row | TINY for row in rows(4, loss=1.0)]))
    assert seen[0][0] == 2
    assert seen[0][1].where == ("0.weight", "2.weight")


def test_with_a_scaler_it_says_nothing() -> None:
    assert not judge(GradientsUnderflow(), [row | TINY for row in rows(4, loss=1.0, amp__scale=1024.0)])


def test_zeros_among_ordinary_gradients_are_dead_units_not_underflow() -> None:
    ordinary = {tag: 0.01 if "rms" in tag else value for tag, value in TINY.items()}
    assert not judge(GradientsUnderflow(), [row | ordinary for row in rows(4, loss=1.0)])


def test_a_task_that_is_nearly_solved_is_no_alarm() -> None:
    table = [row | (TINY if step > 250 else {}) for step, row in enumerate(rows(300, loss=falling(300, end=0.01)))]
    assert not alarms(judge(GradientsUnderflow(), table))
    assert worst(judge(GradientsUnderflow(), table)) is not None


def fading(last: float) -> list[dict[str, float]]:
    """Nothing is left of the gradients of all but the last matrix."""
    gone = {
        f"grad/{what}@{layer}.weight": value for layer in (0, 2, 4) for what, value in (("zeros", 1.0), ("rms", 0.0))
    }
    return [row | gone | {"grad/zeros@6.weight": 0.02, "grad/rms@6.weight": last} for row in rows(4, loss=1.0)]


def test_gradients_that_are_gone_count_where_the_last_ones_are_near_fp16_s_smallest() -> None:
    seen = alarms(judge(GradientsUnderflow(), fading(1.7e-6)))
    assert seen[0][0] == 2
    assert seen[0][1].where == ("0.weight", "2.weight", "4.weight")


def test_gradients_that_are_gone_before_ordinary_ones_are_dead_units() -> None:
    assert not judge(GradientsUnderflow(), fading(0.01))


def test_a_network_without_any_gradient_is_another_rule_s() -> None:
    nothing = {tag: 1.0 if "zeros" in tag else 0.0 for tag in TINY}
    assert not judge(GradientsUnderflow(), [row | nothing for row in rows(4, loss=1.0)])
