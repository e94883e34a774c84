"""Secrets that a text names: `api_key=…`, `"token": "…"`, `--password …`, `Authorization: Bearer …`, `?sig=…`."""

import re
from typing import NamedTuple

from sonde.core.secret import HIDDEN
from sonde.core.secret_names import Naming, naming
from sonde.core.secret_values import hidden

# A text without any of these names nothing.
_STEMS = re.compile(
    r"(?i:\s-u\s|key|tok|pass|pwd|pw|secret|cred|auth|bearer|cookie|session|sid|sig|dsn|conn|hook|jwt|pat|sas|otp|pin|user|"
    r"kennwort|contraseña|senha|пароль|密码|パスワード|비밀번호)"
)
_NAME = r"[^\W\d][\w.-]{0,255}"
_NAMED = re.compile(
    rf"(?<![\w-])-{{1,2}}(?P<option>[A-Za-z][\w.\-]{{0,127}})[ \t]{{1,8}}(?=[^\s=:-])"
    rf"|(?:(?<![\w.-])-{{0,2}}|(?<=%[0-9A-Fa-f]{{2}}))(?P<name>{_NAME})(?P<close>\\{{0,4}}[\"'`]|%2[27])?\]?"
    r"[ \t]{0,8}(?P<sign>=>|:=|={1,3}|:(?![:/])|%3[ADad])(?P<gap>[ \t]{0,8})"
)
_OPEN = re.compile(r"[bBrRuUfF]{0,2}(\"{3}|'{3}|\\{0,4}[\"'`]|%2[27])")
_UP_TO = {mark: re.compile(rf"(?:[^{mark}\\]|\\.)*", re.DOTALL) for mark in "\"'`"}
_CALL = re.compile(r"(?:[A-Za-z_][\w.]{0,63})?[\[({]")
# `;`, `,` and `&` end a value where another name follows, or nothing; else they are part of it.
_END = (
    r"[;,&|](?=\s|$|[A-Za-z_%][\w.%-]{0,63}=)|[;,](?=[ \t]{0,8}[\"'{]|\\)|[;,](?=[A-Za-z_][\w.-]{0,63}:[ \t])|"
    r"\\[nrt\"']"
)
_BARE = re.compile(rf"(?:[^\s\"'`;,&|\\]|(?!{_END})[;,&|\\])+")
_BARE_ENCODED = re.compile(r"(?:[^\s\"'`&%]|(?!(?i:%2[2670C]|%7D|%0A))%)+")
_LINE = re.compile(r"[^\r\n\"'`]*")
_HEADER = re.compile(r"(?:[^\s\"'`]|[ \t](?!--?[A-Za-z]))*")
_COMMENT = re.compile(r"\s+#.*")
_SCHEME = re.compile(r"(?i:(?:Bearer|Basic|Digest|Token|ApiKey|Negotiate|AWS4-HMAC-SHA256)[ \t]{1,4})")
_WORD_BEFORE = re.compile(r"([A-Za-z]{1,32})[ ]$")
_LINE_START = re.compile(r"(?:^|[\r\n])[ \t>*-]{0,64}$")
_HEADERS = frozenset({"authorization", "proxy-authorization", "cookie", "set-cookie"})
_LOGIN_OPTIONS = frozenset({"u", "user", "login", "proxy-user", "user-login"})
_TRAILING = {")": "(", "]": "[", "}": "{", ">": "<"}
_MOST_IN_BRACKETS = 4096
# Of a value that may stay as it is: what is looked at again and again must be short, or a long text takes for ever.
_MOST_LOOKED_AT = 128
_MOST_TRAILING = 8
_NESTING = re.compile(r"[\[\](){}]")


class _Extent(NamedTuple):
    start: int
    end: int
    is_quoted: bool = False


def hide_named(text: str) -> str:
    """The text without values whose names say that they are secrets.

    Example:
        >>> hide_named("Config(lr=0.1, api_key='abc') --db-password hunter2 https://h/x?sig=a%2Fb7Kq&page=2")
        "Config(lr=0.1, api_key='•••') --db-password ••• https://h/x?sig=•••&page=2"
        >>> hide_named("Authorization: Bearer abc.def, tokens: 512, unexpected token: comma")
        'Authorization: Bearer •••'
    """
    if not _STEMS.search(text):
        return text
    shown: list[str] = []
    copied = at = 0
    while named := _NAMED.search(text, at):
        at = named.end()
        found = _of_option(text, named) if named["option"] else _of_name(text, named)
        if found is None:
            continue
        extent, replacement = found
        shown += [text[copied : extent.start], replacement]
        copied = at = max(extent.end, at)
    return "".join([*shown, text[copied:]])


def _of_option(text: str, named: re.Match[str]) -> tuple[_Extent, str] | None:
    name = named["option"]
    if name.lower() in _LOGIN_OPTIONS:
        extent = _extent(text, named.end(), most=_MOST_LOOKED_AT)
        value = text[extent.start : extent.end]
        return (extent, HIDDEN) if ":" in value and "://" not in value else None
    said = naming(name)
    if len(name) == 1 or said is Naming.HARMLESS:
        return None
    extent = _extent(text, named.end(), most=_most(said))
    replacement = hidden(text[extent.start : extent.end], said)
    return None if replacement is None else (extent, replacement)


def _of_name(text: str, named: re.Match[str]) -> tuple[_Extent, str] | None:
    name, start, sign = named["name"], named.start("name"), named["sign"]
    said = naming(name)
    is_loose = not named["close"]
    if is_loose and name.lower() in ("key", "token", "keys", "tokens", "secret"):
        before = _WORD_BEFORE.search(text, max(0, start - 33), start)
        both = naming(f"{before[1]}_{name}") if before else said
        # "API key: …" is a secret, "pad token: …" is none; "with token=…" says no more than its last word.
        if both in (Naming.SECRET, Naming.TOKEN) or (both is Naming.HARMLESS and sign == ":"):
            said = both
    in_query = start > 0 and text[start - 1] in "?&"
    if in_query and (said is Naming.DOUBTFUL or name.lower() in ("code", "hmac")):
        said = Naming.TOKEN
    if said is Naming.HARMLESS:
        return None
    if name.lower() in _HEADERS:
        return _of_header(text, named)
    starts_line = is_loose and bool(_LINE_START.search(text, max(0, start - 66), start))
    extent = _extent(
        text,
        named.end(),
        most=_most(said),
        is_encoded=sign.startswith("%"),
        whole_line=starts_line and sign == ":",
    )
    if extent.end - extent.start >= _most(said):
        return None  # too long for a key that only its name would tell
    is_sentence = is_loose and sign == ":" and bool(named["gap"])
    in_braces = text[max(0, start - 8) : start].rstrip()[-1:] in ("{", "(", "[")
    in_prose = is_sentence and not (starts_line or extent.is_quoted or in_braces)
    value = text[extent.start : extent.end]
    replacement = hidden(value, said, in_prose=in_prose or in_query or sign.startswith("=="))
    return None if replacement is None else (extent, replacement)


def _of_header(text: str, named: re.Match[str]) -> tuple[_Extent, str] | None:
    """The rest of the line, or of what is quoted, but for the scheme."""
    if _OPEN.match(text, named.end()):
        extent = _extent(text, named.end(), most=len(text))
    else:
        rest = _HEADER.match(text, named.end())
        assert rest is not None
        extent = _Extent(named.end(), named.end() + len(rest[0].rstrip()))
    scheme = _SCHEME.match(text, extent.start, extent.end)
    start = scheme.end() if scheme else extent.start
    replacement = hidden(text[start : extent.end], Naming.SECRET)
    return None if replacement is None else (_Extent(start, extent.end), replacement)


def _most(said: Naming) -> int:
    return 1 << 62 if said in (Naming.SECRET, Naming.TOKEN) else _MOST_LOOKED_AT


def _extent(text: str, at: int, *, most: int, is_encoded: bool = False, whole_line: bool = False) -> _Extent:
    """Where a value begins and ends that stands here; no further than `most` characters are looked at."""
    until = min(len(text), at + most)
    opened = _OPEN.match(text, at)
    if opened:
        return _quoted(text, opened, until)
    call = _CALL.match(text, at)
    if call:
        return _Extent(at, _end_of_brackets(text, call.end(), until))
    if whole_line:
        rest = _LINE.match(text, at, until)
        assert rest is not None
        return _Extent(at, at + len(_COMMENT.sub("", rest[0], count=1).rstrip()))
    bare = (_BARE_ENCODED if is_encoded else _BARE).match(text, at, until)
    end = at if bare is None else bare.end()
    for _ in range(_MOST_TRAILING):
        if end == at or text[end - 1] not in ",;.)]}>" or _TRAILING.get(text[end - 1], "\0") in text[at:end]:
            break
        end -= 1
    return _Extent(at, end)


def _quoted(text: str, opened: re.Match[str], until: int) -> _Extent:
    mark, start = opened[1], opened.end()
    if mark in _UP_TO:  # behind a backslash, a mark is part of what it marks
        inside = _UP_TO[mark].match(text, start, until)
        assert inside is not None
        return _Extent(start, inside.end(), is_quoted=True)
    end = text.find(mark, start, until)
    return _Extent(start, until if end < 0 else end, is_quoted=True)


def _end_of_brackets(text: str, start: int, until: int) -> int:
    """Behind the bracket that closes the one before `start`; as far as one looks where there is none."""
    depth, until = 1, min(until, start + _MOST_IN_BRACKETS)
    for bracket in _NESTING.finditer(text, start, until):
        depth += 1 if bracket[0] in "[({" else -1
        if depth == 0:
            return bracket.end()
    return max(until, start)
