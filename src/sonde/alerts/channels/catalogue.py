"""The channels by name; third parties' come in through the entry points `sonde.channels`."""

from dataclasses import is_dataclass

from sonde.core.plugins import Door

DOOR = Door(
    group="sonde.channels",
    kind="channel",
    builtins={
        "apprise": "sonde.alerts.channels.apprise:Apprise",
        "log": "sonde.alerts.channels.log_file:LogFile",
        "mail": "sonde.alerts.channels.mail:Mail",
        "slack": "sonde.alerts.channels.slack:Slack",
        "webhook": "sonde.alerts.channels.webhook:Webhook",
    },
    accepts=lambda channel: is_dataclass(channel) and callable(getattr(channel, "send", None)),
)
