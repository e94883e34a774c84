"""Typed settings out of plain tables."""

import enum
import re
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from sonde.core.errors import SettingError
from sonde.core.secret import Secret
from sonde.core.settings import Word, flat, literal, read, shown


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, kw_only=True)
class Inner:
    burst: int = 5
    wait_s: float = 1.0

    def __post_init__(self) -> None:
        if self.burst < 1:
            raise ValueError(f"burst must be at least 1, got {self.burst}.")


@dataclass(frozen=True, kw_only=True)
class Outer:
    url: Secret
    name: str = ""
    on: bool = True
    share: float = 0.1
    colour: Colour = Colour.RED
    mode: Literal["auto", "quiet"] = "auto"
    codes: tuple[str, ...] = ()
    inner: Inner = Inner()
    most: int | None = None


def test_every_kind_of_setting_is_read_from_toml_and_from_words() -> None:
    wanted = Outer(
        url=Secret("https://a"),
        name="n",
        on=False,
        share=2.0,
        colour=Colour.BLUE,
        mode="quiet",
        codes=("A", "B"),
        inner=Inner(burst=3, wait_s=2.0),
        most=7,
    )
    plain: dict[str, Any] = {
        "url": "https://a",
        "name": "n",
        "on": False,
        "share": 2,
        "colour": "blue",
        "mode": "quiet",
        "codes": ["A", "B"],
        "inner": {"burst": 3, "wait_s": 2},
        "most": 7,
    }
    words = {
        "url": "https://a",
        "name": "n",
        "on": "off",
        "share": "2",
        "colour": "blue",
        "mode": "quiet",
        "codes": " A, B ",
        "inner": "burst=3 wait_s=2",
        "most": "7",
    }
    assert read(Outer, plain) == wanted
    assert read(Outer, {name: Word(text) for name, text in words.items()}) == wanted
    assert type(read(Outer, {"url": Word("x"), "name": Word("n")}).name) is str


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"nme": "x"}, "`t.nme` is no setting; did you mean `t.name`? Allowed: codes, colour, "),
        ({"zzz": "x"}, "`t.zzz` is no setting. Allowed: codes, "),
        ({}, "`t` needs `url`: set `t.url`, or URL in the environment."),
        ({"share": "0.1"}, "`t.share` must be a number, got '0.1'."),
        ({"share": Word("much")}, "`t.share` must be a number, got 'much'."),
        ({"share": True}, "`t.share` must be a number, got True."),
        ({"most": 1.5}, "`t.most` must be a whole number, got 1.5."),
        ({"on": 1}, "`t.on` must be true or false, got 1."),
        ({"on": Word("perhaps")}, "`t.on` must be true or false, got 'perhaps'."),
        ({"colour": "green"}, "`t.colour` must be one of red, blue, got 'green'."),
        ({"mode": ["auto"]}, "`t.mode` must be one of auto, quiet, got ['auto']."),
        ({"codes": [3]}, "`t.codes[0]` must be a text, got 3."),
        ({"codes": {"a": 1}}, "`t.codes` must be a list, got {'a': 1}."),
        ({"inner": 3}, "`t.inner` must be a table, got int."),
        ({"inner": Word("burst")}, "`t.inner` must be written as name=value,name=value."),
        ({"inner": {"brust": 3}}, "`t.inner.brust` is no setting; did you mean `t.inner.burst`?"),
        ({"inner": {"burst": 0}}, "`t.inner` is refused: burst must be at least 1, got 0."),
        ({"url": 3}, "`t.url` must be a text, got int."),
    ],
    ids=str,
)
def test_what_is_wrong_is_said_with_the_key_and_what_is_allowed(table: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=re.escape(message)):
        read(Outer, table, at="t", hints={"t.url": ", or URL in the environment"})


def test_a_type_that_no_file_can_say_is_refused() -> None:
    @dataclass
    class Odd:
        made: object = None

    with pytest.raises(SettingError, match="cannot be given here"):
        read(Odd, {"made": 3})


def test_what_is_shown_holds_no_secret() -> None:
    told = shown(Outer(url=Secret("hidden"), name="http://me:hidden@host/x", codes=("ftp://hidden@host",)))
    assert "hidden" not in str(told)
    assert told["url"] == "•••"
    assert told["name"] == "http://•••@host/x"
    assert told["inner"] == {"burst": 5, "wait_s": 1.0}
    assert shown(Secret("")) == ""


def test_words_without_a_type_say_what_toml_would() -> None:
    given = ["1e3", "-2", "true", "[1, 2]", '"x"', "x", "", "a = 1\nb"]
    assert [literal(Word(word)) for word in given] == [1000.0, -2, True, [1, 2], "x", "x", "", "a = 1\nb"]
    assert literal("12") == "12"


def test_tables_are_flattened_by_key() -> None:
    assert dict(flat({"a": {"b": {"c": 1}, "d": {}}, "e": [{"f": 2}]})) == {"a.b.c": 1, "a.d": {}, "e": [{"f": 2}]}
