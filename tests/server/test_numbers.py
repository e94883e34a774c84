"""Binary answers: series at any zoom, heat maps and histograms, against what the run itself gives."""

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.server.answers import Ask
from tests.server.conftest import LAYERS, STEPS

import sonde
from sonde.sinks.bins import EDGES


def test_a_series_in_full_is_every_point(ask: Ask, runs: Path) -> None:
    answer = ask.binary("good", "/series", tag="loss", points=STEPS)
    (about,), found = answer.header["series"], answer.series()
    expected = sonde.load(runs / "good").series("loss")
    assert (about["n"], about["exact"], about["last_step"]) == (STEPS, True, STEPS)
    np.testing.assert_array_equal(found["step"], expected.step)
    for column in ("mean", "low", "high"):
        np.testing.assert_array_equal(found[column], expected.value)
    assert (about["nonfinite"], about["lost"]) == (1, [1500])


@pytest.mark.parametrize(("start", "end"), [(None, None), (500, 2500), (1400, 1600), (2999, None), (-5, 3)])
@pytest.mark.parametrize("points", [1, 7, 100])
def test_a_zoom_keeps_the_extremes_and_the_mean(
    ask: Ask, runs: Path, start: int | None, end: int | None, points: int
) -> None:
    bounds = {key: value for key, value in (("from", start), ("to", end)) if value is not None}
    answer = ask.binary("good", "/series", tag="loss", points=points, **bounds)
    (about,), found = answer.header["series"], answer.series()
    step, value, _ = sonde.load(runs / "good").series("loss", start=start, end=end)
    assert 1 <= about["n"] <= points
    assert found["step"][0] == step[0]
    edges = np.append(np.searchsorted(step, found["step"]), len(step))
    for i, (first, last) in enumerate(itertools.pairwise(edges)):
        part = value[first:last].astype(np.float64)
        assert found["low"][i] == np.nanmin(part)
        assert found["high"][i] == np.nanmax(part)
        assert found["mean"][i] == pytest.approx(np.nanmean(part), rel=1e-5)
    assert about["nonfinite"] == int((~np.isfinite(value)).sum())
    assert about["exact"] == (len(step) <= points)


def test_several_series_lie_one_behind_another(ask: Ask, runs: Path) -> None:
    answer = ask.binary("good", "/series", tag=["lr", "nothing", "loss"], points=STEPS)
    abouts = answer.header["series"]
    assert [about["tag"] for about in abouts] == ["lr", "nothing", "loss"]
    assert [about["n"] for about in abouts] == [STEPS, 0, STEPS]
    assert "no series 'nothing'" in abouts[1]["reason"]
    run = sonde.load(runs / "good")
    np.testing.assert_array_equal(answer.series(0)["mean"], run.series("lr").value)
    np.testing.assert_array_equal(answer.series(2)["mean"], run.series("loss").value)
    assert len(answer.data) == 2 * 4 * 8 * STEPS


def test_a_window_in_which_nothing_was_measured_says_so(ask: Ask) -> None:
    (about,) = ask.binary("good", "/series", tag="loss", **{"from": 10 * STEPS}).header["series"]
    assert (about["n"], about["reason"], about["last_step"]) == (0, "nothing was measured there", STEPS)


def test_by_time_every_point_has_its_own_moment(ask: Ask, runs: Path) -> None:
    expected = sonde.load(runs / "good").series("loss")
    exact = ask.binary("good", "/series", tag="loss", points=STEPS, by="time").series()
    np.testing.assert_array_equal(exact["time"], expected.time)
    zoomed = ask.binary("good", "/series", tag="loss", points=50, by="time")
    assert zoomed.header["series"][0]["columns"][0] == "time"
    by_step = ask.binary("good", "/series", tag="loss", points=50).series()
    np.testing.assert_allclose(zoomed.series()["time"], 1e9 + by_step["step"] / 4, atol=1e-3)
    part = ask.binary("good", "/series", tag="loss", by="time", points=STEPS, **{"from": 1e9 + 100, "to": 1e9 + 200})
    assert part.series()["time"][[0, -1]] == pytest.approx([1e9 + 100, 1e9 + 200], abs=0.26)


def test_a_heat_map_has_a_row_a_layer_in_the_order_of_the_model(ask: Ask) -> None:
    answer = ask.binary("good", "/layers", path="grad/rms", columns=1000)
    header, matrix = answer.header, answer.matrix
    assert header["names"] == LAYERS
    assert header["modules"] == [name.removesuffix(".weight") for name in LAYERS]
    assert header["steps"] == list(range(10, STEPS + 1, 10))
    place = {name: i for i, name in enumerate(sorted(LAYERS), 1)}
    expected = np.array([[place[name] * step for step in header["steps"]] for name in LAYERS], np.float32)
    first = LAYERS.index(sorted(LAYERS)[0])
    expected[first, header["steps"].index(1000)] = np.inf  # as measured
    expected[first, header["steps"].index(2000)] = np.nan  # not measured
    np.testing.assert_array_equal(matrix, expected)


def test_a_heat_map_that_is_narrower_shows_means_and_hides_no_infinity(ask: Ask) -> None:
    answer = ask.binary("good", "/layers", path="grad/rms", columns=10, by="name", **{"from": 500, "to": 2499})
    matrix, steps = answer.matrix, np.array(answer.header["steps"])
    assert matrix.shape == (4, 10)
    assert answer.header["names"] == ["blocks.2.fc.weight", "blocks.10.fc.weight", "embed.weight", "head.weight"]
    edges = np.append(steps, 2500)
    for i, (first, last) in enumerate(itertools.pairwise(edges)):
        measured = [step for step in range(500, 2500, 10) if first <= step < last]
        row = answer.header["names"].index("head.weight")
        assert matrix[row, i] == pytest.approx(4 * np.mean(measured), rel=1e-6)
    broken = answer.header["names"].index("blocks.10.fc.weight")
    assert [math.isinf(value) for value in matrix[broken]] == [
        first <= 1000 < last for first, last in itertools.pairwise(edges)
    ]


def test_a_statistic_that_no_layer_has_is_an_empty_map(ask: Ask) -> None:
    header = ask.binary("good", "/layers", path="act/dead").header
    assert (header["rows"], header["columns"], header["steps"]) == (0, 0, [])
    assert "act/dead@" in header["reason"]


def test_the_statistics_of_layers(ask: Ask) -> None:
    assert ask.run("good", "/layer-paths")["paths"] == [{"path": "grad/rms", "layers": 4, "kind": "parameter"}]
    assert ask.run("deep/er/plain", "/layer-paths")["paths"] == []


def test_histograms_are_rows_of_counts_between_edges(ask: Ask) -> None:
    answer = ask.binary("good", "/histograms", tag="grad/histogram@head.weight")
    assert answer.header["steps"] == [500, 1000, 1500, 2000, 2500, 3000]
    assert answer.header["edges"] == EDGES[120:131].tolist()
    expected = np.repeat([[500.0], [1000], [1500], [2000], [2500], [3000]], 10, axis=1)
    np.testing.assert_array_equal(answer.matrix, expected)


def test_fewer_histograms_are_taken_evenly_with_the_newest(ask: Ask) -> None:
    header = ask.binary("good", "/histograms", tag="grad/histogram@head.weight", rows=3, **{"from": 600}).header
    assert header["steps"] == [1000, 2000, 3000]
    header = ask.binary("good", "/histograms", tag="act/histogram@nothing").header
    assert (header["rows"], header["edges"]) == (0, None)
    assert "has no series" in header["reason"]


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("/series", {}),
        ("/series", {"tag": "loss", "points": 0}),
        ("/series", {"tag": "loss", "points": 10_001}),
        ("/series", {"tag": ["loss"] * 101}),
        ("/series", {"tag": "loss", "from": "nan"}),
        ("/series", {"tag": "loss", "by": "mood"}),
        ("/layers", {}),
        ("/layers", {"path": "grad/rms", "columns": 4001}),
        ("/layers", {"path": "grad/rms", "from": 1 << 70}),
        ("/histograms", {"tag": "x", "rows": 1001}),
        ("/events", {"limit": 0}),
        ("/tags", {"limit": 200_001}),
    ],
)
def test_what_is_out_of_bounds_is_refused(ask: Ask, path: str, params: dict[str, Any]) -> None:
    answer = ask.client.get(f"/api/runs/good{path}", params=params)
    assert answer.status_code == 400
    assert answer.json()["error"]["what"]
