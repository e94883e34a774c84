"""What of a value is hidden, given what its name says."""

import re

from sonde.core.randomness import evidence, is_random
from sonde.core.secret import HIDDEN
from sonde.core.secret_names import Naming

_PLAIN = (
    "none null nil true false yes no on off auto default enabled disabled required optional anonymous basic digest "
    "bearer oauth oauth2 ntlm kerberos token apikey api_key password cookie env environment keyring netrc"
)
# What stands for a secret without being one: ${TOKEN}, $TOKEN, {{ token }}, <your key>, [MASK], ****.
_STAND_IN = re.compile(
    r"\$\{[^{}]*\}|\$[A-Z_][A-Z_]*|%[A-Z_]+%|\{\{[^{}]*\}\}|</?[^<>\d]{0,60}>|\[[A-Z_]{0,20}\]|[*•x.X…]+"
)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?", re.IGNORECASE)
_VERSION = re.compile(r"[vV]?\d+(?:\.\d+)+[\w.+-]*")
_LONG_NUMBER = 7  # digits: fewer count something
_WORDS = re.compile(r"[^\W\d_]+(?:[ _.,!?'-]+[^\W\d_]+)*[.,!?]*")
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,32}://)(?:[^\s/@]{0,256}@)?([^\s/?#]{0,256})(.*)", re.DOTALL)
_PATH = re.compile(r"(?:[A-Za-z]:\\|~?/|\.\.?/).*", re.DOTALL)
_HEX_KEY = re.compile(r"[0-9a-f]{32,}|[0-9A-F]{32,}")
_LOGIN = re.compile(r"[^\s:/]{1,128}:[^\s/]{4,256}")
_SHORT_KEY, _SHORT_EVIDENCE = 10, 8.0  # less will do where the name is a hint


def hidden(value: str, naming: Naming, *, in_prose: bool = False) -> str | None:
    """What is shown of a value; None where its name is no reason to hide any of it.

    Args:
        value: Without quotes.
        naming: What its name says.
        in_prose: Whether it may be a sentence: "unexpected token: comma".

    Example:
        >>> hidden("hunter2", Naming.SECRET), hidden("none", Naming.SECRET), hidden("512", Naming.TOKEN)
        ('•••', None, None)
        >>> hidden("https://example.org/in/7Gx", Naming.ADDRESS), hidden("basic", Naming.DOUBTFUL)
        ('https://example.org/•••', None)
    """
    text = value.strip()
    if naming is Naming.HARMLESS or not text or text.lower() in _PLAIN.split() or _STAND_IN.fullmatch(text):
        return None
    if naming is Naming.SECRET:
        return None if in_prose and _VERSION.fullmatch(text) else HIDDEN  # a package: `keyring-secrets==1.2`
    if naming is Naming.TOKEN:
        is_number = bool(_NUMBER.fullmatch(text)) and len(text) < _LONG_NUMBER
        is_said = in_prose and bool(_WORDS.fullmatch(text) or _VERSION.fullmatch(text))
        return None if is_number or is_said else HIDDEN
    if naming is Naming.DOUBTFUL:
        return HIDDEN if resembles_key(text) else None
    address = _ADDRESS.fullmatch(text)
    if naming is Naming.LOGIN:
        return None if address or in_prose else HIDDEN
    if address:
        return f"{address[1]}{address[2]}/{HIDDEN}" if len(address[3]) > 1 else None
    return HIDDEN if resembles_key(text) else None


def resembles_key(value: str) -> bool:
    """Whether a value that has a doubtful name is a secret: random, 32 digits of hex, or `user:password`.

    Example:
        >>> [resembles_key(value) for value in ("bob:hunter2", "val/acc1", "kX9mP2vQ7rTz", "0123abcd" * 4)]
        [True, False, True, True]
    """
    if _PATH.fullmatch(value) or "://" in value:
        return False
    if _HEX_KEY.fullmatch(value) or is_random(value) or (_LOGIN.fullmatch(value) and "::" not in value):
        return True
    if len(value) < _SHORT_KEY or not (value.isascii() and value.isalnum()) or value.isalpha() or value.isdigit():
        return False
    mixed = value not in (value.lower(), value.upper())
    return bool(set(value.lower()) - set("0123456789abcdef")) and evidence(value, mixed=mixed) > _SHORT_EVIDENCE
