"""Signatures of webhooks: the receiver can tell that a message is Sonde's, whole and fresh.

The headers of a signed message are

    X-Sonde-Timestamp: 1700000000
    X-Sonde-Signature: sha256=<hex of HMAC-SHA256(secret, timestamp + "." + body)>

with the timestamp in seconds since 1970, of this very attempt, and the body's bytes as they came.
"""

import hashlib
import hmac

from sonde.core.secret import Secret

TIMESTAMP = "X-Sonde-Timestamp"
SIGNATURE = "X-Sonde-Signature"


def sign(secret: Secret, body: bytes, *, timestamp: int) -> dict[str, str]:
    """The two headers.

    Example:
        >>> sign(Secret("key"), b"{}", timestamp=0)["X-Sonde-Signature"][:23]
        'sha256=7314351dd949aa7e'
    """
    return {TIMESTAMP: str(timestamp), SIGNATURE: f"sha256={_digest(secret, body, str(timestamp))}"}


def verify(secret: Secret, body: bytes, *, timestamp: str, signature: str, now_s: float, within_s: float = 300) -> bool:
    """Whether a received message is genuine and not older than `within_s`; for receivers written in Python.

    Digests are compared in a time that does not depend on where they differ (`hmac.compare_digest`): a comparison by
    `==` tells a patient attacker the right signature, letter by letter. The age is asked because a message that
    somebody overheard stays genuine for ever.

    Example:
        >>> headers = sign(Secret("key"), b"{}", timestamp=1000)
        >>> came = {"timestamp": headers["X-Sonde-Timestamp"], "signature": headers["X-Sonde-Signature"]}
        >>> verify(Secret("key"), b"{}", **came, now_s=1010.0), verify(Secret("key"), b"{ }", **came, now_s=1010.0)
        (True, False)
        >>> verify(Secret("key"), b"{}", **came, now_s=2000.0)
        False
    """
    if not (timestamp.isascii() and timestamp.isdigit()) or len(timestamp) > 12:
        return False
    expected = f"sha256={_digest(secret, body, timestamp)}"
    genuine = hmac.compare_digest(expected.encode(), signature.encode())
    return genuine and abs(now_s - int(timestamp)) <= within_s


def _digest(secret: Secret, body: bytes, timestamp: str) -> str:
    return hmac.new(secret.reveal().encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
