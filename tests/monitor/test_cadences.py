"""The document about cadences has the defaults that the code has."""

import re
from dataclasses import fields
from pathlib import Path

from sonde.probes.cadences import ON_CPU, ON_GPU, Cadences

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "choose-cadences.md"


def test_the_table_of_defaults_equals_the_code() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| (\d+) \|", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert [(name, int(on_gpu), int(on_cpu)) for name, on_gpu, on_cpu in rows] == [
        (field.name, getattr(ON_GPU, field.name).interval_steps, getattr(ON_CPU, field.name).interval_steps)
        for field in fields(Cadences)
        if field.name != "early_steps"
    ]


def test_nothing_that_hooks_modules_has_its_turn_in_the_first_iteration() -> None:
    for cadences in (ON_GPU, ON_CPU):
        assert not any(getattr(cadences, family).due(0) for family in ("blocks", "resources", "batches"))
