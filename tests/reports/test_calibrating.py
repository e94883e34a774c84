import math
import tomllib
from pathlib import Path

import numpy as np
import pytest

import sonde
from sonde.core.errors import FormatError, RunNotFound
from sonde.reports.calibrating import Calibration, calibrate
from sonde.rules.configuring import configured
from sonde.store.profiles import read_profile


def spiky(path: Path, height: float, *, seed: int = 0) -> Path:
    """A run that is good although its loss jumps every sixty steps."""
    generator = np.random.default_rng(seed)
    with sonde.record(path) as writer:
        for step in range(1, 301):
            loss = 2 * step**-0.3 * (1 + 0.02 * generator.normal())
            writer.log({"loss": loss * (height if step > 150 and step % 60 == 0 else 1.0), "lr": 1e-3}, step=step)
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    return [spiky(folder / f"run-{i}", height, seed=i) for i, height in enumerate((5.0, 1.0, 5.2, 3.0))]


@pytest.fixture(scope="module")
def calibration(runs: list[Path]) -> Calibration:
    return calibrate(runs)


def test_good_runs_fall_silent_and_the_rates_say_so(runs: list[Path], calibration: Calibration) -> None:
    assert (calibration.before, calibration.after) == (0.75, 0.0)
    assert 0 <= calibration.held_out < calibration.before
    (change,) = calibration.changes
    assert (change.code, change.setting) == ("LOS002", "critical"), "one high loss alarms by that alone"
    assert change.after > change.before
    assert change.runs == tuple(str(runs[i]) for i in (0, 2, 3))
    rules = configured(calibration.profile)
    assert all(not any(f.severity.is_alarm for f in sonde.diagnose(run, rules=rules)) for run in runs)


def test_the_margin_is_real_and_a_true_spike_is_still_found(calibration: Calibration, tmp_path: Path) -> None:
    rules = configured(calibration.profile)
    assert not any(f.severity.is_alarm for f in sonde.diagnose(spiky(tmp_path / "like", 5.4, seed=9), rules=rules))
    assert any(f.code == "LOS002" for f in sonde.diagnose(spiky(tmp_path / "worse", 60.0, seed=9), rules=rules))


def test_the_profile_survives_its_file(runs: list[Path], calibration: Calibration, tmp_path: Path) -> None:
    file = tmp_path / "profile.toml"
    file.write_text(calibration.to_toml(), encoding="utf-8")
    assert read_profile(file) == calibration.profile
    for profile in (file, str(file), calibration.profile):
        assert not any(finding.severity.is_alarm for finding in sonde.diagnose(runs[0], profile=profile))
    assert "75% before, 0% after" in file.read_text(encoding="utf-8")


def test_runs_without_alarms_change_nothing(runs: list[Path]) -> None:
    calibration = calibrate([runs[1]])
    assert calibration.profile == {}
    assert math.isnan(calibration.held_out)
    assert tomllib.loads(calibration.to_toml()) == {}


def test_what_no_setting_can_silence_is_said(tmp_path: Path) -> None:
    with sonde.record(tmp_path / "broken") as writer:
        for step in range(1, 101):
            writer.log({"loss": math.nan if step > 60 else 1 / step}, step=step)
    calibration = calibrate([tmp_path / "broken"])
    assert calibration.left["LOS001"] == (str(tmp_path / "broken"),)
    assert calibration.after == 1.0
    assert "are these runs good?" in str(calibration)


def test_a_run_that_stands_out_counts_as_held_out(tmp_path: Path) -> None:
    runs = [spiky(tmp_path / "calm-1", 1.0), spiky(tmp_path / "calm-2", 1.0, seed=1), spiky(tmp_path / "wild", 5.0)]
    assert calibrate(runs).held_out == pytest.approx(1 / 3)


def test_a_profile_that_names_what_is_not_there_is_refused(runs: list[Path]) -> None:
    with pytest.raises(ValueError, match=r"LOS002\.warning"):
        sonde.diagnose(runs[0], profile={"LOS002.warnin": 9.0})
    with pytest.raises(ValueError, match="not both"):
        sonde.diagnose(runs[0], rules=[], profile={})


def test_wrong_arguments_are_refused(runs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one run"):
        calibrate([])
    with pytest.raises(ValueError, match="margin"):
        calibrate(runs, margin=0.5)
    with pytest.raises(RunNotFound):
        calibrate([tmp_path / "none"])


@pytest.mark.parametrize("text", ["LOS002.warning = ", "[LOS002.warning]\nmore = 1"])
def test_a_file_that_is_no_profile_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "profile.toml").write_text(text, encoding="utf-8")
    with pytest.raises(FormatError, match=r"profile\.toml"):
        read_profile(tmp_path / "profile.toml")


def test_a_profile_may_leave_rules_out(tmp_path: Path) -> None:
    (tmp_path / "profile.toml").write_text("GEN003 = false\n[LOS002]\nwarning = 9\n", encoding="utf-8")
    assert read_profile(tmp_path / "profile.toml") == {"GEN003": False, "LOS002.warning": 9}
