"""The last number of each name, against a dictionary."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sonde.monitor.latest import Latest

NAMES = st.lists(st.sampled_from("abcdef"), unique=True).map(tuple)


@given(puts=st.lists(NAMES, max_size=8), asked=NAMES)
def test_numbers_and_their_order_are_those_of_a_dictionary(puts: list[tuple[str, ...]], asked: tuple[str, ...]) -> None:
    latest, plain = Latest(), dict[str, float]()
    for turn, names in enumerate(puts, 1):
        numbers = [turn + i / 10 for i in range(len(names))]
        latest.put(names, np.array(numbers))
        plain.update(zip(names, numbers, strict=True))
    assert latest.names == tuple(plain)
    assert latest.values.tolist() == list(plain.values())
    assert latest.get(asked).tolist() == [plain.get(name, 0.0) for name in asked]


@given(some=NAMES, others=NAMES)
def test_one_covers_another_that_has_no_name_of_its_own(some: tuple[str, ...], others: tuple[str, ...]) -> None:
    a, b = Latest(), Latest()
    a.put(some, np.zeros(len(some)))
    b.put(others, np.zeros(len(others)))
    assert a.covers(b) == (set(others) <= set(some))
