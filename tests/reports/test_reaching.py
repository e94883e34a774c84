"""What it took to reach a target, against plain sums."""

from pathlib import Path

import numpy as np
import pytest

import sonde
from sonde.core.errors import TagNotFound
from sonde.reports.reaching import reached


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> sonde.Run:
    folder = tmp_path_factory.mktemp("reaching") / "run"
    random = np.random.default_rng(0)
    with sonde.record(folder) as writer:
        for step in range(1, 101):
            seconds, samples = float(random.uniform(0.1, 0.3)), 8 * (1 + step % 3)
            row = {"loss": 2.0 - step / 50, "time/step": seconds, "throughput/samples_per_s": samples / seconds}
            writer.log(row | ({"val/accuracy": step / 100} if step % 10 == 0 else {}), step=step)
            if step % 25 == 2:
                writer.log({"flops/step": 1e9 + step}, step=step, table="flops")
    return sonde.load(folder)


def test_time_samples_and_operations_are_sums_up_to_the_step(run: sonde.Run) -> None:
    found = reached(run, "loss", 1.2)
    step = 40
    assert found.step == step
    times = run.series("time/step").value.astype(np.float64)[:step]
    assert found.seconds == pytest.approx(times.sum())
    assert found.samples == pytest.approx(sum(8 * (1 + i % 3) for i in range(1, step + 1)), rel=1e-6)
    assert found.flops == pytest.approx(step * np.mean([1e9 + 2, 1e9 + 27]), rel=1e-6)
    assert found.per_unit(found.seconds) == pytest.approx(times.sum() / (1.98 - 1.2), rel=1e-5)
    assert found.target == pytest.approx(1.2)
    assert str(found).startswith("loss 1.2: reached at step 40, ")


def test_a_metric_that_rises_is_reached_from_below(run: sonde.Run) -> None:
    assert reached(run, "val/accuracy", 0.35).step == 40


def test_a_target_that_is_not_reached_names_the_closest_value(run: sonde.Run) -> None:
    found = reached(run, "loss", -1.0)
    assert (found.step, found.seconds) == (None, None)
    assert str(found) == "loss -1: not reached, the closest is 0"


def test_what_a_run_does_not_tell_is_not_measured(tmp_path: Path) -> None:
    with sonde.record(tmp_path / "run") as writer:
        for step in range(1, 5):
            writer.log({"loss": 1.0 / step}, step=step)
    found = reached(sonde.load(tmp_path / "run"), "loss", 0.5)
    assert str(found) == "loss 0.5: reached at step 2; not measured: time, samples, FLOPs"


def test_a_series_that_is_not_there_is_refused(run: sonde.Run) -> None:
    with pytest.raises(TagNotFound):
        reached(run, "val/los", 1.0)
