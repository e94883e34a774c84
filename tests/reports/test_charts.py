"""Charts and strips as SVG: well-formed, within their paper, and honest about gaps."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from sonde.reports import charts, strips
from sonde.reports.charts import Band, Chart, Curve, Level, LineStyle, Moment, Spot
from sonde.reports.scales import Scale, fitting
from sonde.reports.strips import Strip

STEPS = np.arange(1.0, 101.0)


def _places(path: str) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return np.array(re.findall(r"-?[\d.]+", path), np.float64).reshape(-1, 2)


def _curves(chart: Chart) -> list[str]:
    tree = ElementTree.fromstring(charts.svg(chart))
    found = [node.attrib["d"] for node in tree.iter("path") if node.attrib["class"].startswith("curve")]
    return [path for path in found if "h20" not in path]  # those of the legend


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
    drawn = charts.svg(chart)
    assert "NaN or infinite" in drawn
    assert len(re.findall('class="lost[ "]', drawn)) == 1 + 2  # in the legend; one value, and three as a bar


def test_a_value_between_two_gaps_is_a_dot() -> None:
    values = np.full(100, np.nan)
    values[50] = 1.0
    drawn = charts.svg(
        Chart(y_label="loss", curves=(Curve(label="loss", step=STEPS, value=values, look=LineStyle.FAINT),))
    )
    assert drawn.count("<circle") == 1


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
    drawn = charts.svg(chart)
    ElementTree.fromstring(drawn)
    assert "nan" not in drawn.lower().replace("nan or infinite", "")
    assert "inf" not in drawn.lower().replace("nan or infinite", "")


def test_what_is_drawn_stays_on_the_paper() -> None:
    random = np.random.default_rng(0)
    values = np.exp(random.normal(0, 5, 100))
    band = Band(label="usual", step=STEPS[[0, -1]], low=np.array([1e-30, 1e-30]), high=np.array([1e30, 1e30]))
    chart = Chart(y_label="norm", curves=(Curve(label="norm", step=STEPS, value=values),), bands=(band,))
    tree = ElementTree.fromstring(charts.svg(chart, width=560, height=250))
    for node in tree.iter("path"):
        if node.attrib["class"] in ("band", "curve main"):
            places = _places(node.attrib["d"])
            assert places[:, 0].min() >= 0
            assert places[:, 0].max() <= 560
            assert places[:, 1].min() >= 0
            assert places[:, 1].max() <= 250


def test_names_cannot_leave_their_text() -> None:
    name = "</text><script>alert(1)</script>\"'&"
    curve = Curve(label=name, step=STEPS, value=STEPS)
    drawn = charts.svg(Chart(y_label=name, curves=(curve, curve), moments=(Moment(label=name, step=5.0),)))
    tree = ElementTree.fromstring(drawn)
    assert not list(tree.iter("script"))
    assert name in [node.text for node in tree.iter("text")]


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


def test_a_strip_is_well_formed_and_says_what_is_lost_and_not_measured() -> None:
    drawn = strips.svg(_strip([[1.0, np.nan], [np.inf, 2.0]]))
    ElementTree.fromstring(drawn)
    assert "NaN or infinite" in drawn
    assert "not measured" in drawn
    assert "layer.0&lt;b&gt;" in drawn
    ElementTree.fromstring(strips.svg(_strip([[np.nan, np.nan]])))
