"""Settings of alerts: the table `[alerts]` of a configuration. Channels need trust in a project's file.

```toml
[alerts]
severity = "warning"            # the least that is told
codes = ["GRD*", "loss-spike"]  # by code or name
quiet_hours = "22:00-07:00"
time_zone = "Europe/Berlin"
limit = { burst = 5, refill_s = 600 }

[alerts.log]
file = "alerts.log"

[alerts.mail]
to = ["me@example.org"]
severity = "critical"           # of this channel only; so can `codes` and `except_codes` be
```
"""

import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sonde.alerts.channels.catalogue import DOOR
from sonde.alerts.channels.channel import Channel
from sonde.alerts.choices import Choice
from sonde.alerts.limits import Limit
from sonde.alerts.policy import Policy
from sonde.alerts.quiet_hours import QuietHours
from sonde.core import settings
from sonde.core.errors import PluginError, SettingError
from sonde.core.findings import Severity
from sonde.core.secret import Secret
from sonde.core.strict_json import Json

AT = "alerts"

ENVIRONMENT: Mapping[str, str] = {
    "SONDE_ALERTS": "alerts.enabled",
    "SONDE_ALERT_SEVERITY": "alerts.severity",
    "SONDE_ALERT_QUIET_HOURS": "alerts.quiet_hours",
    "SONDE_ALERT_TIME_ZONE": "alerts.time_zone",
    "SONDE_ALERT_LOG": "alerts.log.file",
    "SONDE_SLACK_WEBHOOK": "alerts.slack.url",
    "SONDE_WEBHOOK": "alerts.webhook.url",
    "SONDE_WEBHOOK_SECRET": "alerts.webhook.secret",
    "SONDE_SMTP_URL": "alerts.mail.url",
    "SONDE_MAIL_TO": "alerts.mail.to",
    "SONDE_MAIL_FROM": "alerts.mail.sender",
    "SONDE_APPRISE": "alerts.apprise.urls",
}
"""Variables of the environment and the settings that they stand for."""

_POLICY = Policy()
_CHOICE = Choice()
_CHOSEN = tuple(item.name for item in dataclasses.fields(Choice))


@dataclass(frozen=True, kw_only=True, slots=True)
class AlertSettings:
    """What holds for all channels; `Policy` and `Choice` say what each means.

    Args:
        enabled: Whether anything is told at all.
        severity: See `Choice`; a channel may have its own.
        codes: Likewise.
        except_codes: Likewise.
        group_s: See `Policy`.
        limit: See `Policy`.
        total_limit: See `Policy`.
        quiet_hours: Such as "22:00-07:00"; empty for none.
        time_zone: Of the quiet hours.
        critical_breaks_quiet: Whether critical findings are told in quiet hours all the same.
        resolve: See `Policy`.
        most_findings: See `Policy`.
    """

    enabled: bool = True
    severity: Severity = _CHOICE.severity
    codes: tuple[str, ...] = _CHOICE.codes
    except_codes: tuple[str, ...] = _CHOICE.except_codes
    group_s: float = _POLICY.group_s
    limit: Limit = _POLICY.limit
    total_limit: Limit = _POLICY.total_limit
    quiet_hours: str = ""
    time_zone: str = "UTC"
    critical_breaks_quiet: bool = True
    resolve: bool = _POLICY.resolve
    most_findings: int = _POLICY.most_findings

    def policy(self, choices: Mapping[str, Choice]) -> Policy:
        """When what is told to channels with these choices."""
        return Policy(
            channels=choices,
            group_s=self.group_s,
            limit=self.limit,
            total_limit=self.total_limit,
            quiet_hours=self.hours(),
            resolve=self.resolve,
            most_findings=self.most_findings,
        )

    def hours(self) -> QuietHours | None:
        """When nothing is told; None for never."""
        if not self.quiet_hours:
            return None
        return QuietHours.parse(
            self.quiet_hours, zone=self.time_zone, critical_breaks_through=self.critical_breaks_quiet
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class AlertsConfig:
    """What is told when, and to whom.

    Args:
        settings: For all channels.
        channels: To whom, by name; none where alerts are not enabled.
        choices: What each of them is told, by the same names.
        lacking: Channels that have settings but not their secret, and where it could be given: a file is shared by
            people and machines of which not all have it.
    """

    settings: AlertSettings = field(default_factory=AlertSettings)
    channels: Mapping[str, Channel] = field(default_factory=dict)
    choices: Mapping[str, Choice] = field(default_factory=dict)
    lacking: Mapping[str, str] = field(default_factory=dict)

    @property
    def policy(self) -> Policy:
        """When."""
        return self.settings.policy(self.choices)

    def to_json(self) -> dict[str, Json]:
        """The table again, for the run and for `sonde config`: complete, but for the secrets."""
        own = {
            name: {**settings.shown(channel), **settings.shown(self.choices[name])}
            for name, channel in self.channels.items()
        }
        return {**settings.shown(self.settings), **own}


def read(table: Mapping[str, Any]) -> AlertsConfig:
    """The configuration that `[alerts]` holds.

    Raises:
        SettingError: a name or a value is wrong; the message says which, and what is allowed. It shows no secret.

    Example:
        >>> config = read({"severity": "critical", "slack": {"url": "https://a.b/c"}})
        >>> config.channels["slack"], config.policy.channels["slack"].severity
        (Slack(url=Secret(•••), timeout_s=10.0), <Severity.CRITICAL: 'critical'>)
    """
    known = DOOR.names()
    general = settings.read(AlertSettings, table, at=AT, also=known)
    for part, check in (("quiet_hours", general.hours), ("", lambda: general.policy({}))):
        try:
            check()
        except ValueError as error:
            raise SettingError(f"is refused: {error}", f"{AT}.{part}".rstrip(".")) from error
    channels: dict[str, Channel] = {}
    choices: dict[str, Choice] = {}
    lacking: dict[str, str] = {}
    for name in known:
        if name in table:
            kind, own = _kind(name), settings.table_of(f"{AT}.{name}", table[name])
            if missing := _missing_secret(name, kind, own):
                _check_names(name, kind, own)
                lacking[name] = missing
            else:
                channels[name], choices[name] = _channel(name, kind, own, general)
    if not general.enabled:
        channels, choices, lacking = {}, {}, {}
    return AlertsConfig(settings=general, channels=channels, choices=choices, lacking=lacking)


def _kind(name: str) -> Any:
    try:
        return DOOR.load(name)
    except PluginError as error:
        raise SettingError(f"cannot be used: {error}", f"{AT}.{name}") from error


def _check_names(name: str, kind: Any, table: Mapping[str, Any]) -> None:
    allowed = {*_CHOSEN, *(item.name for item in dataclasses.fields(kind))}
    for key in table:
        if key not in allowed:
            raise settings.unknown(f"{AT}.{name}", key, allowed)


def _missing_secret(name: str, kind: Any, table: Mapping[str, Any]) -> str:
    """Where the secret could be given that a channel needs and does not have; nothing where it has all."""
    kinds = typing.get_type_hints(kind)
    for item in dataclasses.fields(kind):
        is_needed = item.default is item.default_factory is dataclasses.MISSING and item.name not in table
        if is_needed and kinds[item.name] in (Secret, tuple[Secret, ...]):
            key = f"{AT}.{name}.{item.name}"
            return next((variable for variable, its in ENVIRONMENT.items() if its == key), key)
    return ""


def _channel(name: str, kind: Any, table: Mapping[str, Any], general: AlertSettings) -> tuple[Channel, Choice]:
    at = f"{AT}.{name}"
    hints = {key: f", or {variable} in the environment" for variable, key in ENVIRONMENT.items()}
    rest = {key: value for key, value in table.items() if key not in _CHOSEN}
    channel: Channel = settings.read(kind, rest, at=at, also=_CHOSEN, hints=hints)
    chosen = {key: getattr(general, key) for key in _CHOSEN}
    own = settings.read(Choice, {key: value for key, value in table.items() if key in _CHOSEN}, at=at)
    return channel, Choice(**{**chosen, **{key: getattr(own, key) for key in table if key in _CHOSEN}})
