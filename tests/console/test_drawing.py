"""Views as text; `golden.txt` is what they looked like when somebody last looked at them and found them good.

`python tests/console/test_drawing.py` draws it anew.
"""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.console import views

from sonde.console.drawing import ROWS, line, rows
from sonde.console.glyphs import ASCII, UNICODE, Glyphs
from sonde.console.view import Layers, Memory, Value, View

GOLDEN = Path(__file__).with_name("golden.txt")
SIGNS = {"unicode": UNICODE, "ascii": ASCII}
CASES = [(name, width, "unicode") for name in views.ALL for width in (40, 80, 120)]
CASES += [(name, 80, "ascii") for name in views.ALL]


def drawn(view: View, width: int, glyphs: Glyphs) -> str:
    return "\n".join(row.plain.rstrip() for row in rows(view, width=width, glyphs=glyphs)).rstrip()


def golden() -> dict[str, str]:
    parts = GOLDEN.read_text(encoding="utf-8").split("=== ")[1:]
    return {part.partition("\n")[0]: part.partition("\n")[2].rstrip() for part in parts}


def title(name: str, width: int, signs: str) -> str:
    return f"{name} {width} {signs}"


@pytest.mark.parametrize(("name", "width", "signs"), CASES)
def test_views_look_as_when_they_were_last_looked_at(name: str, width: int, signs: str) -> None:
    assert drawn(views.ALL[name], width, SIGNS[signs]) == golden()[title(name, width, signs)]


@pytest.mark.parametrize("name", views.ALL)
def test_lines_look_as_when_they_were_last_looked_at(name: str) -> None:
    assert line(views.ALL[name]) == golden()[f"{name} line"]


@pytest.mark.parametrize("name", views.ALL)
def test_a_terminal_without_unicode_gets_none(name: str) -> None:
    assert drawn(views.ALL[name], 100, ASCII).isascii()
    assert line(views.ALL[name]).isascii()


numbers = st.floats(allow_nan=True, allow_infinity=True)
values = st.lists(st.builds(Value, st.text(max_size=4), numbers), max_size=4).map(tuple)
some_layers = st.lists(
    st.tuples(st.text(max_size=6), st.none() | st.floats(min_value=0), st.sampled_from(["", "warning", "critical"])),
    max_size=300,
).map(
    lambda all_: Layers(
        names=tuple(name for name, _, _ in all_),
        values=tuple(value for _, value, _ in all_),
        marks=tuple(mark for _, _, mark in all_),
        what="gradient rms",
    )
)


@given(
    view=st.builds(
        View,
        run=st.text(max_size=200),
        step=st.integers(0, 10**12),
        total_steps=st.none() | st.integers(1, 10**12),
        epoch=st.none() | st.integers(0, 10**6),
        elapsed_s=st.floats(0, 1e9),
        steps_per_s=st.none() | st.floats(1e-9, 1e9),
        tokens_per_s=st.none() | st.floats(0, 1e15),
        losses=values,
        loss_ema=st.none() | numbers,
        curve=st.lists(numbers, max_size=200).map(tuple),
        gradient_norms=values,
        memory=st.none() | st.builds(Memory, st.just("GPU"), st.floats(0, 1e15), st.none() | st.floats(1, 1e15)),
        layers=some_layers,
    ),
    width=st.integers(1, 200),
    glyphs=st.sampled_from([UNICODE, ASCII]),
)
def test_whatever_is_shown_fits_and_steers_no_terminal(view: View, width: int, glyphs: Glyphs) -> None:
    shown = rows(view, width=width, glyphs=glyphs)
    assert len(shown) == ROWS
    for row in shown:
        assert row.cell_len <= width
        assert all(sign >= " " and sign != "\x7f" for sign in row.plain)


def test_what_is_wrong_is_red_and_what_is_open_has_the_colour_of_its_severity() -> None:
    spans = {
        row.plain[span.start : span.end]: str(span.style)
        for row in rows(views.ILL, width=120, glyphs=UNICODE)
        for span in row.spans
    }
    assert spans["NaN"] == spans["X GRD001 exploding-gradients"] == "bold red"
    assert spans["!"] == "bold yellow"
    assert spans["78.2/79.6 GiB"] == "bold yellow"


def test_a_third_finding_is_shown_and_of_four_the_number_of_the_rest() -> None:
    three = replace(views.ILL, findings=(views.ILL.findings or ())[:3])
    assert "ACT002" in drawn(three, 80, UNICODE)
    assert "more" not in drawn(three, 80, UNICODE)
    assert drawn(views.ILL, 80, UNICODE).endswith("and 2 more")


def test_time_left_is_said_only_where_the_length_is_known() -> None:
    assert views.GOOD.left_s == pytest.approx((5000 - 1240) / 8.42)
    assert "ETA" not in line(views.GAN)
    assert "ETA" not in line(replace(views.GOOD, ending="finished"))
    assert replace(views.GOOD, step=6000).share == 1.0
    assert math.isclose(replace(views.GOOD, step=6000).left_s or 0.0, 0.0)


if __name__ == "__main__":
    text = "".join(
        f"=== {title(name, width, signs)}\n{drawn(views.ALL[name], width, SIGNS[signs])}\n"
        for name, width, signs in CASES
    )
    text += "".join(f"=== {name} line\n{line(view)}\n" for name, view in views.ALL.items())
    GOLDEN.write_text(text, encoding="utf-8")
