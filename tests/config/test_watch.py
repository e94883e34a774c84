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
    run, told = watched(settings={"rules": {"GRD008.window": 4}})
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
        ({"settings": {"doctor": "auto"}}, "argument: `doctor` must be one of process, thread, off, got 'auto'"),
        ({"settings": {"rules.GRD008.windw": 3}}, "argument: `rules.GRD008.windw` is refused"),
        ({"settings": {"floor_s": 0}}, "argument: `floor_s` must be above 0 seconds and finite, got 0.0"),
        ({"settings": {"console_s": 0.0}}, "argument: `console_s` must be above 0 seconds, got 0.0"),
        ({"settings": {"total_epochs": 0}}, "argument: `total_epochs` must be at least 1, got 0"),
        ({"settings": {"total_steps": 2.5}}, "argument: `total_steps` must be a whole number, got 2.5"),
        ({"settings": {"loss.micro": "max"}}, "argument: `loss.micro` must be one of mean, sum, got 'max'"),
        ({"settings": {"los.micro": "sum"}}, "argument: `los` is no setting; did you mean `loss`?"),
        ({"settings": {"sinks": ["papyrus"]}}, r"argument: `sinks\[0\]` is refused"),
        ({"settings": {"profile": "no-such.toml"}}, "`profile` cannot be read: no-such.toml"),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused_before_anything_is_recorded(
    project: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingError, match=message):
        watched(project / "run", **settings)
    assert not (project / "run").exists()


def test_settings_are_given_by_dotted_names_or_as_tables_and_arguments_go_before_them(project: Path) -> None:
    (project / "sonde.toml").write_text("floor_s = 0.5\n[loss]\ndecay = 0.98\n")
    given = {
        "budget": 0.2,
        "doctor": "off",
        "floor_s": 0.001,
        "loss.micro": "sum",
        "rules.overfitting": False,
        "probes": {"spectra": False},
        "sinks": ["tensorboard"],
        "total_steps": 1000,
        "console_s": 5,
    }
    _, told = watched(project / "run", settings=given, sinks=[], budget=0.3)
    wanted = {
        "budget": 0.3,
        "doctor": "off",
        "floor_s": 0.001,
        "loss.micro": "sum",
        "rules.GEN001": False,
        "probes.spectra": False,
        "sinks": [],
        "total_steps": 1000,
        "console_s": 5.0,
    }
    assert {key: told[key] for key in wanted} == {key: (value, "argument") for key, value in wanted.items()}
    assert told["loss.decay"] == (0.98, "sonde.toml")
    assert told["total_epochs"] == (None, "default")


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"doctor": "off"}, "`watch(doctor=...)` is a setting now: give `watch(..., settings={'doctor': 'off'})`."),
        (
            {"rules": {"GRD001": False}},
            "`watch(rules=...)` is a setting now: give `watch(..., settings={'rules': {'GRD001': False}})`.",
        ),
        (
            {"rules": Path("mine.toml")},
            "`watch(rules=...)` is a setting now: give `watch(..., settings={'profile': 'mine.toml'})`.",
        ),
        ({"micro": "sum"}, "`watch(micro=...)` is a setting now: give `watch(..., settings={'loss.micro': 'sum'})`."),
        ({"floor_s": 0.001}, "`watch(floor_s=...)` is a setting now: give `watch(..., settings={'floor_s': 0.001})`."),
        (
            {"total_steps": 9},
            "`watch(total_steps=...)` is a setting now: give `watch(..., settings={'total_steps': 9})`.",
        ),
        (
            {"total_epochs": 9},
            "`watch(total_epochs=...)` is a setting now: give `watch(..., settings={'total_epochs': 9})`.",
        ),
        ({"console_s": 5}, "`watch(console_s=...)` is a setting now: give `watch(..., settings={'console_s': 5})`."),
        ({"colour": "red"}, "watch() got an unexpected keyword argument 'colour'"),
        ({"settings": ["doctor"]}, "`watch(settings=...)` must be a mapping of settings by name, got list."),
    ],
    ids=str,
)
def test_arguments_of_older_versions_are_refused_with_the_place_that_they_have_now(
    project: Path, argument: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError) as refused:
        watched(project / "run", **argument)
    assert str(refused.value) == message
    assert not (project / "run").exists()


@pytest.mark.parametrize(
    ("argument", "values"),
    [
        ({"doctor": "off"}, {"doctor": "off"}),
        ({"micro": "sum"}, {"loss.micro": "sum"}),
        ({"floor_s": 0.001}, {"floor_s": 0.001}),
        ({"total_steps": 9, "total_epochs": 3}, {"total_steps": 9, "total_epochs": 3}),
        ({"console_s": 5.0}, {"console_s": 5.0}),
    ],
    ids=str,
)
def test_what_a_refusal_advises_is_accepted(project: Path, argument: dict[str, Any], values: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        watched(project / "run", **argument)
    _, told = watched(project / "run", settings=values)
    assert {key: told[key] for key in values} == {key: (value, "argument") for key, value in values.items()}


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
