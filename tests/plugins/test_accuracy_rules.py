"""A package with a rule of its own, from the conformance tests to a diagnosis with the rule missing again."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.plugins.accuracy_rules.accuracy_falls import AccuracyFalls

import sonde
from sonde.core.frames import Columns, Frame
from sonde.rules.rule import Rule
from sonde.testing import RuleSuite, sightings_of

ROOT = Path(__file__).parents[2]
PACKAGE = Path(__file__).with_name("accuracy_rules")
SOURCE = (PACKAGE / "accuracy_falls.py").read_text(encoding="utf-8")

TRAINING = """
import sys, sonde, torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
with sonde.watch(model, optimizer, run=sys.argv[1], settings={"doctor": sys.argv[2], "console": "quiet"}) as watch:
    for step in range(60):
        loss = model(torch.ones(8, 4)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 5 == 0:
            watch.evaluate(metrics={"accuracy": 0.9 if step < 30 else 0.2})
        watch.step(loss)
print([finding.code for finding in watch.findings()])
"""


class TestAccuracyFalls(RuleSuite):
    @pytest.fixture
    def rule(self) -> type[Rule]:
        return AccuracyFalls

    @pytest.fixture
    def rows(self, rule: type[Rule]) -> Sequence[Frame]:
        columns = Columns("step", ("val/accuracy",))
        values = [0.5, 0.9, 0.85, 0.2, 0.9, 0.2, 0.2, 0.2, 0.2]
        return [Frame(columns, step, 0.0, np.array([value], np.float32)) for step, value in enumerate(values)]

    def test_it_speaks_after_three_low_values_in_a_row(self, rule: type[Rule], rows: Sequence[Frame]) -> None:
        assert not sightings_of(rule(), rows[:7])
        assert len(sightings_of(rule(), rows)) == 2


def test_the_rule_is_short_and_stands_in_the_documents_as_it_is_here() -> None:
    assert len([line for line in SOURCE.splitlines() if line.strip()]) <= 40
    metadata = (PACKAGE / "pyproject.toml").read_text(encoding="utf-8")
    for page in (ROOT / "CONTRIBUTING.md", ROOT / "docs/how-to/write-a-rule.md"):
        text = page.read_text(encoding="utf-8")
        assert f"```python\n{SOURCE}```" in text, page
    assert f"```toml\n{metadata}```" in text


def installed(folder: Path, *, version: str = "") -> dict[str, str]:
    """Put the package where pip would, with the metadata that its `pyproject.toml` says; gives an environment."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version = version or project["version"]
    shutil.rmtree(folder, ignore_errors=True)
    info = folder / f"{project['name'].replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    shutil.copy(PACKAGE / "accuracy_falls.py", folder)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {version}\n")
    lines = [f"{name} = {place}" for name, place in project["entry-points"]["sonde.rules"].items()]
    (info / "entry_points.txt").write_text("\n".join(["[sonde.rules]", *lines, ""]))
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(Path(sonde.__file__).parents[1])])}


def run(*words: str, environment: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], env=environment, cwd=folder, capture_output=True, text=True, check=False
    )


def sonde_(*words: str, environment: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    return run("-m", "sonde", *words, environment=environment, folder=folder)


def test_the_rule_judges_live_and_by_diagnose_and_what_is_missing_later_is_said(tmp_path: Path) -> None:
    site = tmp_path / "site"
    environment = installed(site)
    trained = run("-c", TRAINING, "run", "process", environment=environment, folder=tmp_path)
    assert trained.returncode == 0, trained.stderr
    assert "'ACC001'" in trained.stdout

    record = sonde.load(tmp_path / "run")
    (event,) = record.events("plugin-rules")
    owner = {"name": "accuracy-falls", "distribution": "accuracy-rules", "version": "1.2"}
    assert event.data == {"rules": {"ACC001": owner}, "problems": []}
    live = [event.data for event in record.events("finding") if event.data["code"] == "ACC001"]

    told = sonde_("diagnose", "run", "--json", environment=environment, folder=tmp_path)
    assert told.returncode == 1, told.stderr
    said = json.loads(told.stdout)
    (finding,) = [finding for finding in said["findings"] if finding["code"] == "ACC001"]
    assert (finding["first_step"], finding["message"]) == (live[0]["first_step"], live[0]["message"])
    assert finding["causes"][0]["cause"] == "lr-too-high"
    assert said["rule_problems"] == []

    newer = sonde_("diagnose", "run", environment=installed(site, version="2.0"), folder=tmp_path)
    expected = "rule ACC001 accuracy-falls is of accuracy-rules 2.0 here, and was of accuracy-rules 1.2 while the run"
    assert expected in newer.stdout

    (site / "accuracy_falls.py").write_text("import nowhere\n")
    broken = sonde_("diagnose", "run", environment=environment, folder=tmp_path)
    assert "No module named 'nowhere'" in broken.stdout

    shutil.rmtree(site)
    without = sonde_("diagnose", "run", environment=environment, folder=tmp_path)
    assert without.returncode == 0, without.stderr
    assert "install accuracy-rules==1.2 to judge it likewise" in without.stdout


def test_a_rule_that_fails_is_switched_off_and_said_and_the_training_goes_on(tmp_path: Path) -> None:
    environment = installed(tmp_path / "site")
    failing = SOURCE.replace(
        "best, num = max(best", "if look.view.step > 20: raise SystemExit(3)\n        best, num = max(best"
    )
    assert failing != SOURCE
    (tmp_path / "site" / "accuracy_falls.py").write_text(failing)
    trained = run("-c", TRAINING, "run", "thread", environment=environment, folder=tmp_path)
    assert trained.returncode == 0, trained.stderr
    assert "rule ACC001 accuracy-falls judges no more: it failed at step" in trained.stderr
    record = sonde.load(tmp_path / "run")
    (event,) = [event for event in record.events("not-measured") if event.data["tag"] == "ACC001 accuracy-falls"]
    assert re.match(r"failed at step \d+: SystemExit\(3\)", event.data["reason"])
    assert record.steps == 60
    told = sonde_("diagnose", "run", "--json", environment=environment, folder=tmp_path)
    (said,) = [line for line in json.loads(told.stdout)["not_measured"] if line.startswith("ACC001")]
    assert said == f"ACC001 accuracy-falls: {event.data['reason']}"


def test_a_rule_that_does_not_load_is_said_once_while_a_run_is_recorded(tmp_path: Path) -> None:
    environment = installed(tmp_path / "site")
    (tmp_path / "site" / "accuracy_falls.py").write_text(SOURCE.replace("quiet_steps", "quiet"))
    trained = run("-c", TRAINING, "run", "process", environment=environment, folder=tmp_path)
    assert trained.returncode == 0, trained.stderr
    assert trained.stderr.count("`AccuracyFalls` has no `quiet_steps`") == 1
    (event,) = sonde.load(tmp_path / "run").events("plugin-rules")
    assert event.data["rules"] == {}
    (problem,) = event.data["problems"]
    assert "accuracy-rules 1.2" in problem
