import pytest

from sonde.core.findings import Severity
from sonde.rules.activations.variance_with_depth import VarianceWithDepth

from ..traces import alarms, flat, judge, rows


@pytest.mark.parametrize("factor", [4.0, 0.25])
def test_geometric_growth_or_decay_is_information_at_the_first_look_at_all(factor: float) -> None:
    sizes = {f"act/rms@blocks.{block}": factor**block for block in range(12)}
    ((step, sighting),) = judge(VarianceWithDepth(), [{"loss": 1.0}, sizes])
    assert (step, sighting.severity) == (2, Severity.INFO)
    assert sighting.where == ("blocks.0", "blocks.11")


def test_it_is_a_warning_once_training_is_known_to_be_stuck() -> None:
    table = rows(110, loss=flat(110, noise=0.01))
    table[5] |= {f"act/rms@{layer}": 5.0**layer for layer in range(4)}
    assert alarms(judge(VarianceWithDepth(), table))[0][0] == 100


def test_a_residual_stream_that_grows_like_a_root_is_healthy() -> None:
    assert not judge(VarianceWithDepth(), [{f"act/rms@blocks.{block}": (1 + block) ** 0.5 for block in range(48)}])


def test_modules_of_other_kinds_are_not_a_chain() -> None:
    assert not judge(VarianceWithDepth(), [{"act/rms@stem": 1.0, "act/rms@body": 100.0, "act/rms@head": 1e4}])
