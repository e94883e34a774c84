import enum
from typing import Any

import pytest

from sonde.core.errors import FormatError
from sonde.core.json_fields import flag, list_of, member, one_of, refusals_as_format_errors, text, whole


class Colour(enum.StrEnum):
    DARK_RED = "dark-red"
    GREEN = "green"


def test_a_member_is_read_by_its_reader() -> None:
    data = {"name": "a", "steps": [1, 2], "open": True, "colour": "green"}
    assert member(data, "name", text) == "a"
    assert member(data, "steps", list_of(whole)) == (1, 2)
    assert member(data, "open", flag) is True
    assert member(data, "colour", one_of(Colour)) is Colour.GREEN


@pytest.mark.parametrize(
    ("reader", "value"),
    [
        (text, 1),
        (whole, True),
        (whole, 1.0),
        (flag, 1),
        (flag, "true"),
        (list_of(text), "text"),
        (list_of(text), {"a": "b"}),
        (one_of(Colour), ["green"]),
        (one_of(Colour), {}),
        (one_of(Colour), "GREEN"),
    ],
)
def test_a_value_of_another_kind_is_refused_by_its_key(reader: Any, value: Any) -> None:
    with pytest.raises(FormatError, match=r"^key: expected .*, got "):
        member({"key": value}, "key", reader)


def test_the_nearest_word_of_a_vocabulary_is_proposed() -> None:
    with pytest.raises(FormatError, match=r"expected a known colour, got 'dark_red'; did you mean 'dark-red'\?"):
        one_of(Colour)("dark_red")


def test_a_complaint_leads_to_its_place() -> None:
    def inner(value: Any) -> str:
        return member(value, "name", text)

    with pytest.raises(FormatError, match=r"^items: \[1\]: name: missing\.$"):
        member({"items": [{"name": "a"}, {}]}, "items", list_of(inner))


def test_a_huge_wrong_value_does_not_flood_the_message() -> None:
    with pytest.raises(FormatError) as caught:
        text(list(range(100_000)))
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("refusal", [ValueError("no"), TypeError("no"), FormatError("no")])
def test_a_refusal_leaves_as_a_format_error_with_its_words(refusal: Exception) -> None:
    with pytest.raises(FormatError, match=r"^no$"), refusals_as_format_errors():
        raise refusal


def test_a_fault_is_not_taken_for_a_refusal() -> None:
    with pytest.raises(ZeroDivisionError), refusals_as_format_errors():
        raise ZeroDivisionError
