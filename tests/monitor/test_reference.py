"""Every recorded number of trainings at random, against plain float64 torch."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import sonde

from .random_trainings import EVERY_STEP, Training, settings_of
from .truth import LEFT_OUT, Truth

NUM_SEEDS = 50


def disagreements(run: Path, truth: Truth) -> list[str]:
    """Where a recorded series is not what it should be, or is not known at all."""
    stored = sonde.load(run)
    series = {tag: stored.series(tag) for tag in stored.tags() if not tag.startswith(LEFT_OUT)}
    recorded = {tag: found.step.tolist() for tag, found in series.items()}
    wrong: list[str] = []
    for tag, found in series.items():
        times: Counter[int] = Counter()
        for step, value in zip(recorded[tag], found.value.tolist(), strict=True):
            times[step] += 1
            try:
                expected = truth.expected(tag, step, recorded, times[step] - 1)
            except (KeyError, IndexError, ZeroDivisionError, ValueError) as error:
                wrong.append(f"{tag} at step {step} is {value:.9g}; the reference has nothing: {error!r}")
                continue
            if not expected.agrees(value):
                wrong.append(f"{tag} at step {step} is {value:.9g}, not {expected.value:.9g}")
    return wrong


@pytest.mark.parametrize("seed", range(NUM_SEEDS))
def test_every_recorded_series_agrees_at_every_step(tmp_path: Path, seed: int) -> None:
    training = Training(seed)
    wrong = disagreements(tmp_path / "run", training.run(tmp_path / "run"))
    assert not wrong, f"{training.settings}\n" + "\n".join(wrong[:20])


def test_every_recorded_series_agrees_over_a_thousand_steps_at_default_settings(tmp_path: Path) -> None:
    settings = replace(
        settings_of(0), kind="mlp", cadence=None, num_steps=1050, num_micro=1, autocast=False, scaler=False, budget=0.01
    )
    training = Training(1, replace(settings, poison=None, schedule=False, doctor="thread", magnitude=1.0))
    wrong = disagreements(tmp_path / "run", training.run(tmp_path / "run"))
    assert not wrong, "\n".join(wrong[:20])


def test_every_recorded_series_agrees_where_the_trajectory_is_known(tmp_path: Path) -> None:
    settings = replace(settings_of(0), kind="mlp", cadence=EVERY_STEP, num_steps=70, num_micro=1, scaler=False)
    training = Training(2, replace(settings, poison=None, clip="norm", autocast=False, magnitude=1.0))
    wrong = disagreements(tmp_path / "run", training.run(tmp_path / "run"))
    assert not wrong, "\n".join(wrong[:20])
    assert len(sonde.load(tmp_path / "run").series("grad/trajectory_dimension").step) == 7
