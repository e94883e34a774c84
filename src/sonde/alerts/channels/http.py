"""A POST by the standard library, and what its answer means."""

import base64
import contextlib
import datetime
import email.utils
import http.client
import re
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from sonde.alerts.channels.channel import Delivered, Outcome, Refused, TryAgain
from sonde.alerts.channels.deadline import Deadline
from sonde.core.secret import Secret

_PASSING = {408, 425, 429}
"""Refusals of this moment: time-out, too early, too many requests."""
_MOST_WAIT_S = 3600.0
_MOST_ANSWER_BYTES = 1024
_ERROR_WORD = re.compile(rb"[a-z_]{1,60}")


def check_url(url: Secret) -> None:
    """Refuse what is no address of a web server."""
    try:
        parts = urllib.parse.urlsplit(url.reveal())
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # its message may hold the password
        is_address = False
    if not is_address:
        raise ValueError(
            "`url` must begin with https:// (or http://) and a host, before which a login may stand (user:password@, "
            "special characters in it as %40 for @); it is not shown, being a secret."
        )


def post(url: Secret, body: bytes, headers: Mapping[str, str], *, timeout_s: float) -> Outcome:
    """Post JSON; redirects are refused, proxies of the environment are used.

    2xx is delivered. Tried again: no connection, a time-out, 408, 425, 429 and 5xx, not before `Retry-After`. Refused:
    everything else, a certificate that does not hold among it.

    Args:
        url: Where to; never part of a reason. A login in it (`https://user:password@host/`) is sent as such.
        body: What.
        headers: Beside Content-Type and User-Agent.
        timeout_s: For connecting, and then for all of it: an answer that drips is not waited for.
    """
    everything = {"Content-Type": "application/json", "User-Agent": "sonde", **headers}
    with Deadline(timeout_s) as deadline:
        try:
            address, login = _without_login(url)
            request = urllib.request.Request(address, data=body, headers={**everything, **login}, method="POST")
            with _opener(deadline).open(request, timeout=timeout_s) as answer:
                return _meaning(answer.status, answer.headers.get("Retry-After"), _words(answer))
        except urllib.error.URLError as error:
            return _trouble(TimeoutError() if deadline.has_passed else error.reason)
        except (OSError, http.client.HTTPException, ValueError) as error:
            return _trouble(TimeoutError() if deadline.has_passed else error)


def _without_login(url: Secret) -> tuple[str, dict[str, str]]:
    """The address, and the header that holds its login."""
    parts = urllib.parse.urlsplit(url.reveal())
    if parts.username is None and parts.password is None:
        return url.reveal(), {}
    login = ":".join(urllib.parse.unquote(part or "") for part in (parts.username, parts.password))
    address = urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    return address, {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}


def _words(answer: Any) -> bytes:
    """The beginning of what the other side says beside a refusal; nothing where it does not come."""
    if 200 <= answer.status < 300:
        return b""
    with contextlib.suppress(OSError, http.client.HTTPException):
        words: bytes = answer.read(_MOST_ANSWER_BYTES)
        return words
    return b""


def retry_after_s(header: str | None, now_s: float) -> float:
    """Seconds that a `Retry-After` asks for, as a number or a date; 0 where it says nothing sensible, at most an hour.

    Example:
        >>> retry_after_s("30", 0.0), retry_after_s("Thu, 01 Jan 1970 00:02:00 GMT", 0.0), retry_after_s("soon", 0.0)
        (30.0, 120.0, 0.0)
    """
    if header is None:
        return 0.0
    if re.fullmatch(r"\d{1,9}", header.strip()):
        return min(float(header), _MOST_WAIT_S)
    try:
        date = email.utils.parsedate_to_datetime(header)
    except ValueError:
        return 0.0
    if date.tzinfo is None:  # "-0000": UTC, of an unknown place
        date = date.replace(tzinfo=datetime.UTC)
    return min(max(0.0, date.timestamp() - now_s), _MOST_WAIT_S)


def _meaning(status: int, retry_after: str | None, answer: bytes) -> Outcome:
    if 200 <= status < 300:
        return Delivered()
    # Words such as Slack's `invalid_token` help; anything longer might hold the address or the secret.
    word = answer.strip()
    reason = f"HTTP {status}" + (f" ({word.decode()})" if _ERROR_WORD.fullmatch(word) else "")
    if status >= 500 or status in _PASSING:
        return TryAgain(reason, retry_after_s(retry_after, time.time()))
    return Refused(reason)


def _trouble(error: object) -> Outcome:
    """By type and system message only: other messages may hold the address."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return Refused(f"its certificate does not hold: {error.verify_message}")
    if isinstance(error, TimeoutError):
        return TryAgain("it does not answer in time")
    if isinstance(error, OSError):  # http.client's `RemoteDisconnected` is one
        return TryAgain(f"{type(error).__name__}: {error.strerror or 'no connection'}")
    if isinstance(error, http.client.HTTPException) and not isinstance(error, http.client.InvalidURL):
        return TryAgain(f"its answer is not HTTP: {type(error).__name__}")
    return Refused(f"the address is not one: {type(error).__name__}")


def _opener(deadline: Deadline) -> urllib.request.OpenerDirector:
    """Without the handlers that follow redirects or raise for a status; files cannot be opened by it."""

    class Watched(http.client.HTTPConnection):
        def connect(self) -> None:
            super().connect()
            deadline.watch(self.sock)

    class WatchedTls(http.client.HTTPSConnection, Watched):  # which calls `Watched.connect` before it begins with TLS
        pass

    class Http(urllib.request.HTTPHandler):
        def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(Watched, request)

    class Https(urllib.request.HTTPSHandler):
        def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(WatchedTls, request)

    opener = urllib.request.OpenerDirector()
    for handler in (urllib.request.ProxyHandler(), Http(), Https()):
        opener.add_handler(handler)
    return opener
