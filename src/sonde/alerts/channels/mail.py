"""Alerts by mail."""

import contextlib
import smtplib
import ssl
import urllib.parse
from dataclasses import dataclass
from typing import Any, NamedTuple

from sonde.alerts.channels.channel import Delivered, Outcome, Refused, TryAgain, wait_at_most
from sonde.alerts.channels.deadline import Deadline
from sonde.alerts.messages.mail import message
from sonde.alerts.notices import Bulletin
from sonde.core.secret import Secret

_PORTS = {"smtps": 465, "smtp": 587, "smtp+plain": 25}
_MOST_WAITS = 3.0  # time-outs of one answer in all: an answer that drips never takes as long as one
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Mail:
    """Sends each bulletin through an SMTP server, plain text and HTML.

    Tried again: no connection, a time-out, a reply of 4xx. Refused: a reply of 5xx (a wrong login or address), a server
    without STARTTLS, a certificate that does not hold. Where only some receivers are refused it counts as delivered,
    with a remark: sending it again would tell the others twice.

    Args:
        url: The server: `smtps://user:password@host:465` for TLS from the start, `smtp://user:password@host:587` for
            STARTTLS, without which nothing is sent, `smtp+plain://localhost:25` for a relay on this machine or in its
            own network, unencrypted, to which no password is sent unless it is this machine. Special characters in
            user and password as %40 for @.
        to: The receivers' addresses.
        sender: Address in From; the user where that is an address, else `sonde@<server>`.
        timeout_s: How long to wait for each answer of the server; all of them may take three times as long.
    """

    url: Secret
    to: tuple[str, ...]
    sender: str = ""
    timeout_s: float = 20.0

    def __post_init__(self) -> None:
        server = _server(self.url)
        if server.scheme == "smtp+plain" and server.user and server.host not in _LOOPBACK:
            raise ValueError("`url` with smtp+plain:// would send the password unencrypted; use smtps:// or smtp://.")
        if not self.to:
            raise ValueError("`to` must have at least one address, got none.")
        for address in (*self.to, *filter(None, [self.sender])):
            if address.count("@") != 1 or not address.isprintable() or " " in address or "," in address:
                raise ValueError(f"{address!r} is no mail address; write it as name@example.org.")
        wait_at_most(self.timeout_s)

    def send(self, bulletin: Bulletin) -> Outcome:
        """Send it, over a connection of its own."""
        server = _server(self.url)
        sender = self.sender or (server.user if "@" in server.user else f"sonde@{server.host}")
        mail = message(bulletin, sender=sender, to=self.to)
        with Deadline(_MOST_WAITS * self.timeout_s) as deadline:
            try:
                with contextlib.closing(self._connected(server, deadline)) as smtp:
                    if server.user:
                        smtp.login(server.user, server.password.reveal())
                    refused = smtp.send_message(mail, sender, self.to)
                    with contextlib.suppress(smtplib.SMTPException, OSError):  # it is delivered, however they part
                        smtp.quit()
            except (smtplib.SMTPException, OSError) as error:
                return _meaning(TimeoutError() if deadline.has_passed else error)
        return Delivered(f"refused by the server: {', '.join(sorted(refused))}" if refused else "")

    def _connected(self, server: "_Server", deadline: Deadline) -> smtplib.SMTP:
        class Watched(smtplib.SMTP):
            def _get_socket(self, *args: Any) -> Any:
                connection = super()._get_socket(*args)  # type: ignore[misc]
                deadline.watch(connection)
                return connection

        class WatchedTls(smtplib.SMTP_SSL, Watched):  # which calls `Watched._get_socket` before it begins with TLS
            pass

        if server.scheme == "smtps":
            return WatchedTls(server.host, server.port, timeout=self.timeout_s, context=ssl.create_default_context())
        smtp = Watched(server.host, server.port, timeout=self.timeout_s)
        if server.scheme == "smtp":
            try:
                smtp.starttls(context=ssl.create_default_context())
            except BaseException:
                smtp.close()
                raise
        return smtp


class _Server(NamedTuple):
    scheme: str
    host: str
    port: int
    user: str
    password: Secret


def _server(url: Secret) -> _Server:
    try:
        parts = urllib.parse.urlsplit(url.reveal())
        port = parts.port or _PORTS[parts.scheme]
    except (KeyError, ValueError):  # its message may hold the password
        parts = None
    if parts is None or not parts.hostname:
        raise ValueError(
            "`url` must be smtps://user:password@host:port (TLS), smtp://… (STARTTLS) or smtp+plain://… (neither); "
            "it is not shown, being a secret."
        ) from None
    user, password = urllib.parse.unquote(parts.username or ""), urllib.parse.unquote(parts.password or "")
    return _Server(parts.scheme, parts.hostname, port, user, Secret(password))


def _meaning(error: Exception) -> Outcome:
    """By reply codes: what servers say in words may repeat what they were sent."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        codes = {address: code for address, (code, _) in error.recipients.items()}
        reason = ", ".join(f"{address} ({code})" for address, code in sorted(codes.items()))
        passing = any(400 <= code < 500 for code in codes.values())
        return (TryAgain if passing else Refused)(f"no receiver was accepted: {reason}")
    if isinstance(error, smtplib.SMTPResponseException):
        step = type(error).__name__.removeprefix("SMTP").removesuffix("Error").lower()
        kind = Refused if 500 <= error.smtp_code < 600 else TryAgain
        return kind(f"the server says {error.smtp_code} ({step})")
    if isinstance(error, smtplib.SMTPServerDisconnected):
        return TryAgain("the server closed the connection")
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return Refused("the server has no STARTTLS, or no login that Python knows")
    if isinstance(error, smtplib.SMTPException):
        return Refused(type(error).__name__)
    if isinstance(error, ssl.SSLCertVerificationError):
        return Refused(f"its certificate does not hold: {error.verify_message}")
    if isinstance(error, TimeoutError):
        return TryAgain("it does not answer in time")
    return TryAgain(f"{type(error).__name__}: {getattr(error, 'strerror', None) or 'no connection'}")
