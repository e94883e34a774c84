"""The first value that differs, against a slow and obvious search."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sonde.core.frames import MISSING, Float32
from sonde.diagnosis.divergence import Agreement, Difference, Divergence, comparable, extend, ordered

TAGS = ["act/rms@a", "loss", "grad/mean@a", "weight/norm@a"]
CELLS: st.SearchStrategy[float | str] = st.sampled_from([0.0, 1.0, 1.00001, 2.0, math.nan, math.inf, "missing"])


def _row(cells: list[float | str]) -> Float32:
    return np.array([MISSING if cell == "missing" else np.float32(cell) for cell in cells], np.float32)


def _slow(steps: list[int], first: list[list[float | str]], second: list[list[float | str]], r: float) -> Divergence:
    """Value by value, step by step."""
    exact: Difference | None = None
    beyond: Difference | None = None
    count, start = 0, None
    for column, step in enumerate(steps):
        for row, tag in enumerate(TAGS):
            a, b = first[row][column], second[row][column]
            if isinstance(a, str) or isinstance(b, str):
                continue
            count, start = count + 1, step if start is None else start
            a, b = float(np.float32(a)), float(np.float32(b))
            if a == b or (math.isnan(a) and math.isnan(b)):
                continue
            difference = Difference(step=step, tag=tag, first=a, second=b)
            exact = exact or difference
            finite = math.isfinite(a) and math.isfinite(b)
            if not finite or (tag != "grad/mean@a" and abs(a - b) > r * max(abs(a), abs(b))):
                beyond = beyond or difference
    return Divergence(num_values=count, start=start, exact=exact, beyond=beyond)


@given(st.data())
def test_it_is_the_first_difference_by_step_and_then_by_order(data: st.DataObject) -> None:
    num = data.draw(st.integers(1, 6))
    grid = st.lists(st.lists(CELLS, min_size=num, max_size=num), min_size=len(TAGS), max_size=len(TAGS))
    first = data.draw(grid)
    second = data.draw(st.just(first) | grid)
    steps = sorted(data.draw(st.sets(st.integers(0, 50), min_size=num, max_size=num)))
    a, b = np.stack([_row(row) for row in first]), np.stack([_row(row) for row in second])
    cut = data.draw(st.integers(0, num))
    split = data.draw(st.integers(0, len(TAGS)))
    found = Divergence()
    for part in (slice(0, cut), slice(cut, None)):  # in windows of steps, and in those some tags after others
        for some in (slice(0, split), slice(split, None)):
            at = np.array(steps, np.int64)[part]
            found = extend(found, at, TAGS[some], a[some, part], b[some, part], tolerance=1e-3)
    assert repr(found) == repr(_slow(steps, first, second, 1e-3))  # as text: NaN is not equal to itself


def test_the_course_says_whether_runs_were_ever_the_same() -> None:
    steps, values = np.array([10, 20, 30]), np.ones((1, 3), np.float32)
    missing = np.full((1, 3), MISSING, np.float32)
    late, early = np.array([0, 0, 1], np.float32), np.array([1, 0, 0], np.float32)
    courses = [
        extend(Divergence(), steps, ["loss"], values, other, tolerance=0.0).course
        for other in (missing, values, values + late, values + early)
    ]
    assert courses == [Agreement.NOTHING_COMMON, Agreement.IDENTICAL, Agreement.IDENTICAL_UNTIL, Agreement.FROM_START]


def test_a_step_is_searched_in_the_order_in_which_it_is_computed() -> None:
    depth = {"stem": 0, "head": 1}
    mixed = ["weight/norm@stem", "lr", "grad/norm", "grad/rms@stem", "grad/norm@stem", "grad/norm@head", "val/loss"]
    mixed += ["loss/ema", "loss", "act/rms@head", "act/rms@stem", "batch/mean@x", "update/ratio@stem"]
    assert ordered(mixed, depth) == [
        "batch/mean@x",
        "act/rms@stem",
        "act/rms@head",
        "loss",
        "loss/ema",
        "grad/norm@head",
        "grad/norm@stem",
        "grad/rms@stem",
        "grad/norm",
        "lr",
        "update/ratio@stem",
        "weight/norm@stem",
        "val/loss",
    ]


def test_what_the_machine_decides_is_never_a_divergence() -> None:
    machine = ["time/step", "throughput/samples_per_s", "memory/peak", "host/rss", "monitor/time", "act/dead@a"]
    assert comparable(machine) == []


def test_sums_over_a_model_are_left_to_its_tensors() -> None:
    tags = [
        "grad/norm",
        "grad/norm@G",
        "grad/norm@G.net.0.weight",
        "weight/norm@D",
        "weight/norm@D.bias",
        "act/rms@G.net",
    ]
    assert comparable(tags) == ["grad/norm@G.net.0.weight", "weight/norm@D.bias", "act/rms@G.net"]
