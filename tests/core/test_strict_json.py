import json
import math
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.core.errors import FormatError
from sonde.core.strict_json import dumps, loads, number, to_number

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def refuse(constant: str) -> Any:
    raise AssertionError(f"bare {constant}")


def named(value: Any) -> Any:
    """The slow, obvious reference: the value with its non-finite numbers by name."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if isinstance(value, list):
        return [named(item) for item in value]
    if isinstance(value, dict):
        return {key: named(item) for key, item in value.items()}
    return value


@given(values)
def test_any_value_becomes_json_that_every_parser_reads(value: Any) -> None:
    assert json.loads(dumps(value), parse_constant=refuse) == named(value)
    assert loads(dumps(value)) == named(value)


@given(values)
def test_indentation_changes_nothing_but_the_looks(value: Any) -> None:
    assert loads(dumps(value, indent=2)) == loads(dumps(value))


@given(st.floats())
def test_any_number_survives_being_written_and_read(value: float) -> None:
    back = to_number(loads(dumps(number(value))))
    assert math.isnan(back) if math.isnan(value) else back == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.float32(0.5), "0.5"),
        (np.float64("nan"), '"NaN"'),
        (np.int64(3), "3"),
        (np.bool_(True), "true"),
        (np.array([[1.0, np.inf]]), '[[1.0, "Infinity"]]'),
        ((1, 2), "[1, 2]"),
        ({3}, "[3]"),
        (MappingProxyType({"a": 1}), '{"a": 1}'),
        (PurePosixPath("runs/demo"), '"runs/demo"'),
        ({"rate": math.nan, "path": PurePosixPath("x")}, '{"rate": "NaN", "path": "x"}'),
    ],
)
def test_what_json_does_not_know_is_written_as_something_it_does(value: Any, text: str) -> None:
    assert dumps(value) == text


@pytest.mark.parametrize("beside", [1.0, math.nan, PurePosixPath("x")])
def test_a_key_is_written_the_same_whatever_stands_beside_it(beside: Any) -> None:
    keys: dict[Any, int] = {None: 0, True: 1, 2: 2, 2.5: 3, "text": 4}
    written = loads(dumps({**keys, "beside": beside}))
    assert list(written) == ["null", "true", "2", "2.5", "text", "beside"]


def test_keys_that_json_does_not_know_become_text() -> None:
    assert loads(dumps({(1, 2): 0, math.nan: 1})) == {"(1, 2)": 0, "NaN": 1}


def test_a_structure_that_holds_itself_many_times_is_written_and_ends() -> None:
    node: dict[str, Any] = {"name": "root"}
    node["children"] = [node, node, {"parent": node}]
    assert loads(dumps(node)) == {"name": "root", "children": ["…", "…", {"parent": "…"}]}


def test_a_value_that_occurs_twice_is_written_twice() -> None:
    shared = [math.nan]
    assert loads(dumps({"a": shared, "b": shared})) == {"a": ["NaN"], "b": ["NaN"]}


def test_bottomless_nesting_is_cut_off_instead_of_ending_the_program() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    assert "…" in str(loads(dumps(nested)))


@pytest.mark.parametrize(
    "text", ["NaN", "[Infinity]", '{"a": -Infinity}', "", "{", "[1,]", "nul", b"\xff", "[" * 100_000]
)
def test_what_is_not_strict_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(FormatError, match="not valid JSON"):
        loads(text)


@pytest.mark.parametrize("value", [None, True, "1", "nan", "inf", [], {}, 10**400])
def test_what_is_not_a_number_is_refused_as_one(value: Any) -> None:
    with pytest.raises(FormatError, match="expected a number"):
        to_number(value)
