"""The pieces of which conditions are made."""

from hypothesis import given
from hypothesis import strategies as st

from sonde.rules.conditions import Streak


@given(st.lists(st.booleans(), max_size=30))
def test_a_streak_is_the_last_run_of_looks_in_a_row(looks: list[bool]) -> None:
    streak = Streak()
    for step, is_so in enumerate(looks):
        streak = streak.after(is_so, step)
    num = next((i for i, is_so in enumerate(reversed(looks)) if not is_so), len(looks))
    assert streak == (Streak(num, len(looks) - num) if num else Streak())
