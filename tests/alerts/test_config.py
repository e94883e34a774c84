"""Settings from TOML."""

import re
import tomllib
from typing import Any

import pytest

from sonde.alerts.channels.log_file import LogFile
from sonde.alerts.channels.mail import Mail
from sonde.alerts.channels.slack import Slack
from sonde.alerts.channels.webhook import Webhook
from sonde.alerts.choices import Choice
from sonde.alerts.config import AlertsConfig, read
from sonde.alerts.limits import Limit
from sonde.alerts.policy import Policy
from sonde.alerts.quiet_hours import QuietHours
from sonde.core import strict_json
from sonde.core.errors import SettingError
from sonde.core.findings import Severity
from sonde.core.secret import Secret
from sonde.core.settings import Word

FULL = """
severity = "critical"
codes = ["GRD*", "loss-spike"]
except_codes = ["GRD009"]
group_s = 2
limit = { burst = 3, refill_s = 60 }
total_limit = { burst = 7 }
quiet_hours = "22:00-07:00"
time_zone = "Europe/Berlin"
critical_breaks_quiet = false
resolve = false
most_findings = 4

[log]
file = "alerts.log"
severity = "info"
codes = []

[slack]
url = "https://hooks.example.org/hidden"
timeout_s = 3

[webhook]
url = "https://example.org/hidden"
secret = "hidden"

[mail]
url = "smtps://user:hidden@example.org"
to = ["a@example.org", "b@example.org"]
sender = "sonde@example.org"

[apprise]
urls = ["discord://hidden/hidden"]
"""


def test_every_setting_arrives() -> None:
    config = read(tomllib.loads(FULL))
    choice = Choice(severity=Severity.CRITICAL, codes=("GRD*", "loss-spike"), except_codes=("GRD009",))
    assert config.policy == Policy(
        channels={
            "log": Choice(severity=Severity.INFO, codes=(), except_codes=("GRD009",)),
            "slack": choice,
            "webhook": choice,
            "mail": choice,
            "apprise": choice,
        },
        group_s=2.0,
        limit=Limit(burst=3, refill_s=60),
        total_limit=Limit(burst=7),
        quiet_hours=QuietHours.parse("22:00-07:00", zone="Europe/Berlin", critical_breaks_through=False),
        resolve=False,
        most_findings=4,
    )
    assert config.channels["log"] == LogFile(file="alerts.log")
    assert config.channels["slack"] == Slack(url=Secret("https://hooks.example.org/hidden"), timeout_s=3.0)
    assert config.channels["webhook"] == Webhook(url=Secret("https://example.org/hidden"), secret=Secret("hidden"))
    assert config.channels["mail"] == Mail(
        url=Secret("smtps://user:hidden@example.org"), to=("a@example.org", "b@example.org"), sender="sonde@example.org"
    )


def test_without_settings_there_is_no_channel() -> None:
    assert read({}) == AlertsConfig()


def test_alerts_that_are_not_enabled_have_no_channel_and_are_checked_all_the_same() -> None:
    assert read({**tomllib.loads(FULL), "enabled": False}).channels == {}
    with pytest.raises(SettingError, match=r"alerts\.mail"):
        read({"enabled": False, "mail": {"url": "smtps://a.b"}})


def test_a_channel_without_its_secret_is_none_and_says_where_it_could_be_set() -> None:
    config = read({"slack": {"severity": "info"}, "mail": {"to": ["a@b.c"]}, "apprise": {}, "log": {"file": "x"}})
    assert set(config.channels) == {"log"}
    assert config.lacking == {"slack": "SONDE_SLACK_WEBHOOK", "mail": "SONDE_SMTP_URL", "apprise": "SONDE_APPRISE"}
    assert not read({"enabled": False, "slack": {}}).lacking


def test_words_of_the_environment_are_read_as_the_settings_want_them() -> None:
    config = read(
        {"enabled": Word("on"), "group_s": Word("2"), "mail": {"url": "smtps://a.b", "to": Word("a@b.c, d@e.f")}}
    )
    assert config.settings.group_s == 2.0
    assert config.channels["mail"].to == ("a@b.c", "d@e.f")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            {"severty": "info"},
            "`alerts.severty` is no setting; did you mean `alerts.severity`? Allowed: apprise, ",
        ),
        ({"slakc": {}}, "did you mean `alerts.slack`?"),
        (
            {"log": {"flie": "x"}},
            "did you mean `alerts.log.file`? Allowed: codes, except_codes, file, severity.",
        ),
        ({"limit": {"brust": 3}}, "`alerts.limit.brust` is no setting; did you mean `alerts.limit.burst`?"),
        ({"severity": "bad"}, "`alerts.severity` must be one of info, warning, critical, got 'bad'."),
        ({"group_s": "5"}, "`alerts.group_s` must be a number, got '5'."),
        ({"group_s": True}, "`alerts.group_s` must be a number, got True."),
        ({"most_findings": 99}, "must be in [1, 40], got 99"),
        ({"limit": {"burst": 0}}, "`alerts.limit` is refused: `Limit(burst=...)` must be at least 1"),
        ({"quiet_hours": "at night"}, "must be written as 22:00-07:00"),
        ({"quiet_hours": "7:00-7:00"}, "must end at another time"),
        ({"quiet_hours": "22:00-07:00", "time_zone": "Europe/Berlni"}, "there is no time zone 'Europe/Berlni'"),
        ({"codes": [3]}, "`alerts.codes[0]` must be a text, got 3."),
        ({"log": "alerts.log"}, "`alerts.log` must be a table"),
        ({"mail": {"url": "smtps://a.b"}}, "`alerts.mail` needs `to`: set `alerts.mail.to`, or SONDE_MAIL_TO in the"),
        ({"slack": {"urll": "x"}}, "`alerts.slack.urll` is no setting; did you mean `alerts.slack.url`?"),
        ({"mail": {"url": "smtps://a.b", "to": ["me"]}}, "`alerts.mail` is refused: 'me' is no mail address"),
        ({"slack": {"url": "https://a.b", "timeout_s": 0}}, "`alerts.slack` is refused: `timeout_s` must be above 0"),
    ],
    ids=lambda value: "" if isinstance(value, str) else str(value),
)
def test_what_is_wrong_is_said_with_what_is_allowed(table: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=re.escape(message)):
        read(table)


@pytest.mark.parametrize(
    "table",
    [
        {"slack": {"url": ["hidden"]}},
        {"slack": {"url": "hidden"}},
        {"webhook": {"url": "https://a.b", "secret": {"hidden": "hidden"}}},
        {"mail": {"url": "smtp://user:hidden@host:hidden", "to": ["a@b.c"]}},
        {"mail": {"url": "smtp+plain://user:hidden@host", "to": ["a@b.c"]}},
        {"apprise": {"urls": {"hidden": 1}}},
    ],
)
def test_errors_show_no_secret(table: dict[str, Any]) -> None:
    with pytest.raises(SettingError) as caught:
        read(table)
    error: BaseException | None = caught.value
    while error is not None:
        assert "hidden" not in str(error)
        error = None if error.__suppress_context__ else error.__cause__ or error.__context__


def test_what_is_kept_with_the_run_shows_no_secret() -> None:
    config = read(tomllib.loads(FULL))
    kept = strict_json.dumps(config.to_json())
    assert "hidden" not in kept + repr(config)
    said = strict_json.loads(kept)
    assert said["mail"]["url"] == "•••"
    assert said["mail"]["to"] == ["a@example.org", "b@example.org"]
    assert said["quiet_hours"] == "22:00-07:00"
