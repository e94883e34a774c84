"""Texts of others on a screen."""

import sys

from hypothesis import given
from hypothesis import strategies as st

from sonde.core.printable import escaped, is_printable, lines, one_line

ANY = st.text(st.characters(max_codepoint=sys.maxunicode, categories=["Cc", "Cs", "Cf", "Zl", "Zp", "L", "Zs"]))


@given(ANY)
def test_what_comes_out_is_printable_and_can_be_encoded(text: str) -> None:
    for shown in (escaped(text), one_line(text), *lines(text).split("\n")):
        assert is_printable(shown)
        shown.encode()
        assert not any(letter < " " or "\x7f" <= letter <= "\x9f" for letter in shown)


@given(st.text(st.characters(categories=["L", "N", "P", "S"])))
def test_what_is_printable_stays_as_it_is(text: str) -> None:
    assert escaped(text) == one_line(text) == lines(text) == text
