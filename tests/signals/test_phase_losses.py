"""Losses of the phases of learning rates, against the losses of the steps that these phases have."""

import math

import numpy as np
import pytest

from sonde.signals.phase_losses import PhaseLosses, PhaseOut
from sonde.signals.phases import Phase
from sonde.signals.states import dump, load

WARMUP = [1e-4 * step for step in range(1, 21)]
SCHEDULE = [
    *WARMUP,  # 1 to 20
    *[20e-4] * 40,  # constant from 20, the step that reached it, to 60
    *(20e-4 * 0.97 ** np.arange(1, 31)).tolist(),  # decays from 61 to 90
    *[1e-4] * 30,  # has jumped at 91
]
LOSSES = np.random.default_rng(0).normal(3.0, 1.0, len(SCHEDULE) + 1)  # from step 1 on


def followed(rates: list[float], losses: np.ndarray) -> list[PhaseOut]:
    phases = PhaseLosses()
    state, found = phases.init(), []
    for step, rate in enumerate(rates, 1):
        state, over = phases.step(state, step, rate, float(losses[step]))
        found += [over] if over is not None else []
        if step % 7 == 0:
            state = load(dump(state), phases.init())
    last = phases.under_way(state)
    return [*found, *([] if last is None else [last])]


def test_every_phase_has_the_losses_of_its_steps() -> None:
    found = followed(SCHEDULE, LOSSES)
    assert [(out.phase, out.start, out.num_steps) for out in found] == [
        (Phase.WARMUP, 2, 18),
        (Phase.CONSTANT, 20, 41),
        (Phase.DECAY, 61, 30),
        (Phase.CONSTANT, 91, 30),
    ]
    for out in found:
        own = LOSSES[out.start : out.start + out.num_steps]
        assert out.losses.mean == pytest.approx(own.mean())
        assert out.losses.variance == pytest.approx(own.var(ddof=1))


def test_losses_that_are_not_finite_are_left_out_and_steps_are_counted() -> None:
    losses = LOSSES.copy()
    losses[[3, 5]] = math.nan, math.inf
    warmup = followed(SCHEDULE, losses)[0]
    assert warmup.num_steps == 18
    assert warmup.losses.mean == pytest.approx(losses[2:20][np.isfinite(losses[2:20])].mean())


def test_a_rate_that_acts_once_an_epoch_decays_from_its_second_fall_on() -> None:
    found = followed([0.1 * 0.97 ** (step // 15) for step in range(120)], LOSSES)
    assert [(out.phase, out.start, out.num_steps) for out in found] == [
        (Phase.CONSTANT, 1, 15),
        (Phase.CONSTANT, 16, 15),
        (Phase.DECAY, 31, 90),
    ]
    for out in found:
        assert out.losses.mean == pytest.approx(LOSSES[out.start : out.start + out.num_steps].mean())


def test_nothing_is_said_of_few_steps_or_of_no_rate() -> None:
    assert followed([0.1] * 5, LOSSES) == []
    assert followed([math.nan] * 30, LOSSES) == []
