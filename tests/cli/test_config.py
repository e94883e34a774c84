import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import sonde
from sonde.config import effective
from sonde.core import strict_json
from sonde.store.writer import Writer

Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "sonde.toml").write_text('budget = 0.02\n[alerts.slack]\nurl = "https://hidden.example.org"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SONDE_CONFIG", "sonde.toml")
    monkeypatch.delenv("SONDE_DOCTOR")
    return tmp_path


def test_every_setting_is_printed_with_where_it_came_from(
    call: Call, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SONDE_SINKS", "tensorboard")
    outcome = call("config")
    lines = {line.partition(" ")[0]: line for line in outcome.stdout.splitlines()}
    assert outcome.returncode == 0
    assert outcome.stdout.startswith(f"# {project / 'sonde.toml'}\n")
    assert lines["budget"].split() == ["budget", "=", "0.02", "#", "sonde.toml"]
    assert lines["sinks"].split() == ["sinks", "=", '["tensorboard"]', "#", "SONDE_SINKS"]
    assert lines["console"].split() == ["console", "=", '"auto"', "#", "default"]
    assert lines["alerts.slack.url"].split() == ["alerts.slack.url", "=", '"•••"', "#", "sonde.toml"]
    assert "hidden" not in outcome.stdout


def test_what_is_printed_is_a_configuration(call: Call, project: Path) -> None:
    printed = call("config").stdout.replace("•••", "https://hidden.example.org")
    before = effective()
    (project / "sonde.toml").write_text(printed)
    assert effective().config == before.config


def test_defaults_can_be_left_out_and_json_says_the_same(call: Call) -> None:
    assert len(call("config", "--changed").stdout.splitlines()) == 3
    told = strict_json.loads(call("config", "--json", "--changed").stdout)
    assert told["schema"] == 1
    assert told["settings"] == {
        "budget": {"value": 0.02, "from": "sonde.toml"},
        "alerts.slack.url": {"value": "•••", "from": "sonde.toml"},
    }


def test_a_run_tells_what_held_when_it_was_recorded(call: Call, project: Path) -> None:
    Writer(project / "run", settings=effective().to_json()).close()
    (project / "sonde.toml").write_text("budget = 0.5")
    assert "budget = 0.02" in call("config", project / "run", "--changed").stdout
    sonde.record(project / "other").close()
    outcome = call("config", project / "other")
    assert (outcome.returncode, "holds no settings" in outcome.stderr) == (2, True)


@pytest.mark.parametrize(
    ("text", "complaint"), [("bugdet = 1", "`bugdet` is no setting; did you mean `budget`?"), ("=", "is not TOML")]
)
def test_a_wrong_file_is_one_line_and_status_2(call: Call, project: Path, text: str, complaint: str) -> None:
    (project / "sonde.toml").write_text(text)
    outcome = call("config")
    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith(f"sonde: {project / 'sonde.toml'}")
    assert complaint in outcome.stderr


def test_a_wrong_file_keeps_a_script_from_beginning_and_off_does_not(spawn: Call, project: Path) -> None:
    (project / "sonde.toml").write_text("bugdet = 1")
    (project / "script.py").write_text("print('ran')")
    refused = spawn("run", "script.py")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "`bugdet` is no setting" in refused.stderr
    assert spawn("run", "script.py", env={"SONDE": "off"}).stdout == "ran\n"


@pytest.fixture
def shared(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project's file that sends, and nothing that the user said."""
    monkeypatch.delenv("SONDE_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(project / "own"))
    file = project / "sonde.toml"
    file.write_text(
        'budget = 0.02\n[alerts.webhook]\nurl = "https://user:hidden@example.org:99/hidden"\nsecret = "hidden"\n'
    )
    return file


def test_what_is_not_obeyed_is_shown_with_the_reason_and_what_to_do(call: Call, shared: Path) -> None:
    outcome = call("config", "--changed")
    reason = "what sends, writes or acts needs your trust in a file that came with a project"
    assert f"# {shared}: alerts.webhook.url, alerts.webhook.secret not obeyed: {reason}" in outcome.stdout
    told = strict_json.loads(call("config", "--json").stdout)
    assert told["not_obeyed"] == [
        {
            "path": str(shared),
            "settings": ["alerts.webhook.url", "alerts.webhook.secret"],
            "reason": reason,
            "advice": f"read it, then: sonde config trust {shared}",
        }
    ]


def test_trust_shows_what_it_is_about_asks_and_is_remembered_until_the_file_changes(call: Call, shared: Path) -> None:
    asked = call("config", "trust")
    assert (asked.returncode, "say --yes" in asked.stderr) == (2, True)
    assert asked.stdout.splitlines() == [
        f"{shared} would send, write or act:",
        '  alerts.webhook.url = "https://example.org:99/•••"',
        '  alerts.webhook.secret = "•••"',
    ]
    assert not effective().config.alerts.channels
    assert call("config", "trust", "--yes").returncode == 0
    assert list(effective().config.alerts.channels) == ["webhook"]
    assert "not obeyed" not in call("config").stdout
    assert call("config", "trust", "--list").stdout == f"{shared}\n"
    assert "trusted already" in call("config", "trust", shared).stdout
    shared.write_text(shared.read_text().replace("example.org", "example.com"))
    assert not effective().config.alerts.channels
    call("config", "trust", shared, "--yes")
    assert effective().config.alerts.channels
    assert call("config", "trust", "--remove").stdout == f"{shared} is trusted no more\n"
    assert not effective().config.alerts.channels
    assert call("config", "trust", shared, "--remove").returncode == 2


def test_trust_is_refused_for_a_file_that_is_wrong_of_others_or_not_there_and_needless_for_a_harmless_one(
    call: Call, shared: Path
) -> None:
    shared.write_text('[alerts.webhook]\nurl = "https://example.org"\nsecrt = "x"\n')
    assert "did you mean `alerts.webhook.secret`" in call("config", "trust", "--yes").stderr
    shared.chmod(0o666)
    assert "can be written by others" in call("config", "trust", "--yes").stderr
    assert call("config", "trust", "missing.toml", "--yes").returncode == 2
    shared.chmod(0o600)
    shared.write_text("budget = 0.3\n")
    assert "needs no trust" in call("config", "trust", "--yes").stdout
    assert call("config", "--yes").returncode == 2
