"""Alerts for other programs: JSON to any web server, signed."""

import time
from dataclasses import dataclass

from sonde.alerts.channels import http
from sonde.alerts.channels.channel import Outcome, wait_at_most
from sonde.alerts.channels.signature import sign
from sonde.alerts.messages.payload import payload
from sonde.alerts.notices import Bulletin
from sonde.core import strict_json
from sonde.core.secret import Secret

_NO_SECRET = Secret("")


@dataclass(frozen=True, kw_only=True, slots=True)
class Webhook:
    """Posts each bulletin as JSON (`messages.payload`); `channels.http` says what is tried again.

    The header `X-Sonde-Delivery` is the same at every attempt: a receiver whose answer was lost can tell.

    Args:
        url: Where to.
        secret: Signs the messages (`channels.signature`); empty for none.
        timeout_s: How long to wait for the other side.
    """

    url: Secret
    secret: Secret = _NO_SECRET
    timeout_s: float = 10.0

    def __post_init__(self) -> None:
        http.check_url(self.url)
        wait_at_most(self.timeout_s)

    def send(self, bulletin: Bulletin) -> Outcome:
        """Post it."""
        body = strict_json.dumps(payload(bulletin)).encode()
        signed = sign(self.secret, body, timestamp=int(time.time())) if self.secret else {}
        return http.post(self.url, body, {"X-Sonde-Delivery": bulletin.id, **signed}, timeout_s=self.timeout_s)
