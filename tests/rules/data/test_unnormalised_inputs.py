from typing import Any

import pytest
from tests.rules.traces import falling, judge, rows, worst

from sonde.core.findings import Severity
from sonde.rules.data.unnormalised_inputs import UnnormalisedInputs
from sonde.rules.step_view import Fact


def facts(**numbers: Any) -> dict[int, list[Fact]]:
    return {2: [Fact("preflight", {"check": "input-scale", "where": ["conv1"], **numbers})]}


@pytest.mark.parametrize(
    "numbers", [{"value": 44.0, "offset": 134.0}, {"value": 5.0, "spread": 4000.0}, {"value": 1.0, "offset": 50.0}]
)
def test_scales_that_are_far_off_are_information_at_first_and_where_all_is_learned_and_else_a_warning(
    numbers: dict[str, Any],
) -> None:
    seen = judge(UnnormalisedInputs(), rows(200, loss=falling(200)), facts=facts(**numbers))
    assert [sighting.severity for _, sighting in seen] == 48 * [Severity.INFO] + 151 * [Severity.WARNING]
    assert seen[0][1].where == ("conv1",)
    solved = rows(300, loss=[*falling(40, end=0.0), *[1e-5] * 260])
    assert judge(UnnormalisedInputs(), solved, facts=facts(**numbers))[-1][1].severity is Severity.INFO
    assert worst(judge(UnnormalisedInputs(), rows(200, loss=1.6), facts=facts(**numbers))) is Severity.WARNING


@pytest.mark.parametrize("numbers", [{"value": 1.1, "spread": 1.3, "offset": 0.2}, {"value": 0.3, "spread": 40.0}])
def test_ordinary_scales_are_left_alone_even_where_nothing_is_learned(numbers: dict[str, Any]) -> None:
    assert judge(UnnormalisedInputs(), rows(200, loss=1.6), facts=facts(**numbers)) == []
    assert judge(UnnormalisedInputs(), rows(200, loss=1.6)) == []


def test_each_of_several_models_has_inputs_of_its_own() -> None:
    said = facts(value=1.0)
    said[2] += facts(value=200.0)[2]
    said[2][1] = said[2][1]._replace(data={**said[2][1].data, "where": ["D.0"]})
    assert judge(UnnormalisedInputs(), rows(200, loss=1.6), facts=said)[-1][1].where == ("D.0",)
