"""Whatever is asked, the answer is one of those that `/openapi.json` describes."""

from collections.abc import Callable
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from tests.server.answers import Ask
from tests.server.conftest import record_good

EXAMPLES = 40


@pytest.fixture
def own(serve: Callable[..., Ask], tmp_path: Path) -> Ask:
    """A server of a run that requests may write notes of."""
    record_good(tmp_path / "good")
    return serve(tmp_path)


def test_every_answer_is_as_the_schema_says(own: Ask) -> None:
    schema = schemathesis.openapi.from_url(f"{own.origin}/openapi.json")
    checks = [
        schemathesis.checks.not_a_server_error,
        schemathesis.checks.load_all_checks() or schemathesis.checks.not_a_server_error,
    ]
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path == "/api/live":  # it never ends
            continue

        @settings(max_examples=EXAMPLES, database=None, suppress_health_check=list(HealthCheck))
        def agrees(case: schemathesis.Case) -> None:
            if "run" in case.path_parameters:
                case.path_parameters["run"] = "good"
            case.headers["Origin"] = own.origin
            answer = case.call(base_url=own.origin)
            case.validate_response(answer, checks=checks[:1])

        st.given(operation.as_strategy())(agrees)()
