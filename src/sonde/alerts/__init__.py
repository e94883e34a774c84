"""Alerts: what is told about findings, when and to whom; the policy and the messages are pure, the channels are not."""

from sonde.alerts.config import AlertsConfig, read
from sonde.alerts.notices import Curve
from sonde.alerts.sender import Sender
from sonde.alerts.trial import trial

__all__ = ["AlertsConfig", "Curve", "Sender", "read", "trial"]
