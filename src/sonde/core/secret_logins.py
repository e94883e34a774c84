"""Logins in addresses: `postgres://user:password@host/db`, `https://token@host`, `user:password@host`."""

import re

from sonde.core.secret import HIDDEN

_REST = re.compile(r"[^\s\"'<>`]*")
_AUTHORITY = re.compile(r"[^/?#\\]*")
_QUERY = re.compile(r"[?#]")
_PORT = re.compile(r"\d{0,5}")
# In another address, as a parameter: `?url=postgres%3A%2F%2Fuser%3Apassword%40host`.
_ENCODED = re.compile(r"(?i:(%3A%2F%2F)[^\s\"'<>&@/]{1,300}?%40)")
_BARE = re.compile(r"(?<![\w.+/@:-])([\w.+-]{1,64}):([^\s:@/\"'<>,;=(){}\[\]]{3,128})@(?=[\w-]{1,64}(?:\.[\w-]|:\d|/))")
_PUBLIC_USERS = frozenset({"git", "hg", "svn", "anonymous"})
_CONTAINERS = re.compile(r"(?:abfss?|wasbs?)://$")  # of Azure: container@account
_LABELS = frozenset({"mailto", "email", "mail", "contact", "author", "from", "to", "by", "sip", "xmpp", "acct", "user"})
_DIGEST = re.compile(r"sha\d{3}:|md5:")


def hide_logins(text: str) -> str:
    """The text without users and passwords of addresses; a user alone may be a token, and goes as well.

    Example:
        >>> hide_logins("postgres://bob:p@ss/w0rd@db:5432/x, https://ghp_x@github.com/a, http://host:80/pkg@1.2")
        'postgres://•••@db:5432/x, https://•••@github.com/a, http://host:80/pkg@1.2'
    """
    if "@" in text:
        text = _BARE.sub(_of_bare, _without_users(text))
    return _ENCODED.sub(rf"\1{HIDDEN}%40", text) if "%40" in text else text


def _without_users(text: str) -> str:
    shown, at = [], 0
    while (begin := text.find("://", at)) >= 0:
        begin += 3
        following = text.find("://", begin)
        rest = _REST.match(text, begin, len(text) if following < 0 else following)
        assert rest is not None
        length = _end_of_user(rest[0])
        if rest[0][:length] in _PUBLIC_USERS or _CONTAINERS.search(text, max(0, begin - 10), begin):
            length = 0
        shown += [text[at:begin], HIDDEN if length else ""]
        at = begin + length
    return "".join([*shown, text[at:]])


def _end_of_user(rest: str) -> int:
    """Where the user of an address ends, behind its `://`; 0 where it has none."""
    authority = _AUTHORITY.match(rest)
    assert authority is not None
    name, colon, behind = authority[0].partition(":")
    if "@" in authority[0]:
        if not colon or "@" in name:
            return authority[0].rindex("@")
        query = _QUERY.search(rest)  # a password may have slashes and further @
        return rest.rindex("@", 0, query.start() if query else len(rest))
    if colon and not name.startswith("[") and not _PORT.fullmatch(behind) and "@" in rest:
        return rest.rindex("@")
    return 0


def _of_bare(found: re.Match[str]) -> str:
    if found[1].lower() in _LABELS or _DIGEST.match(found.string, found.end()):
        return found[0]
    return f"{HIDDEN}@"
