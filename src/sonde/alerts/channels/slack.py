"""Alerts in Slack, and in whatever takes the webhooks of Slack."""

from dataclasses import dataclass

from sonde.alerts.channels import http
from sonde.alerts.channels.channel import Outcome, wait_at_most
from sonde.alerts.messages.slack import payload
from sonde.alerts.notices import Bulletin
from sonde.core import strict_json
from sonde.core.secret import Secret


@dataclass(frozen=True, kw_only=True, slots=True)
class Slack:
    """Posts each bulletin as blocks to an incoming webhook; `channels.http` says what is tried again.

    Args:
        url: The webhook's address: whoever knows it can write to the channel.
        timeout_s: How long to wait for the other side.
    """

    url: Secret
    timeout_s: float = 10.0

    def __post_init__(self) -> None:
        http.check_url(self.url)
        wait_at_most(self.timeout_s)

    def send(self, bulletin: Bulletin) -> Outcome:
        """Post it."""
        return http.post(self.url, strict_json.dumps(payload(bulletin)).encode(), {}, timeout_s=self.timeout_s)
