"""SCH008 first-epoch-still and SCH009 first-epoch-spiked."""

from collections.abc import Sequence

import numpy as np
import pytest

from sonde.core.findings import Severity
from sonde.rules.rule import Rule
from sonde.rules.schedules.first_epoch_spiked import FirstEpochSpiked
from sonde.rules.schedules.first_epoch_still import FirstEpochStill

from ..traces import Seen, falling, flat, judge, rows

RULES: tuple[Rule, ...] = (FirstEpochStill(), FirstEpochSpiked())


def _epochs(losses: Sequence[float], *, steps: int = 50, first: int = 1, **more: object) -> list[dict[str, float]]:
    marks = [first + i // steps if (i + 1) % steps == 0 else None for i in range(len(losses))]
    return rows(len(losses), loss=list(losses), epoch=marks, **more)


def _seen(table: list[dict[str, float]]) -> dict[str, list[Seen]]:
    return {rule.code: found for rule in RULES if (found := judge(rule, table))}


def test_a_loss_that_barely_moves_is_told_at_the_end_of_the_first_epoch() -> None:
    seen = _seen(_epochs(flat(150, 2.3, noise=0.005), lr=1e-7))
    assert list(seen) == ["SCH008"]
    ((step, sighting),) = seen["SCH008"]
    assert (step, sighting.severity) == (50, Severity.INFO)
    assert sighting.message.startswith("the loss, 2.3 at first, ")
    assert "in the first epoch (learning rate up to 1e-7)" in sighting.message


@pytest.mark.parametrize("end", [0.5, 4.0], ids=["comes down again", "stays"])
def test_a_loss_that_spikes_is_told_at_the_end_of_the_first_epoch(end: float) -> None:
    losses = [2.3] * 6 + [9.0] * 14 + [end] * 80
    seen = _seen(_epochs(losses, lr=10.0))
    assert list(seen) == ["SCH009"]
    ((step, sighting),) = seen["SCH009"]
    assert (step, sighting.severity) == (50, Severity.INFO)
    assert f"from 2.3 to 9, and ended at {end:.4g}" in sighting.message


def test_a_loss_that_creeps_up_over_the_epoch_is_told() -> None:
    losses = np.linspace(2.0, 2.6, 50) * np.array(flat(50, 1.0, noise=0.02))
    assert list(_seen(_epochs(list(losses)))) == ["SCH009"]


@pytest.mark.parametrize("seed", range(20))
def test_healthy_first_epochs_are_silent(seed: int) -> None:
    assert _seen(_epochs(falling(100, end=1.0, noise=0.1, seed=seed))) == {}
    assert _seen(_epochs(falling(100, start=2.3, end=2.0, noise=0.02, seed=seed))) == {}
    # Noise that may hide a fall, and a level that only wanders.
    assert _seen(_epochs(flat(100, 1.0, noise=0.3, seed=seed))) == {}


def test_single_bad_batches_are_no_spike() -> None:
    losses = falling(100, end=1.0)
    losses[10] = losses[30] = 50.0
    assert _seen(_epochs(losses)) == {}


def test_a_rate_that_is_still_warming_up_cannot_be_too_low_yet() -> None:
    still = flat(100, 2.3, noise=0.005)
    assert _seen(_epochs(still, lr=list(np.linspace(1e-6, 1e-3, 100)))) == {}
    short = np.minimum(np.linspace(1e-4, 1e-2, 100), 1e-3)
    assert list(_seen(_epochs(still, lr=list(short)))) == ["SCH008"]


def test_resumed_runs_short_epochs_and_losses_about_zero_are_not_judged() -> None:
    still = flat(100, 2.3, noise=0.005)
    assert _seen(_epochs(still, first=4)) == {}
    assert _seen(_epochs(still, steps=10)) == {}
    assert _seen(_epochs([loss - 2.4 for loss in still])) == {}
    assert _seen(rows(100, loss=still)) == {}


def test_a_model_that_came_trained_may_stand_still() -> None:
    assert _seen(_epochs(flat(100, 0.3, noise=0.005), label__entropy=2.3)) == {}
