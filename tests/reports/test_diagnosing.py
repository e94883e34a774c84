"""The diagnosis of stored runs."""

from pathlib import Path

import numpy as np

import sonde
from sonde.core.findings import Finding
from sonde.diagnosis.doctor import Doctor


def _record(folder: Path, losses: list[float]) -> None:
    with sonde.record(folder) as writer:
        for step, loss in enumerate(losses, 1):
            writer.log({"loss": loss, "lr": 0.1}, step=step)
            if step % 10 == 0:
                writer.log({"grad/rms@a": 1.0, "grad/rms@b": 2.0}, step=step, table="gradients")


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
            writer.log({"loss": loss}, step=step)
        writer.branch(290)
        for step in range(290, 400):
            writer.log({"loss": losses[step - 2 if step == 301 else step - 1]}, step=step)
    codes = {finding.code for finding in sonde.diagnose(tmp_path / "run") if finding.severity.is_alarm}
    assert "LOS002" not in codes


def test_what_was_not_measured_is_named(tmp_path: Path) -> None:
    with sonde.record(tmp_path / "run") as writer:
        writer.log({"loss": 1.0}, step=1)
        writer.event("not-measured", step=1, data={"tag": "act/*", "reason": "compiled"})
    assert sonde.diagnose(tmp_path / "run").not_measured == ("act/*: compiled",)


def test_findings_are_told_as_they_become_known(tmp_path: Path) -> None:
    _record(tmp_path / "run", _losses())
    told = list[Finding]()
    final = sonde.diagnose(tmp_path / "run", on_finding=told.append)
    assert final == sonde.diagnose(tmp_path / "run")
    steps = [finding.last_step for finding in told]
    assert steps == sorted(steps)
    assert {finding.code for finding in told} == {finding.code for finding in final}
    spike = next(finding for finding in told if finding.code == "LOS002")
    assert 301 <= spike.last_step <= 303


def _record_ranks(folder: Path, parameters: tuple[str, str]) -> None:
    """Two ranks whose weights part at step 25."""
    for rank, name in enumerate(parameters):
        with sonde.record(folder / "ranks" / str(rank) if rank else folder) as writer:
            for step in range(1, 61):
                norm = 3 + rank * 1e-3 * max(0, step - 24)
                writer.log({"loss": 1 / step, "weight/norm": norm, f"weight/norm@{name}": norm}, step=step)


def test_ranks_that_part_are_told_at_the_step_at_which_they_do(tmp_path: Path) -> None:
    _record_ranks(tmp_path, ("a.weight", "a.weight"))
    told = list[Finding]()
    sonde.diagnose(tmp_path, on_finding=told.append)
    assert [(one.first_step, one.last_step) for one in told if one.code == "DST002"] == [(25, 25)]


def test_ranks_with_other_parameters_each_are_not_held_against_each_other(tmp_path: Path) -> None:
    _record_ranks(tmp_path, ("a.weight", "b.weight"))
    assert not [finding for finding in sonde.diagnose(tmp_path) if finding.code == "DST002"]
