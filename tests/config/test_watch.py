"""The configuration of a training that is being watched."""

from pathlib import Path
from typing import Any

import pytest

import sonde
from sonde.core import strict_json
from sonde.core.errors import SettingError

torch = pytest.importorskip("torch", reason="the monitor needs it")


def watched(run: Path | None = None, **settings: Any) -> tuple[Path, dict[str, Any]]:
    """The run's folder, and what it says held."""
    model = torch.nn.Linear(2, 1)
    with sonde.watch(model, torch.optim.SGD(model.parameters(), lr=0.1), run=run, **settings) as watch:
        pass
    stored: dict[str, Any] = strict_json.loads((watch.path / "run.json").read_text())["settings"]
    return watch.path, {key: (item["value"], item["from"]) for key, item in stored.items()}


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SONDE_CONSOLE", "quiet")
    return tmp_path


def test_what_arguments_leave_out_is_as_the_file_says_and_the_run_tells_it(project: Path) -> None:
    (project / "sonde.toml").write_text(
        'budget = 0.2\nruns = "all"\n[cadence]\nlayers = 3\n[rules]\noverfitting = false\n'
    )
    run, told = watched(rules={"GRD008.window": 4})
    assert run.parent == Path("all")
    assert told["budget"] == (0.2, "sonde.toml")
    assert told["cadence.layers"] == (3, "sonde.toml")
    assert told["console"] == ("quiet", "SONDE_CONSOLE")
    assert told["rules.GRD008.window"] == (4, "argument")
    assert told["rules.GEN001"] == (False, "sonde.toml")
    _, told = watched(project / "run", budget=0.3)
    assert told["budget"] == (0.3, "argument")


def test_objects_that_were_given_are_told_as_well(project: Path) -> None:
    from sonde.core.cadences import every
    from sonde.probes.cadences import Cadences

    (project / "sonde.toml").write_text('sinks = ["tensorboard"]\n[cadence]\nlayers = 3\n')
    _, told = watched(project / "run", sinks=[], cadence=Cadences(layers=every(7)))
    assert told["sinks"] == ([], "argument")
    assert told["cadence.layers"] == (7, "argument")


def test_cadences_of_the_file_are_kept(project: Path) -> None:
    (project / "sonde.toml").write_text("budget = inf\n[cadence]\nlayers = 3\n")
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sonde.watch(model, optimizer, run=project / "run") as watch:
        for _ in range(12):
            loss = model(torch.ones(4, 2)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)
    steps = sonde.load(project / "run").series("grad/rms@weight").step
    assert (steps[1:] - steps[:-1]).tolist() == [3, 3, 3]


def test_a_configuration_that_was_found_before_holds_wherever_one_is(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sonde.config import effective

    (project / "sonde.toml").write_text("budget = 0.2")
    found = effective()
    (project / "elsewhere" / ".git").mkdir(parents=True)
    monkeypatch.chdir(project / "elsewhere")
    assert watched(project / "one")[1]["budget"] == (0.01, "default")
    assert watched(project / "two", settings=found)[1]["budget"] == (0.2, "sonde.toml")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"budget": 2.0}, r"argument: `budget` must be in \(0, 1\], or infinite for no limit, got 2.0"),
        ({"console": "loud"}, "argument: `console` must be one of auto, live, lines, verbose, quiet, got 'loud'"),
        ({"doctor": "auto"}, "argument: `doctor` must be one of process, thread, off, got 'auto'"),
        ({"rules": {"GRD008.windw": 3}}, "argument: `rules.GRD008.windw` is refused"),
        ({"rules": "no-such.toml"}, "`profile` cannot be read: no-such.toml"),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused_before_anything_is_recorded(
    project: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingError, match=message):
        watched(project / "run", **settings)
    assert not (project / "run").exists()


def test_control_characters_in_a_run_are_refused_before_anything_is_recorded(project: Path) -> None:
    with pytest.raises(SettingError, match=r"`run` must not hold control characters, got \"x\\ntouch here\"."):
        watched(Path("x\ntouch here"))
    with pytest.raises(SettingError, match="`run` must not hold control characters"):
        sonde.record("x\x1b[2J")
    with pytest.raises(SettingError, match="`name` must not hold control characters"):
        sonde.record("x", name="a\u202eb")
    assert [path.name for path in project.iterdir()] == [".git"]


def test_a_webhook_of_a_project_gets_nothing_before_trust(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.alerts.servers import receiver

    from sonde.cli.main import main

    monkeypatch.setenv("XDG_CONFIG_HOME", str(project / "own"))
    monkeypatch.setenv("no_proxy", "*")
    with receiver() as hook:
        (project / "sonde.toml").write_text(f'[alerts]\nseverity = "info"\n[alerts.webhook]\nurl = "{hook.url}"\n')
        assert main(["alerts", "test"]) == 2
        assert hook.kept.all() == []
        assert main(["config", "trust", "--yes"]) == 0
        assert main(["alerts", "test"]) == 0
        assert len(hook.kept.all()) == 1
