"""Charts and strips as SVG: well-formed, within their paper, and honest about gaps."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from sonde.core.palette import LIGHT
from sonde.reports import strips
from sonde.reports.charts import Band, Chart, Curve, Level, LineStyle, Moment, Spot
from sonde.reports.drawing import drawn
from sonde.reports.html import svg
from sonde.reports.scales import Scale, fitting
from sonde.reports.shapes import Drawing, Shape
from sonde.reports.strips import Strip

STEPS = np.arange(1.0, 101.0)


def _places(path: str) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return np.array(re.findall(r"-?[\d.]+", path), np.float64).reshape(-1, 2)


def _of_kind(drawing: Drawing, kind: str) -> list[Shape]:
    return [shape for shape in drawing.shapes if str(shape.attributes["class"]).split()[0] == kind]


def _curves(chart: Chart) -> list[str]:
    return [str(shape.attributes["d"]) for shape in _of_kind(drawn(chart), "curve")]


def _texts(drawing: Drawing) -> list[str]:
    return [shape.text for shape in drawing.shapes if shape.name == "text"]


def test_a_line_goes_from_left_to_right_and_up_where_values_rise() -> None:
    (path,) = _curves(Chart(y_label="loss", curves=(Curve(label="loss", step=STEPS, value=STEPS),)))
    places = _places(path)
    assert len(places) == 100
    assert (np.diff(places[:, 0]) > 0).all()
    assert (np.diff(places[:, 1]) < 0).all()  # SVG counts from the top


def test_values_that_are_not_finite_are_gaps_with_a_mark() -> None:
    values = STEPS.copy()
    values[[20, 60, 61, 62]] = np.nan
    chart = Chart(y_label="loss", curves=(Curve(label="loss", step=STEPS, value=values, lost=STEPS[np.isnan(values)]),))
    (path,) = _curves(chart)
    assert path.count("M") == 3
    assert "NaN or infinite" in _texts(drawn(chart))
    assert len(_of_kind(drawn(chart), "lost")) == 2  # one value, and three as a bar


def test_a_value_between_two_gaps_is_a_dot() -> None:
    values = np.full(100, np.nan)
    values[50] = 1.0
    chart = Chart(y_label="loss", curves=(Curve(label="loss", step=STEPS, value=values, look=LineStyle.FAINT),))
    assert len(_of_kind(drawn(chart), "point")) == 1


@pytest.mark.parametrize("values", [[], [1.0], [np.nan, np.nan], [0.0, 0.0], [-1e38, 1e38], [3e38, 1e-40], [5.0, 5.0]])
def test_any_values_give_a_picture_without_a_number_that_is_none(values: list[float]) -> None:
    steps = np.arange(float(len(values)))
    chart = Chart(
        y_label="loss",
        curves=(Curve(label="loss", step=steps, value=np.array(values)),),
        levels=(Level(label="expected", value=2.0),),
        moments=(Moment(label="begins", step=0.0),),
        spots=(Spot(label="here", step=0.0, value=1.0),),
    )
    text = svg(chart)
    ElementTree.fromstring(text)
    assert "nan" not in text.lower().replace("nan or infinite", "")
    assert "inf" not in text.lower().replace("nan or infinite", "")


def test_what_is_drawn_stays_on_the_paper() -> None:
    random = np.random.default_rng(0)
    values = np.exp(random.normal(0, 5, 100))
    band = Band(label="usual", step=STEPS[[0, -1]], low=np.array([1e-30, 1e-30]), high=np.array([1e30, 1e30]))
    chart = Chart(y_label="norm", curves=(Curve(label="norm", step=STEPS, value=values),), bands=(band,))
    drawing = drawn(chart, width=560, height=250)
    for shape in (*_of_kind(drawing, "band"), *_of_kind(drawing, "curve")):
        places = _places(str(shape.attributes["d"]))
        assert places[:, 0].min() >= 0
        assert places[:, 0].max() <= 560
        assert places[:, 1].min() >= 0
        assert places[:, 1].max() <= 250


def test_every_shape_has_its_colours_on_it_for_readers_that_know_no_style_sheet() -> None:
    chart = Chart(
        y_label="loss",
        curves=(
            Curve(label="loss", step=STEPS, value=STEPS, low=STEPS - 1, high=STEPS + 1, lost=STEPS[:1]),
            Curve(label="other", step=STEPS, value=STEPS, look=LineStyle.POINTS, series=1),
        ),
        bands=(Band(label="usual", step=STEPS, low=STEPS, high=STEPS + 2),),
        levels=(Level(label="expected", value=2.0),),
        moments=(Moment(label="begins", step=50.0), Moment(label="b", step=80.0, is_alarm=False, series=1)),
        spots=(Spot(label="here", step=40.0, value=40.0),),
    )
    for drawing in (drawn(chart), strips.drawn(_strip([[1.0, np.nan], [np.inf, 2.0]]))):
        for shape in drawing.shapes:
            classes = str(shape.attributes["class"]).split()
            for part in ("fill", "stroke"):
                named = [name.removeprefix(f"{part}-") for name in classes if name.startswith(f"{part}-")]
                colours = {LIGHT[name] for name in named} or ({"none"} if part == "fill" else {""})
                assert {shape.attributes.get(part, "")} == colours
            assert shape.attributes["fill"] != "none" or "stroke" in shape.attributes


def test_the_place_of_the_plot_leads_back_from_the_curve_to_its_values() -> None:
    values = np.exp(np.linspace(-5, 5, 100))
    chart = Chart(y_label="norm", curves=(Curve(label="norm", step=STEPS, value=values),))
    drawing = drawn(chart)
    left, right, top, bottom, first, last, low, high, is_log = drawing.plot
    (curve,) = _of_kind(drawing, "curve")
    places = _places(str(curve.attributes["d"]))
    assert is_log == 1
    assert curve.attributes["data-label"] == "norm"
    np.testing.assert_allclose(first + (last - first) * (places[:, 0] - left) / (right - left), STEPS, atol=0.02)
    np.testing.assert_allclose(low * (high / low) ** ((bottom - places[:, 1]) / (bottom - top)), values, rtol=5e-3)


def test_a_legend_has_as_many_rows_as_it_needs_and_the_curves_begin_below_it() -> None:
    curves = tuple(Curve(label=f"a run with a long name {i}", step=STEPS, value=STEPS, series=i) for i in range(9))
    drawing = drawn(Chart(y_label="loss", curves=curves))
    names = [shape for shape in drawing.shapes if shape.text.startswith("a run")]
    rows = {float(str(shape.attributes["y"])) for shape in names}
    assert len(names) == 9
    assert len(rows) > 1
    assert max(rows) < drawing.plot[2]
    ends = [float(str(shape.attributes["x"])) + 6 * len(shape.text) for shape in names]
    assert max(ends) <= drawing.width


def test_names_that_are_longer_than_the_picture_are_shortened() -> None:
    name = "/a/very/long/path" * 20
    curves = tuple(Curve(label=f"{i}{name}{i}", step=STEPS, value=STEPS, series=i) for i in range(2))
    drawing = drawn(Chart(y_label=name, curves=curves, moments=(Moment(label=name, step=90.0),)))
    long = [shape for shape in drawing.shapes if "…" in shape.text]
    assert len(long) == 4
    for shape in long:
        x = float(str(shape.attributes["x"]))
        assert x >= 0
        assert x + 6 * len(shape.text) <= drawing.width


def test_what_is_lost_has_the_colour_of_its_curve_where_there_are_several() -> None:
    curves = tuple(Curve(label=str(i), step=STEPS, value=STEPS, lost=STEPS[10:60], series=i) for i in range(2))
    lost = _of_kind(drawn(Chart(y_label="loss", curves=curves)), "lost")
    assert [shape.attributes["stroke"] for shape in lost] == [LIGHT["series-0"], LIGHT["series-1"]]
    assert len({shape.attributes["d"] for shape in lost}) == 2  # below each other


def test_names_cannot_leave_their_text() -> None:
    name = "</text><script>alert(1)</script>\"'&"
    curve = Curve(label=name, step=STEPS, value=STEPS)
    tree = ElementTree.fromstring(
        svg(Chart(y_label=name, curves=(curve, curve), moments=(Moment(label=name, step=5.0),)))
    )
    assert not list(tree.findall(".//{*}script"))
    assert name in [node.text for node in tree.findall(".//{*}text")]


def test_a_scale_is_logarithmic_where_values_span_decades_and_only_if_all_are_positive() -> None:
    assert fitting(np.array([1e-4, 1.0])).is_log
    assert not fitting(np.array([0.5, 1.0])).is_log
    assert not fitting(np.array([0.0, 1.0])).is_log
    assert not fitting(np.array([-1.0, 100.0]), is_log=True).is_log


@pytest.mark.parametrize("is_log", [False, True])
def test_ticks_lie_within_the_scale_and_are_at_least_two(is_log: bool) -> None:
    random = np.random.default_rng(1)
    for _ in range(200):
        low = float(np.exp(random.uniform(-20, 20)))
        scale = Scale(low=low, high=low * float(np.exp(random.uniform(0.7, 20))), is_log=is_log)
        ticks = scale.ticks(6)
        assert 2 <= len(ticks) <= 12
        assert all(-0.01 <= scale.place(tick) <= 1.01 for tick in ticks)


def _strip(values: list[list[float]]) -> Strip:
    return Strip(
        names=tuple(f"layer.{i}<b>" for i in range(len(values))),
        edges=np.arange(len(values[0]) + 1.0),
        values=np.array(values),
        label="gradient",
    )


def test_larger_values_have_darker_shades_and_gaps_have_none() -> None:
    shade, borders = _strip([[1e-3, 1e-2, 1e-1], [1.0, np.nan, np.inf]]).shades()
    assert shade[0].tolist() == sorted(shade[0].tolist())
    assert shade[0, 0] < shade[1, 0]
    assert np.isnan(shade[1, 1:]).all()
    assert borders[0] >= 1e-3 * 0.99
    assert borders[-1] <= 1.01


def test_equal_values_are_of_one_shade() -> None:
    shade, _ = _strip([[1.0, 1.001, 0.999], [1.0, 1.0, 1.0]]).shades()
    assert len(np.unique(shade)) == 1


def test_a_strip_says_what_is_lost_and_not_measured() -> None:
    texts = _texts(strips.drawn(_strip([[1.0, np.nan], [np.inf, 2.0]])))
    assert {"NaN or infinite", "not measured", "layer.0<b>"} <= set(texts)
    assert _texts(strips.drawn(_strip([[np.nan, np.nan]])))
