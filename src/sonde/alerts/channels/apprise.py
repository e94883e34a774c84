"""Alerts to everything else: phones, desktops, Discord, Telegram, Teams … through the library apprise (an extra)."""

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sonde.alerts.channels.channel import Delivered, Outcome, Refused, TryAgain
from sonde.alerts.messages import plain
from sonde.alerts.notices import Bulletin
from sonde.core.errors import MissingExtra
from sonde.core.findings import Severity
from sonde.core.optional import require
from sonde.core.secret import Secret

_TYPES = {Severity.INFO: "info", Severity.WARNING: "warning", Severity.CRITICAL: "failure"}
_LOGGERS = ("apprise", "urllib3.connectionpool")


@dataclass(frozen=True, kw_only=True, slots=True)
class Apprise:
    """Sends each bulletin as plain text to all addresses, one after another.

    Apprise does not say why something was not sent: it is tried again where no address took it. Where only some did it
    counts as delivered, with a remark: sending it again would tell the others twice. Refused: apprise is not
    installed, or knows none of the addresses. What apprise and urllib3 log meanwhile is dropped: it shows addresses.

    Args:
        urls: Addresses as apprise writes them, such as `discord://…`.
    """

    urls: tuple[Secret, ...]

    def __post_init__(self) -> None:
        if not self.urls:
            raise ValueError("`urls` must have at least one address, got none.")

    def send(self, bulletin: Bulletin) -> Outcome:
        """Send it to all of them."""
        try:
            apprise = require("apprise", "alerts")
        except MissingExtra as error:
            return Refused(str(error))
        with _hushed():
            outcomes = {number: _sent(apprise, url, bulletin) for number, url in enumerate(self.urls, start=1)}
        failed = {number: trouble for number, trouble in outcomes.items() if not isinstance(trouble, Delivered)}
        reasons = ", ".join(f"address {number} {trouble.reason}" for number, trouble in failed.items())
        if len(failed) < len(outcomes):
            return Delivered(reasons)
        is_passing = any(isinstance(trouble, TryAgain) for trouble in failed.values())
        return (TryAgain if is_passing else Refused)(reasons)


def _sent(apprise: Any, url: Secret, bulletin: Bulletin) -> Outcome:
    addressee = apprise.Apprise()
    if not addressee.add(url.reveal()):
        return Refused("is not one that apprise knows")
    arrived = addressee.notify(
        title=plain.title(bulletin),
        body=plain.text(bulletin),
        notify_type=_TYPES[bulletin.notice.severity],
        body_format="text",
    )
    return Delivered() if arrived else TryAgain("could not be reached")


@contextlib.contextmanager
def _hushed() -> Iterator[None]:
    """Without what apprise and its HTTP library log, from whichever thread: apprise sends from some of its own."""

    def drop(record: logging.LogRecord) -> bool:
        return False

    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addFilter(drop)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(drop)
