import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import sonde

Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """A folder with two good runs whose loss jumps now and then."""
    for name in ("a", "b"):
        generator = np.random.default_rng(ord(name))
        with sonde.record(tmp_path / "good" / name) as writer:
            for step in range(1, 301):
                loss = 2 * step**-0.3 * (1 + 0.02 * generator.normal())
                writer.log({"loss": loss * (5 if step > 150 and step % 60 == 0 else 1)}, step=step)
    return tmp_path / "good"


def test_the_profile_is_written_and_silences_the_runs(call: Call, good: Path, tmp_path: Path) -> None:
    file = tmp_path / "profile.toml"
    assert call("diagnose", good / "a").returncode == 1
    outcome = call("calibrate", good, "-o", file)
    assert (outcome.returncode, outcome.stderr) == (0, "")
    assert "100% before, 0% after" in outcome.stdout
    assert "LOS002.critical" in outcome.stdout
    assert call("diagnose", good / "a", "--profile", file).returncode == 0


def test_without_a_file_only_the_profile_is_printed(call: Call, good: Path) -> None:
    outcome = call("calibrate", good / "a", good / "b")
    assert tomllib.loads(outcome.stdout)["LOS002"]["critical"] > 6


@pytest.mark.parametrize(
    "words", [(), ("none",), (".",), ("GOOD", "-o", "none/profile.toml"), ("GOOD", "--margin", "0.5")]
)
def test_what_is_wrong_is_one_line_and_status_2(
    call: Call, good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = call("calibrate", *(str(good) if word == "GOOD" else word for word in words))
    assert (outcome.returncode, outcome.stdout, outcome.stderr.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("text", ["LOS002.warnin = 9", "LOS002.warning = 'high'", "NOT001 = false", "= ="])
def test_a_wrong_profile_is_one_line_and_status_2(call: Call, good: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "profile.toml").write_text(text, encoding="utf-8")
    outcome = call("diagnose", good / "a", "--profile", tmp_path / "profile.toml")
    assert (outcome.returncode, outcome.stdout, outcome.stderr.count("\n")) == (2, "", 1)
    assert "profile.toml" in outcome.stderr


def test_a_profile_that_is_not_there_is_one_line_and_status_2(call: Call, good: Path) -> None:
    outcome = call("diagnose", good / "a", "--profile", "none.toml")
    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert outcome.stderr == "sonde: none.toml: No such file or directory\n"
