import pytest

from sonde.core.findings import Severity
from sonde.rules.activations.variance_with_depth import VarianceWithDepth

from ..traces import alarms, flat, judge, rows, worst


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


def biases(table: list[dict[str, float]], factor: float) -> list[dict[str, float]]:
    """Gradients of the biases of twelve blocks at every tenth step, each `factor` times the next one's."""
    sizes = {f"grad/rms@blocks.{block}.up.bias": factor ** (11 - block) for block in range(12)}
    return [row | sizes if step % 10 == 0 else row for step, row in enumerate(table)]


def test_gradients_of_biases_that_grow_from_the_start_under_a_first_loss_far_too_high_are_a_warning() -> None:
    losses = [100.0, 60.0, 30.0, *flat(57, 5.0)]
    seen = judge(VarianceWithDepth(), biases(rows(60, loss=losses), 1.6))
    assert seen[0][0] == 11
    assert alarms(seen)[0][0] == 21
    assert seen[0][1].where == ("blocks.0.up.bias", "blocks.11.up.bias")


def test_under_an_ordinary_first_loss_they_are_information() -> None:
    assert worst(judge(VarianceWithDepth(), biases(rows(60, loss=flat(60)), 1.6))) is Severity.INFO


def test_a_first_loss_far_above_guessing_tells_as_well_unless_it_is_a_sum() -> None:
    known = {"label__entropy": 1.4, "batch__size": 64.0}
    assert alarms(judge(VarianceWithDepth(), biases(rows(60, loss=flat(60, 800.0), **known), 1.6)))
    assert not alarms(judge(VarianceWithDepth(), biases(rows(60, loss=flat(60, 1.4 * 64), **known), 1.6)))


def test_gradients_that_fade_grow_little_or_grow_later_say_nothing() -> None:
    losses = [100.0, 60.0, 30.0, *flat(57, 5.0)]
    assert not judge(VarianceWithDepth(), biases(rows(60, loss=losses), 1.15))
    assert not judge(VarianceWithDepth(), biases(rows(60, loss=losses), 0.6))
    later = biases(rows(60, loss=losses), 1.1)[:20] + biases(rows(60, loss=losses), 1.6)[20:]
    assert not judge(VarianceWithDepth(), later)
