"""Places of names, against a plain search."""

from hypothesis import given
from hypothesis import strategies as st

from sonde.probes.lookup import Lookup

NAMES = st.lists(st.sampled_from("abcdef"), unique=True).map(tuple)


@given(asked=st.lists(st.tuples(NAMES, NAMES), max_size=8))
def test_places_are_those_of_a_plain_search(asked: list[tuple[tuple[str, ...], tuple[str, ...]]]) -> None:
    lookup = Lookup()
    for names, among in asked:
        wanted = [among.index(name) if name in among else -1 for name in names]
        assert lookup(names, among).tolist() == wanted
