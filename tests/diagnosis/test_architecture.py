from sonde.core.model_table import ModelTable, ModuleRow, ParameterRow
from sonde.core.parameter_kinds import Kind
from sonde.diagnosis.architecture import module_changes, parameter_changes, told


def _row(name: str, *shape: int, dtype: str = "float32", trainable: bool = True) -> ParameterRow:
    return ParameterRow(name=name, kind=Kind.MATRIX, shape=shape, dtype=dtype, trainable=trainable)


def _model(*parameters: ParameterRow, modules: dict[str, str] | None = None) -> ModelTable:
    rows = tuple(ModuleRow(name=name, type=kind, depth=name.count(".") + 1) for name, kind in (modules or {}).items())
    return ModelTable(modules=rows, parameters=parameters)


def _words(first: ModelTable, second: ModelTable) -> list[str]:
    return list(told(parameter_changes(first, second), module_changes(first, second)))


def test_models_that_are_alike_differ_in_nothing() -> None:
    model = _model(_row("a", 2, 3), modules={"act": "ReLU"})
    assert _words(model, model) == []


def test_added_removed_and_resized_parameters_are_told_with_their_shapes() -> None:
    first, second = _model(_row("a", 16, 8), _row("old", 4)), _model(_row("a", 32, 8), _row("new"))
    assert _words(first, second) == ["a  16×8 → 32×8", "old  removed 4", "new  added a number"]


def test_another_format_and_frozen_parameters_are_told_together() -> None:
    names = ("a", "b", "c", "d")
    first = _model(*(_row(name, 2) for name in names))
    short = _model(*(_row(name, 2, dtype="bfloat16") for name in names))
    assert _words(first, short) == ["a, b, c and 1 more  float32 → bfloat16"]
    frozen = _model(*(_row(name, 2, trainable=name > "b") for name in names))
    assert _words(first, frozen) == ["a, b  frozen here, trained in the reference"]
    assert _words(frozen, first) == ["a, b  trained here, frozen in the reference"]


def test_modules_without_parameters_count_too_and_of_new_ones_the_outermost() -> None:
    first = _model(modules={"act": "ReLU", "drop": "Dropout"})
    second = _model(modules={"act": "GELU", "extra": "Sequential", "extra.0": "Tanh"})
    assert _words(first, second) == ["act  ReLU → GELU", "drop  Dropout removed", "extra  Sequential added"]
