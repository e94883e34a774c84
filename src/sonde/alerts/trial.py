"""A test message to each channel: whether the settings are right is known before the night, not after it."""

import math
import socket
import time
import uuid
from collections.abc import Mapping

from sonde.alerts.channels.channel import Channel, Outcome, attempt
from sonde.alerts.notices import Bulletin, Curve, Notice
from sonde.core.findings import Finding, Severity

_FINDING = Finding(
    code="TST001",
    name="test-of-alerts",
    severity=Severity.INFO,
    first_step=0,
    last_step=0,
    open=False,
    message="This is only a test: nothing is wrong. An alert about a training will look like this.",
)
_CURVE = Curve(title="an example of a loss", values=tuple(2 * math.exp(-step / 30) + 0.5 for step in range(100)))


def trial(channels: Mapping[str, Channel]) -> dict[str, Outcome]:
    """Send one test message through each, now, one after another; neither limits nor quiet hours hold it back.

    Returns:
        What came of it, by channel.
    """
    bulletin = Bulletin(
        notice=Notice(alarms=(_FINDING,)),
        id=uuid.uuid4().hex,
        run="a test of Sonde's alerts",
        host=socket.gethostname(),
        time_s=time.time(),
        curve=_CURVE,
    )
    return {name: attempt(channel, bulletin) for name, channel in channels.items()}
