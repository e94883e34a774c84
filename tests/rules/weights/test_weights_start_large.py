"""WGT009 weights-start-large."""

import math

import pytest

from sonde.core.model_table import ModelTable, ModuleRow, ParameterRow
from sonde.core.parameter_kinds import Kind
from sonde.rules.weights.weights_start_large import WeightsStartLarge

from ..traces import Row, alarms, judge, rows, worst

FAN_IN = 64


def model(num: int, type_: str = "Linear") -> ModelTable:
    names = [f"layers.{place}" for place in range(num)]
    return ModelTable(
        modules=tuple(ModuleRow(name=name, type=type_, depth=1) for name in names),
        parameters=tuple(
            ParameterRow(name=f"{name}.weight", kind=Kind.MATRIX, shape=(32, FAN_IN), dtype="float32") for name in names
        ),
    )


def begins(*gains: float, outputs: float | None = 3.0, reach: float = math.sqrt(3), moved: float = 0.01) -> list[Row]:
    """Thirty steps of layers with these gains: weights at the first step, outputs at the fifth."""
    table: list[Row] = [*rows(30, loss=1.0)]
    first = dict(table[0]) | {"update/ratio": moved}
    for place, gain in enumerate(gains):
        size = gain / math.sqrt(FAN_IN)
        first |= {f"weight/rms@layers.{place}.weight": size, f"weight/absmax@layers.{place}.weight": reach * size}
        first |= {f"update/ratio@layers.{place}.weight": moved}
        if outputs is not None:
            table[4] = {**table[4], f"act/rms@layers.{place}": outputs}
    return [first, *table[1:]]


@pytest.mark.parametrize("gains", [(0.58, 0.58, 0.58), (1.41, 1.41), (1.0,), (0.6, 0.6, 4.0)])
def test_usual_initialisations_and_a_single_larger_layer_are_silent(gains: tuple[float, ...]) -> None:
    assert judge(WeightsStartLarge(), begins(*gains), model=model(len(gains))) == []


def test_most_layers_too_large_are_a_warning_as_soon_as_an_output_is_seen() -> None:
    ((step, sighting),) = judge(WeightsStartLarge(), begins(5.0, 4.0, 0.6), model=model(3))
    assert step == 5
    assert sighting.where == ("layers.0.weight", "layers.1.weight")
    assert alarms([(step, sighting)])


def test_one_layer_far_too_large_is_enough() -> None:
    assert alarms(judge(WeightsStartLarge(), begins(10.0, 0.6, 0.6), model=model(3)))


def test_outputs_that_stay_small_are_what_the_weights_are_scaled_for() -> None:
    assert judge(WeightsStartLarge(), begins(8.0, 8.0, outputs=0.9), model=model(2)) == []


def test_where_outputs_are_not_measured_the_weights_tell() -> None:
    assert alarms(judge(WeightsStartLarge(), begins(8.0, 8.0, outputs=None), model=model(2)))[0][0] == 21


def test_trained_weights_have_outliers_and_may_have_any_size() -> None:
    assert judge(WeightsStartLarge(), begins(5.0, 5.0, reach=9.0), model=model(2)) == []


def test_what_a_huge_first_update_left_is_not_how_the_weights_began() -> None:
    assert judge(WeightsStartLarge(), begins(16.0, 16.0, moved=0.9), model=model(2)) == []


def test_weights_that_a_huge_rate_made_large_are_not_how_they_began() -> None:
    begun = [{tag: value for tag, value in row.items() if tag != "update/ratio"} for row in begins(5.0, 4.0)]
    table: list[Row] = [{**row, "update/ratio": 0.4} if place == 5 else row for place, row in enumerate(begun)]
    assert judge(WeightsStartLarge(), table, model=model(2)) == []
    table = [{**row, "loss": math.nan} if place > 1 else row for place, row in enumerate(begins(5.0, 4.0))]
    assert judge(WeightsStartLarge(), table, model=model(2)) == []


def test_a_model_that_came_trained_is_information() -> None:
    table = [{**row, "label/entropy": 2.0, "loss": 0.1} for row in begins(8.0, 8.0)]
    assert not alarms(judge(WeightsStartLarge(), table, model=model(2)))
    assert worst(judge(WeightsStartLarge(), table, model=model(2))) is not None


def test_other_matrices_and_runs_without_a_table_are_left_alone() -> None:
    assert judge(WeightsStartLarge(), begins(8.0, 8.0), model=model(2, "Prototypes")) == []
    assert judge(WeightsStartLarge(), begins(8.0, 8.0)) == []
