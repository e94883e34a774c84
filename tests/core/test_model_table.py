import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.core import strict_json
from sonde.core.errors import FormatError
from sonde.core.model_table import NO_ROOM, ModelTable, ModuleRow, ParameterRow, Passed
from sonde.core.parameter_kinds import Kind
from sonde.core.tags import is_name

_NAMES = st.text(min_size=1, max_size=40).filter(is_name)
_WORDS = st.text(alphabet="abcXYZ01é_.", min_size=1, max_size=20)
_SHAPES = st.lists(st.integers(0, 9999), max_size=4).map(tuple)
_MODULES = st.builds(
    ModuleRow,
    name=_NAMES,
    type=_WORDS,
    depth=st.integers(0, 40),
    input=st.none() | _SHAPES,
    output=st.none() | _SHAPES,
)
_PARAMETERS = st.builds(
    ParameterRow,
    name=_NAMES,
    kind=st.sampled_from(Kind),
    shape=_SHAPES,
    dtype=_WORDS,
    device=st.just("") | _WORDS,
    trainable=st.booleans(),
    group=st.none() | st.integers(0, 99),
    optimizer=st.just("") | _WORDS,
    tied=st.lists(_NAMES, max_size=16).map(tuple),
)
_TABLES = st.builds(
    ModelTable,
    modules=st.lists(_MODULES, max_size=4).map(tuple),
    parameters=st.lists(_PARAMETERS, max_size=4).map(tuple),
    left_out=st.dictionaries(_WORDS, st.integers(0, 9), max_size=2),
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)

PLAIN: dict[str, Any] = ModelTable(
    modules=(ModuleRow(name="head", type="Linear", depth=1),),
    parameters=(ParameterRow(name="head.weight", kind=Kind.MATRIX, shape=(10, 64), dtype="float32", group=0),),
).to_json()


def _matrix(name: str, *shape: int) -> ParameterRow:
    return ParameterRow(name=name, kind=Kind.MATRIX, shape=shape, dtype="float32", device="cuda:0")


@given(_TABLES)
def test_a_table_is_read_as_it_was_written(table: ModelTable) -> None:
    assert ModelTable.from_json(strict_json.loads(strict_json.dumps(table.to_json()))) == table


@settings(max_examples=300)
@given(st.data())
def test_whatever_stands_in_place_of_a_member_is_refused_or_read_and_nothing_else(data: st.DataObject) -> None:
    plain = json.loads(json.dumps(PLAIN))
    places = [plain, plain["modules"][0], plain["parameters"][0]]
    place = data.draw(st.sampled_from(places))
    place[data.draw(st.sampled_from([*place, "tied", "trainable", "optimizer", "device", "input", "output"]))] = (
        data.draw(_JSON)
    )
    try:
        table = ModelTable.from_json(plain)
    except FormatError:
        return
    assert table.num_values >= 0
    assert all(is_name(name) for name in [row.name for row in table.modules] + [row.name for row in table.parameters])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", "two\nlines"),
        ("name", "x" * 1000),
        ("kind", "soul"),
        ("shape", [10, -1]),
        ("shape", [1] * 65),
        ("shape", [1 << 40, 1 << 40]),
        ("dtype", "\x1b[31m"),
        ("device", "\x1b[31m"),
        ("device", 0),
        ("group", True),
        ("tied", ["a"] * 17),
    ],
)
def test_a_parameter_that_no_model_can_have_makes_it_no_table(key: str, value: Any) -> None:
    wrong = {**PLAIN, "parameters": [{**PLAIN["parameters"][0], key: value}]}
    with pytest.raises(FormatError, match=key):
        ModelTable.from_json(wrong)


@pytest.mark.parametrize(("key", "value"), [("input", [2, -1]), ("output", [1] * 65), ("output", 3), ("input", None)])
def test_a_shape_that_no_tensor_can_have_makes_it_no_table(key: str, value: Any) -> None:
    with pytest.raises(FormatError, match=key):
        ModelTable.from_json({**PLAIN, "modules": [{**PLAIN["modules"][0], key: value}]})


def test_a_table_of_a_run_before_shapes_and_devices_is_read_without_them() -> None:
    assert set(PLAIN["modules"][0]) == {"name", "type", "depth"}
    assert "device" not in PLAIN["parameters"][0]
    table = ModelTable.from_json(PLAIN)
    assert (table.modules[0].input, table.modules[0].output, table.parameters[0].device) == (None, None, "")


def test_shapes_are_added_by_name_and_the_rest_stays() -> None:
    table = ModelTable.from_json(PLAIN)
    added = table.with_shapes({"head": Passed((2, 64), (2, 10)), "gone": Passed((1,), None)})
    assert added.modules == (ModuleRow(name="head", type="Linear", depth=1, input=(2, 64), output=(2, 10)),)
    assert added.parameters == table.parameters


def test_a_table_of_another_version_is_refused() -> None:
    with pytest.raises(FormatError, match="version: expected 1, got 2"):
        ModelTable.from_json({**PLAIN, "version": 2})


def test_the_table_of_a_hundred_thousand_parameters_fits_and_beyond_its_room_rows_are_counted() -> None:
    many = tuple(_matrix(f"blocks.{i}.attention.projection.weight", 1024, 1024) for i in range(100_000))
    assert ModelTable(parameters=many).to_json()["left_out"] == {}
    long = tuple(_matrix(f"{i}{'é' * 900}", 4, 4) for i in range(10_000))
    told = ModelTable(parameters=long).to_json()
    assert len(strict_json.dumps(told)) < 24 << 20
    assert len(told["parameters"]) + told["left_out"][NO_ROOM] == 10_000


@pytest.mark.parametrize(
    ("rows", "width"),
    [
        ([_matrix("0", 16, 3, 3, 3), _matrix("1", 16, 16, 3, 3), _matrix("2", 10, 16)], 16),
        ([_matrix("0", 64, 8), _matrix("1", 2, 64)], 64),
        ([_matrix("rnn.ih", 4 * 32, 5), _matrix("rnn.hh", 4 * 32, 32)], 32),
        ([_matrix("0", 64, 8)], None),
        ([], None),
    ],
)
def test_the_width_is_that_of_the_layers_inside_not_of_inputs_or_outputs(
    rows: list[ParameterRow], width: int | None
) -> None:
    assert ModelTable(parameters=tuple(rows)).width == width


def test_values_are_counted_and_frozen_ones_told_apart() -> None:
    frozen = ParameterRow(name="b", kind=Kind.BIAS, shape=(), dtype="float32", trainable=False)
    table = ModelTable(parameters=(_matrix("a", 3, 4), frozen))
    assert (table.num_values, table.num_trainable) == (13, 12)
