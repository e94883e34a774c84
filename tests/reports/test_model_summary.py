from sonde.core.model_table import ModelTable, ModuleRow, ParameterRow
from sonde.core.parameter_kinds import Kind
from sonde.reports.model_summary import parts, sentence


def _table(*names: str, **types: str) -> ModelTable:
    rows = (ParameterRow(name=name, kind=Kind.MATRIX, shape=(2, 3), dtype="float32") for name in names)
    modules = (ModuleRow(name=n.replace("__", "."), type=t, depth=n.count("__")) for n, t in types.items())
    return ModelTable(modules=tuple(modules), parameters=tuple(rows))


def _names(table: ModelTable) -> list[tuple[str, int]]:
    return [(part.name, part.num_modules) for part in parts(table)]


def test_members_of_a_list_are_one_part() -> None:
    names = ("m.wte.weight", *(f"m.h.{i}.{what}" for i in range(12) for what in ("up.weight", "down.weight")), "head.w")
    found = parts(_table(*names, m__h__0="Block", m__h__11="Block"))
    assert [(part.name, part.type, part.num_modules) for part in found] == [
        ("m.wte", "", 1),
        ("m.h.0 … m.h.11", "Block", 12),
        ("head", "", 1),
    ]
    assert found[1].num_values == 24 * 6


def test_layers_of_a_sequential_are_parts_each_also_where_models_have_names() -> None:
    assert _names(_table("0.weight", "1.0.weight", "1.1.weight")) == [("0", 1), ("1", 1)]
    assert _names(_table("G.0.weight", "G.1.weight", "D.weight", G="Sequential", D="Linear")) == [
        ("G.0", 1),
        ("G.1", 1),
        ("D", 1),
    ]


def test_a_parameter_of_the_model_itself_is_the_models() -> None:
    assert _names(_table("weight")) == [("model", 1)]


def test_the_sentence_tells_what_is_frozen_shared_and_missing() -> None:
    row = ParameterRow(name="a", kind=Kind.BIAS, shape=(4,), dtype="float16", trainable=False, tied=("b",))
    table = ModelTable(parameters=(row,), left_out={"lazy and not used yet": 2})
    assert sentence(table) == (
        "1 parameter with 4 values in 0 modules; 4 of the values are frozen; 1 parameter shared under several names; "
        "float16; 2 more modules and parameters are not in the table: lazy and not used yet"
    )
