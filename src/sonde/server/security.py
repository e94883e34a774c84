"""Who may ask: the names that the server answers to, the token, and what a browser is told to forbid."""

import hmac
import ipaddress
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from sonde.server.refusals import Refusal

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_MOST_NAME = 255

HEADERS: Mapping[str, str] = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
        "font-src 'self'; connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
"""What every answer says to the browser. Styles may be inline: they run nothing."""


@dataclass(frozen=True, kw_only=True)
class Access:
    """Who may ask.

    Args:
        token: What has to be shown; nothing where empty.
        names: Names of this machine by which it may be asked for, besides addresses where a token is wanted.
        port: Of the server; cookies of several on one machine are told apart by it.
    """

    token: str = ""
    names: frozenset[str] = frozenset(LOOPBACK)
    port: int = 0

    @property
    def cookie(self) -> str:
        """The name of the cookie that holds the token."""
        return f"sonde-{self.port}"

    def check_host(self, host: str) -> None:
        """Refuse a name that is not ours.

        A page of somebody else's may have its own name lead to this machine (DNS rebinding): then the browser would
        hand it our answers. A name that is an address cannot be led elsewhere; without a token only our own count.

        Raises:
            Refusal: the name is another one.
        """
        name = host_name(host)
        if name in self.names or (self.token and _is_address(name)):
            return
        raise Refusal(
            403,
            f"the host {name[:_MOST_NAME]!r} is not one of this server's names.",
            allowed=", ".join(sorted(self.names)),
            do="open the address that `sonde ui` printed, or give the name: sonde ui --allow-host NAME",
        )

    def check_token(self, query: str, headers: Mapping[str, str]) -> bool:
        """Refuse who does not show the token; whether it came in the address, and a cookie is to hold it from now on.

        Raises:
            Refusal: the token is missing or wrong.
        """
        if not self.token:
            return False
        shown = parse_qs(query, max_num_fields=200).get("token", [""])[0] if "token=" in query else ""
        if shown and self._is_right(shown):
            return True
        kind, _, value = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self._is_right(value.strip()):
            return False
        if self._is_right(_cookie(headers.get("cookie", ""), self.cookie)):
            return False
        raise Refusal(
            401,
            "the token is wrong." if shown or value else "a token is needed.",
            allowed="?token=… once, then the cookie; or the header Authorization: Bearer …",
            do="open the whole address that `sonde ui` printed.",
        )

    def check_origin(self, scheme: str, headers: Mapping[str, str]) -> None:
        """Refuse what a page of somebody else's sends.

        Raises:
            Refusal: the header Origin is missing, or not ours.
        """
        origin = headers.get("origin", "")
        if origin and origin.lower() == f"{scheme}://{headers.get('host', '')}".lower():
            return
        raise Refusal(
            403,
            f"the origin {origin[:_MOST_NAME]!r} is not this server's." if origin else "the request has no Origin.",
            allowed=f"Origin: {scheme}://{headers.get('host', '')}",
            do="send it from the page, or with that header.",
        )

    def _is_right(self, shown: str) -> bool:
        return hmac.compare_digest(shown.encode(errors="surrogateescape"), self.token.encode())


def names_of(bound: str, others: Iterable[str] = ()) -> frozenset[str]:
    """The names by which a server that is bound to an address may be asked for.

    Args:
        bound: The address.
        others: Names that the user gave.

    Example:
        >>> sorted(names_of("127.0.0.1", ["Lab.example"]))
        ['127.0.0.1', '::1', 'lab.example', 'localhost']
    """
    names = {*LOOPBACK, bound.lower(), *(name.lower() for name in others)}
    if not is_loopback(bound):
        names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    return frozenset(names - {"", "0.0.0.0", "::"})  # left out, since every address is ours there


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine alone.

    Example:
        >>> [is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "10.0.0.7", "lab.example")]
        [True, True, True, False, False, False]
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_name(host: str) -> str:
    """The name in a header Host, without its port.

    Example:
        >>> host_name("LOCALHOST:8321"), host_name("[::1]:8321"), host_name("a@b"), host_name("")
        ('localhost', '::1', '', '')
    """
    try:
        parts = urlsplit(f"//{host}")
        port_is_number = parts.port is None or parts.port > 0
    except ValueError:
        return ""
    is_plain = not (parts.path or parts.query or parts.fragment or "@" in host)
    return (parts.hostname or "") if is_plain and port_is_number else ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _cookie(header: str, name: str) -> str:
    """The value of one cookie, whatever nonsense the others are."""
    for pair in header.split(";"):
        key, equals, value = pair.strip().partition("=")
        if equals and key == name:
            return value.strip('"')
    return ""
