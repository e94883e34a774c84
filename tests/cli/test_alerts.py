import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.alerts.servers import Reply, receiver, smtp_server

from sonde.core import strict_json

Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path


def test_each_channel_gets_a_message_and_what_came_of_it_is_said(
    call: Call, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiver() as hook, receiver(lambda request: Reply(404)) as gone, smtp_server() as post:
        monkeypatch.setenv("SONDE_SLACK_WEBHOOK", hook.url)
        monkeypatch.setenv("SONDE_SMTP_URL", f"smtp+plain://localhost:{post.port}")
        monkeypatch.setenv("SONDE_MAIL_TO", "me@example.org")
        outcome = call("alerts", "test")
        assert (outcome.returncode, outcome.stdout) == (0, "mail   delivered\nslack  delivered\n")
        assert len(hook.kept.all()) == len(post.mails.all()) == 1
        assert b"only a test" in hook.kept.all()[0].body
        monkeypatch.setenv("SONDE_WEBHOOK", gone.url)
        outcome = call("alerts", "test", "--json")
        assert outcome.returncode == 1
        assert strict_json.loads(outcome.stdout)["channels"]["webhook"] == {
            "outcome": "refused",
            "reason": "HTTP 404 (ok)",
        }
        assert call("alerts", "test", "--channel", "mail").stdout == "mail  delivered\n"
    assert call("alerts", "test", "--channel", "mail").stdout.startswith("mail  not delivered: ")


def test_without_a_channel_there_is_nothing_to_test(call: Call, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = call("alerts", "test")
    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert "none is configured" in outcome.stderr
    assert "no channel pager is configured; there is none" in call("alerts", "test", "--channel", "pager").stderr
    monkeypatch.setenv("SONDE_ALERT_LOG", "x")
    monkeypatch.setenv("SONDE_ALERTS", "off")
    assert "alerts.enabled is false" in call("alerts", "test").stderr
    assert call("alerts", "tset").returncode == 2


def test_a_channel_without_its_secret_is_named(call: Call, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SONDE_CONFIG", "sonde.toml")
    (project / "sonde.toml").write_text('[alerts.mail]\nto = "me@example.org"\n[alerts.log]\nfile = "alerts.log"\n')
    outcome = call("alerts", "test")
    assert (outcome.returncode, outcome.stdout) == (1, "log  delivered\n")
    assert "mail is not told anything: its secret, SONDE_SMTP_URL, is not set" in outcome.stderr
