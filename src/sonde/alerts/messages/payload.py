"""A bulletin as JSON for other programs; a promise like that of findings: keys may be added, never renamed."""

import datetime

from sonde.alerts.messages import plain
from sonde.alerts.notices import Bulletin
from sonde.core.strict_json import Json

SCHEMA = 1


def payload(bulletin: Bulletin) -> Json:
    """What is posted to a generic webhook; findings as `sonde diagnose --json` has them."""
    notice = bulletin.notice
    return {
        "schema": SCHEMA,
        "id": bulletin.id,
        "run": bulletin.run,
        "host": bulletin.host,
        "step": bulletin.step,
        "time": datetime.datetime.fromtimestamp(bulletin.time_s, datetime.UTC).isoformat(),
        "severity": notice.severity.value,
        "title": plain.title(bulletin),
        "findings": [finding.to_json() for finding in notice.alarms],
        "resolved": [finding.to_json() for finding in notice.resolved],
        "more": notice.more,
        "more_resolved": notice.more_resolved,
        "to_follow": notice.to_follow,
    }
