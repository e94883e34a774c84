"""Whatever is asked, the answer is one of those that `/openapi.json` describes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import checks
from tests.server.answers import Ask
from tests.server.conftest import record_good

EXAMPLES = 25
NAMES = {"good": "a run", "damaged": "one that cannot be read", "..": "none"}


@pytest.fixture
def own(serve: Callable[..., Ask], tmp_path: Path) -> Ask:
    """A server of runs that requests may write notes of."""
    record_good(tmp_path / "good")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "run.json").write_text("{")
    return serve(tmp_path)


def agree(operation: Any, ask: Ask, mode: schemathesis.GenerationMode, demanded: list[Any]) -> None:
    """Ask for an operation in many ways, of runs that are there and of others."""
    asked = 0

    @settings(max_examples=EXAMPLES, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode), run=st.sampled_from([*NAMES, None]))
    def answers(case: schemathesis.Case[Any], run: str | None) -> None:
        nonlocal asked
        asked += 1
        if run is not None and "run" in case.path_parameters:
            case.path_parameters["run"] = run
        case.headers["Origin"] = ask.origin
        answer = case.call(base_url=ask.origin)
        case.validate_response(answer, checks=demanded)

    answers()
    assert asked


def test_every_answer_is_as_the_schema_says(own: Ask) -> None:
    schema = schemathesis.openapi.from_url(f"{own.origin}/openapi.json")
    demanded = [
        checks.not_a_server_error,
        *checks.CHECKS.get_by_names(
            ["status_code_conformance", "content_type_conformance", "response_schema_conformance"]
        ),
    ]
    operations: list[Any] = [result.ok() for result in schema.get_all_operations()]  # type: ignore[union-attr]
    assert len(operations) == 13
    for operation in operations:
        if operation.path != "/api/live":  # it never ends
            agree(operation, own, schemathesis.GenerationMode.POSITIVE, demanded)
            agree(operation, own, schemathesis.GenerationMode.NEGATIVE, demanded)
