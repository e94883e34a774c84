import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sonde.rules.updates.updates_rounded_away import UpdatesRoundedAway, significant_bits

from ..traces import alarms, falling, judge, rows

NAMES = ("a.weight", "a.bias", "b.weight", "b.bias")


def run(sizes: list[float], lr: float = 0.1, num: int = 40) -> list[dict[str, float]]:
    table = rows(num, loss=falling(num, end=1.5), lr=lr)
    table[0] |= {f"grad/norm@{name}": 1.0 for name in NAMES}
    for step, row in enumerate(table):
        row[f"update/absmax@{NAMES[step % 4]}"] = sizes[step % len(sizes)]
    return table


@given(st.integers(1, 2**24 - 1), st.integers(-60, 10))
def test_bits_are_those_from_the_first_to_the_last_one(number: int, exponent: int) -> None:
    digits = bin(number)[2:].strip("0")
    assert significant_bits(np.array([number * 2.0**exponent]))[0] == len(digits)


def test_updates_of_a_few_spacings_are_a_warning_at_the_tenth_look() -> None:
    seen = alarms(judge(UpdatesRoundedAway(), run([2.0**-12, 3 * 2.0**-13, 2.0**-11])))
    assert seen[0][0] == 11
    assert seen[0][1].since == 2


def test_ordinary_updates_say_nothing() -> None:
    sizes = (1e-3 * np.random.default_rng(0).uniform(0.5, 2, 37)).tolist()
    assert not judge(UpdatesRoundedAway(), run(sizes))


def test_an_optimiser_that_moves_by_exactly_its_rate_is_left_alone() -> None:
    assert not judge(UpdatesRoundedAway(), run([2.0**-12], lr=2.0**-12))


def test_the_end_of_a_schedule_may_round_away() -> None:
    table = run([2.0**-12])
    table[0]["lr"] = 10.0
    assert not judge(UpdatesRoundedAway(), table)
