"""WGT005 identical-units."""

import pytest

from sonde.core.findings import Severity
from sonde.core.parameter_kinds import Kind
from sonde.rules.weights.identical_units import IdenticalUnits

from ..traces import falling, flat, judge, rows, table, worst


def _matrix(name: str, rank: float, largest: float, smallest: float) -> dict[str, float]:
    parts = {"effective_rank": rank, "largest": largest, "smallest": smallest}
    return {f"spectrum/{part}@{name}": value for part, value in parts.items()}


def _run(losses: list[float], matrix: dict[str, float]) -> list[dict[str, float]]:
    given = rows(len(losses), loss=losses)
    given[1] |= matrix
    return given


def test_rank_one_is_a_warning_where_training_is_impaired_and_information_elsewhere() -> None:
    matrix = _matrix("h.weight", 1.0, 2.0, 0.0)
    seen = judge(IdenticalUnits(), _run(flat(200, noise=0.01), matrix))
    assert seen[0][0] == 2
    assert worst(seen) is Severity.WARNING
    assert seen[0][1].where == ("h.weight",)
    assert worst(judge(IdenticalUnits(), _run([2 * 0.97**i for i in range(200)], matrix))) is Severity.INFO


def test_a_single_row_full_rank_and_zeroed_matrices_are_silent() -> None:
    for matrix in (_matrix("out", 1.0, 2.0, 2.0), _matrix("h", 30.0, 2.0, 0.1), _matrix("z", 1.0, 0.0, 0.0)):
        assert judge(IdenticalUnits(), _run(flat(150), matrix)) == []


def _constant(rms: float) -> list[dict[str, float]]:
    given = rows(30, loss=falling(30), weight__std_at_h_weight=0.0, weight__rms_at_h_weight=rms)
    return [{tag.replace("h_weight", "h.weight"): value for tag, value in row.items()} for row in given]


@pytest.mark.parametrize("value", [0.3, 1.0])
def test_a_constant_matrix_is_seen_before_its_spectrum_whatever_its_value(value: float) -> None:
    model = table(h__weight=(Kind.MATRIX, (8, 8)))
    assert judge(IdenticalUnits(), _constant(value), model=model)[0][1].where == ("h.weight",)


def test_scales_zeros_and_matrices_of_few_values_are_not_taken_for_equal_units() -> None:
    assert judge(IdenticalUnits(), _constant(0.3), model=table(h__weight=(Kind.NORMALISATION, (64,)))) == []
    assert judge(IdenticalUnits(), _constant(0.3), model=table(h__weight=(Kind.MATRIX, (1, 1)))) == []
    assert judge(IdenticalUnits(), _constant(0.0), model=table(h__weight=(Kind.MATRIX, (8, 8)))) == []
    assert judge(IdenticalUnits(), _constant(0.3)) == [], "how many values it has is not known"
