"""Weights that are made anew, and what only looks so."""

import numpy as np

from sonde.core.findings import Severity
from sonde.rules.weights.weights_start_over import WeightsStartOver

from ..traces import falling, judge, rows

_NAMES = ("0.weight", "2.weight", "4.weight")


def run(reset: int | None, *, num: int = 200, loses: bool = True, grows: bool = True) -> list[dict[str, float]]:
    """Weights grow by a third and the loss falls, until both begin anew."""
    losses = falling(num)
    table = rows(num, loss=losses[:reset] + (losses[: num - reset] if loses else losses[reset:]) if reset else losses)
    for step in range(0, num, 10):
        age = step - reset if reset is not None and step >= reset else step
        growth = 1 + 0.3 * (1 - np.exp(-age / 50)) if grows else 1.0
        table[step] |= {f"weight/rms@{name}": 0.1 * (place + 1) * growth for place, name in enumerate(_NAMES)}
    return table


def test_weights_and_loss_that_begin_anew_are_an_alarm_within_ten_steps_of_the_look() -> None:
    seen = judge(WeightsStartOver(), run(100))
    assert len(seen) == 1
    step, sighting = seen[0]
    assert 101 < step <= 111
    assert sighting.severity is Severity.WARNING
    assert sighting.since == 101
    assert "back at the size" in sighting.message


def test_a_training_that_goes_well_has_none() -> None:
    assert not judge(WeightsStartOver(), run(None))


def test_weights_that_are_rewound_without_harm_and_a_loss_that_leaps_by_itself_are_none() -> None:
    assert not judge(WeightsStartOver(), run(100, loses=False))
    assert not judge(WeightsStartOver(), run(100, grows=False))


def test_weights_that_are_not_numbers_are_left_out() -> None:
    table = run(100)
    table[100] |= {f"weight/rms@{name}": float("nan") for name in _NAMES}
    table[120] |= {f"weight/rms@{name}": float("inf") for name in _NAMES}
    judge(WeightsStartOver(), table)
