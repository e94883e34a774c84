"""One configuration out of files, the environment and arguments."""

import dataclasses
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from sonde.config import Cadence, Effective, effective
from sonde.config.presets import PRESETS
from sonde.config.sources import ENVIRONMENT
from sonde.core import strict_json
from sonde.core.errors import FormatError, SettingError

ROOT = Path(__file__).parents[2]


def found(folder: Path, **environment: str) -> Effective:
    return effective(folder=folder, environment=environment)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The folder of a repository, above which nobody looks."""
    (tmp_path / ".git").mkdir()
    return tmp_path


def test_without_anything_everything_is_at_its_default(project: Path) -> None:
    config = found(project, HOME="/root", PATH="x").config
    assert (config.budget, config.runs, config.console, config.doctor) == (0.01, "runs", "auto", "process")
    assert (config.rules, config.sinks, config.alerts.channels, config.cadence.given) == ({}, (), {}, {})


def test_the_later_goes_before_the_earlier_a_key_at_a_time(project: Path) -> None:
    (project / "pyproject.toml").write_text(
        '[tool.sonde]\npreset = "stability"\nbudget = 0.1\nruns = "a"\nconsole = "lines"\ncadence.layers = 7\n'
    )
    (project / "sonde.toml").write_text('budget = 0.2\nruns = "b"\n[alerts.log]\nfile = "x"\n')
    here = found(project, SONDE_BUDGET="0.3", SONDE_ALERT_LOG="y").over({"budget": 0.4, "console": None})
    wanted = {
        "preset": ("stability", "pyproject.toml"),
        "budget": (0.4, "argument"),
        "runs": ("b", "sonde.toml"),
        "console": ("lines", "pyproject.toml"),
        "doctor": ("process", "default"),
        "cadence.layers": (7, "pyproject.toml"),
        "cadence.blocks": (25, "preset stability"),
        "cadence.inputs": (None, "default"),
        "alerts.log.file": ("y", "SONDE_ALERT_LOG"),
        "alerts.log.severity": ("warning", "default"),
    }
    told = here.to_json()
    assert {key: (told[key]["value"], told[key]["from"]) for key in wanted} == wanted
    assert here.files == (f"{project / 'pyproject.toml'} [tool.sonde]", str(project / "sonde.toml"))


@pytest.mark.parametrize(
    "text",
    [
        'sinks = ["tensorboard", { sink = "wandb", project = "p", selection = { layer_rows = 5 } }]',
        '[[sinks]]\nsink = "tensorboard"\n[[sinks]]\nsink = "wandb"\nproject = "p"\nselection.layer_rows = 5',
    ],
)
def test_sinks_are_chosen_by_name_with_settings(project: Path, text: str) -> None:
    (project / "sonde.toml").write_text(text)
    first, second = found(project, SONDE_CONFIG="sonde.toml").config.sinks
    assert (first.name, first.settings) == ("tensorboard", {})
    assert (second.name, second.settings["project"], second.settings["selection"].layer_rows) == ("wandb", "p", 5)
    assert [choice.name for choice in found(project, SONDE_SINKS="mlflow").config.sinks] == ["mlflow"]


def test_rules_are_set_by_name_or_code_and_a_profile_counts_less(project: Path) -> None:
    (project / "small.toml").write_text("GRD008.window = 3\nLOS002.warning = 9.0\n")
    (project / "sonde.toml").write_text(
        f'profile = "{project / "small.toml"}"\n[rules]\ngain-drift.window = 4\noverfitting = false\n'
    )
    here = found(project, SONDE_RULES="GRD008.threshold=2, GRD008=true")
    assert here.config.rules == {
        "GRD008.window": 4,
        "LOS002.warning": 9.0,
        "GEN001": False,
        "GRD008.threshold": 2,
        "GRD008": True,
    }
    assert here.origins["rules.LOS002.warning"] == "small.toml"
    assert here.over({"rules": {"gain-drift.window": 5}}).config.rules["GRD008.window"] == 5


def test_every_variable_sets_its_key(project: Path) -> None:
    said = {
        "SONDE_PRESET": "quiet",
        "SONDE_RUNS": "elsewhere",
        "SONDE_BUDGET": "inf",
        "SONDE_FLOOR_S": "0.001",
        "SONDE_CONSOLE": "lines",
        "SONDE_CONSOLE_S": "5",
        "SONDE_TOTAL_STEPS": "1000",
        "SONDE_TOTAL_EPOCHS": "3",
        "SONDE_DOCTOR": "thread",
        "SONDE_PROFILE": str(project / "profile.toml"),
        "SONDE_CADENCE": "layers=20 early_steps=0",
        "SONDE_PROBES": "spectra=off",
        "SONDE_LOSS": "micro=sum, ema=off, decay=0.95",
        "SONDE_RULES": "GRD008.window=4",
        "SONDE_SINKS": "tensorboard",
        "SONDE_ALERTS": "on",
        "SONDE_SLACK_WEBHOOK": "https://hooks.example.org/T0",
        "SONDE_WEBHOOK": "https://example.org/other",
        "SONDE_WEBHOOK_SECRET": "word",
        "SONDE_SMTP_URL": "smtp://user:word@example.org",
        "SONDE_MAIL_TO": "a@example.org, b@example.org",
        "SONDE_MAIL_FROM": "sonde@example.org",
        "SONDE_APPRISE": "discord://a/b slack://c/d",
        "SONDE_ALERT_LOG": "alerts.log",
        "SONDE_ALERT_SEVERITY": "info",
        "SONDE_ALERT_QUIET_HOURS": "23:00-6:30",
        "SONDE_ALERT_TIME_ZONE": "Asia/Tokyo",
    }
    assert set(said) == set(ENVIRONMENT)
    (project / "profile.toml").touch()
    told = found(project, **said).to_json()
    origins = {item["from"] for item in told.values()}
    assert set(said) <= origins, set(said) - origins
    assert told["budget"]["value"] == float("inf")
    assert (told["floor_s"]["value"], told["console_s"]["value"]) == (0.001, 5.0)
    assert (told["total_steps"]["value"], told["total_epochs"]["value"]) == (1000, 3)
    assert told["loss.micro"]["value"] == "sum"
    assert told["cadence.early_steps"]["value"] == 0
    assert (told["probes.spectra"]["value"], told["probes.gains"]["value"]) == (False, True)
    assert (told["loss.ema"]["value"], told["loss.decay"]["value"]) == (False, 0.95)
    assert told["alerts.mail.to"]["value"] == ["a@example.org", "b@example.org"]
    assert len(told["alerts.apprise.urls"]["value"]) == 2


def test_alerts_can_be_switched_off_in_the_environment(project: Path) -> None:
    (project / "sonde.toml").write_text('[alerts.log]\nfile = "x"\n')
    assert found(project, SONDE_CONFIG="sonde.toml").config.alerts.channels
    assert not found(project, SONDE_CONFIG="sonde.toml", SONDE_ALERTS="off").config.alerts.channels


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bugdet = 1", "FILE: `bugdet` is no setting; did you mean `budget`? Allowed: alerts, budget, "),
        ("budget = 2", "FILE: `budget` must be in (0, 1], or infinite for no limit, got 2.0."),
        ("budget = nan", "FILE: `budget` must be in (0, 1]"),
        ("floor_s = 0", "FILE: `floor_s` must be above 0 seconds and finite, got 0.0."),
        ("floor_s = inf", "FILE: `floor_s` must be above 0 seconds and finite, got inf."),
        ("console_s = nan", "FILE: `console_s` must be above 0 seconds, got nan."),
        ("total_steps = 0", "FILE: `total_steps` must be at least 1, got 0; leave it out where it is not known."),
        ('[loss]\nmicro = "max"', "FILE: `loss.micro` must be one of mean, sum, got 'max'."),
        ('runs = ""', "FILE: `runs` must be a folder"),
        ('preset = "loud"', "FILE: `preset` must be one of none, quiet, stability, tuning, got 'loud'."),
        ("[cadence]\nlayres = 3", "FILE: `cadence.layres` is no setting; did you mean `cadence.layers`?"),
        ("[cadence]\nlayers = 0", "FILE: `cadence.layers` must be at least 1, got 0."),
        (
            "[probes]\nactivation = false",
            "FILE: `probes.activation` is no setting; did you mean `probes.activations`? Allowed: activations, ",
        ),
        ("[probes]\ngains = 0", "FILE: `probes.gains` must be true or false, got 0."),
        ("cadence = 3", "FILE: `cadence` must be a table, got int."),
        ("[loss]\ndecay = 0.9", "FILE: `loss.decay` must be in [0.95, 0.999], got 0.9."),
        ("[loss]\nema = 1", "FILE: `loss.ema` must be true or false, got 1."),
        (
            "[rules]\nGRD008.windw = 3",
            "FILE: `rules.GRD008.windw` is refused: `GRD008 gain-drift` has no setting `windw`;",
        ),
        ("[rules]\nGRD00 = false", "FILE: `rules.GRD00` is refused: there is no rule `GRD00`; did you mean"),
        (
            'sinks = ["tensorbord"]',
            "FILE: `sinks[0]` is refused: there is no sink 'tensorbord'; did you mean 'tensorboard'?",
        ),
        ('sinks = [{ project = "x" }]', "FILE: `sinks[0]` needs `sink`: the name of one."),
        (
            'sinks = [{ sink = "wandb", projct = "x" }]',
            "FILE: `sinks[0].projct` is no setting; did you mean `sinks[0].project`?",
        ),
        ('sinks = [{ sink = "wandb", run = 3 }]', "FILE: `sinks[0].run` is no setting"),
        ("sinks = 3", "FILE: `sinks` must be a list"),
        (
            "[alerts]\nmost_findings = 99",
            "FILE: `alerts` is refused: `Policy(most_findings=...)` must be in [1, 40], got 99.",
        ),
        ('[alerts]\nquiet_hours = "late"', "FILE: `alerts.quiet_hours` is refused: quiet hours must be written as"),
        (
            '[alerts.mail]\nurl = "smtps://a.b"',
            "FILE: `alerts.mail` needs `to`: set `alerts.mail.to`, or SONDE_MAIL_TO in the environment.",
        ),
        ("alerts = 3", "FILE: `alerts` must be a table, got int."),
        ('profile = "/no/such"', "`profile` cannot be read: /no/such: No such file or directory, as sonde.toml says"),
    ],
    ids=lambda value: value.partition("\n")[2] or value if "FILE" not in value else "",
)
def test_what_is_wrong_in_a_file_is_said_with_the_file_the_key_and_the_nearest_right_name(
    project: Path, text: str, message: str
) -> None:
    file = project / "sonde.toml"
    file.write_text(text)
    with pytest.raises(SettingError, match=re.escape(message.replace("FILE", str(file)))):
        found(project, SONDE_CONFIG="sonde.toml")


def test_a_project_file_names_its_table(project: Path) -> None:
    (project / "pyproject.toml").write_text("[tool.sonde]\nbugdet = 1\n")
    with pytest.raises(SettingError, match=re.escape("pyproject.toml [tool.sonde]: `bugdet` is no setting")):
        found(project)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"SONDE_BUGDET": "1"}, "there is no variable SONDE_BUGDET; did you mean SONDE_BUDGET?"),
        ({"SONDE_SLACK_WEBHOK": "1"}, "did you mean SONDE_SLACK_WEBHOOK?"),
        ({"SONDE_BUDGET": "much"}, "SONDE_BUDGET in the environment: `budget` must be a number, got 'much'."),
        ({"SONDE_CADENCE": "often"}, "SONDE_CADENCE in the environment: `cadence` must be written as name=value"),
        ({"SONDE_RULES": "GRD008.windw=3"}, "SONDE_RULES in the environment: `rules.GRD008.windw` is refused"),
        ({"SONDE_DOCTOR": "auto"}, "SONDE_DOCTOR in the environment: `doctor` must be one of process, thread, off"),
    ],
    ids=lambda value: "" if isinstance(value, str) else str(value),
)
def test_what_is_wrong_in_the_environment_is_said_with_the_variable(
    project: Path, environment: dict[str, str], message: str
) -> None:
    with pytest.raises(SettingError, match=re.escape(message)):
        found(project, **environment)


def test_variables_of_others_and_empty_ones_are_left_alone(project: Path) -> None:
    here = found(project, SONDE_KILLS="3", SONDE_BUDGET=" ", SONDE_RUN="x", SONDE="off", NOT_SONDE_BUDGT="1")
    assert here.origins == {}


def test_files_are_looked_for_upwards_as_far_as_the_repository(project: Path) -> None:
    inner = project / "package" / "deep"
    inner.mkdir(parents=True)
    (project / "sonde.toml").write_text("budget = 0.2")
    assert found(inner).config.budget == 0.2
    (project / "package" / ".git").touch()  # a submodule
    assert found(inner).config.budget == 0.01
    (project / "package" / "pyproject.toml").write_text('[project]\nname = "x"\n')
    assert found(inner).files == ()


def test_a_file_can_be_named_or_none_be_wanted(project: Path) -> None:
    (project / "sonde.toml").write_text("budget = 0.2")
    (project / "other.toml").write_text("budget = 0.3")
    (project / "pyproject.toml").write_text("[tool.sonde]\nruns = 'x'")
    assert found(project, SONDE_CONFIG="other.toml").config.budget == 0.3
    assert found(project, SONDE_CONFIG=str(project / "pyproject.toml")).config.runs == "x"
    assert found(project, SONDE_CONFIG="off").origins == {}
    with pytest.raises(FormatError, match=r"missing\.toml cannot be read: No such file"):
        found(project, SONDE_CONFIG="missing.toml")


def test_a_file_that_is_not_toml_is_refused_unless_it_is_none_of_ours(project: Path) -> None:
    (project / "sonde.toml").write_text("budget = ")
    with pytest.raises(FormatError, match=r"sonde\.toml is not TOML"):
        found(project)
    (project / "sonde.toml").unlink()
    (project / "pyproject.toml").write_text("[project\n")
    assert found(project).origins == {}
    (project / "pyproject.toml").write_text("[tool.sonde]\nbudget = \n")
    with pytest.raises(FormatError, match=r"pyproject\.toml is not TOML"):
        found(project)


def test_what_is_shown_and_printed_holds_no_secret(project: Path) -> None:
    (project / "sonde.toml").write_text(
        '[[sinks]]\nsink = "mlflow"\ntracking_uri = "http://me:hidden@host"\n'
        '[alerts.webhook]\nurl = "https://hidden.example.org/x"\nsecret = "hidden"\n'
    )
    secrets = {"SONDE_SLACK_WEBHOOK": "https://hooks.example.org/hidden", "SONDE_APPRISE": "x://hidden"}
    here = found(project, SONDE_CONFIG="sonde.toml", **secrets)
    assert "hidden" not in strict_json.dumps(here.to_json()) + repr(here) + repr(here.over({"budget": 0.2}))
    with pytest.raises(SettingError) as caught:
        here.over({"budget": 2})
    assert "hidden" not in repr(caught.value)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_configuration(project: Path, name: str) -> None:
    assert found(project, SONDE_PRESET=name).config.preset == name


def test_cadences_have_the_names_and_defaults_of_the_monitor() -> None:
    pytest.importorskip("torch", reason="the monitor needs it")
    from sonde.probes.cadences import ON_CPU, Cadences, with_intervals

    names = [item.name for item in dataclasses.fields(Cadences)]
    assert [item.name for item in dataclasses.fields(Cadence)] == names
    changed = with_intervals(ON_CPU, Cadence(layers=3, early_steps=5).given)
    assert (changed.layers.interval_steps, changed.early_steps) == (3, 5)
    assert dataclasses.replace(changed, layers=ON_CPU.layers, early_steps=ON_CPU.early_steps) == ON_CPU


def test_the_manual_has_every_key_variable_and_preset() -> None:
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")
    for key in [*effective(folder=Path("/"), environment={}).to_json(), *ENVIRONMENT, *PRESETS]:
        assert f"`{key}`" in page, key
    for block in re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL):
        tomllib.loads(block)


def test_reading_a_configuration_without_rules_and_sinks_imports_neither_numpy_nor_torch(project: Path) -> None:
    (project / "sonde.toml").write_text('budget = 0.2\n[alerts.log]\nfile = "x"\n')
    code = "import sys, sonde.config; sonde.config.effective(); print({'numpy', 'torch'} & set(sys.modules))"
    named = {**os.environ, "SONDE_CONFIG": "sonde.toml"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=project, env=named, capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
