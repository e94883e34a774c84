"""The diagnosis of stored runs."""

from pathlib import Path

import numpy as np

import sonde
from sonde.diagnosis.doctor import Doctor


def _record(folder: Path, losses: list[float]) -> None:
    with sonde.record(folder) as writer:
        for step, loss in enumerate(losses, 1):
            writer.log(step, {"loss": loss, "lr": 0.1})
            if step % 10 == 0:
                writer.log(step, {"grad/rms@a": 1.0, "grad/rms@b": 2.0}, table="gradients")


def _losses() -> list[float]:
    noise = np.random.default_rng(0).normal(0, 0.02, 400)
    losses = 2 / (1 + np.arange(400) / 50) + noise
    losses[300] += 5
    return [float(loss) for loss in losses]


def test_a_stored_run_and_the_same_rows_one_by_one_give_the_same_findings(tmp_path: Path) -> None:
    _record(tmp_path / "run", _losses())
    run = sonde.load(tmp_path / "run")
    doctor = Doctor()
    frames = sorted((frame for table in run.frames() for frame in table), key=lambda frame: frame.step)
    for frame in frames:
        doctor.frame(frame)
    assert doctor.diagnosis(str(run.path)) == sonde.diagnose(run) == sonde.diagnose(tmp_path / "run")


def test_a_run_that_went_back_is_judged_on_its_current_line(tmp_path: Path) -> None:
    losses = _losses()
    with sonde.record(tmp_path / "run") as writer:
        for step, loss in enumerate(losses[:350], 1):
            writer.log(step, {"loss": loss})
        writer.branch(290)
        for step in range(290, 400):
            writer.log(step, {"loss": losses[step - 2 if step == 301 else step - 1]})
    codes = {finding.code for finding in sonde.diagnose(tmp_path / "run") if finding.severity.is_alarm}
    assert "LOS002" not in codes


def test_what_was_not_measured_is_named(tmp_path: Path) -> None:
    with sonde.record(tmp_path / "run") as writer:
        writer.log(1, {"loss": 1.0})
        writer.event("not-measured", step=1, data={"tag": "act/*", "reason": "compiled"})
    assert sonde.diagnose(tmp_path / "run").not_measured == ("act/*: compiled",)
