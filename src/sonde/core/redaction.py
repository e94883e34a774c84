"""What is kept of texts and settings: all of it but the secrets.

A secret is known by its name (`core.secret_names`), by its looks (`core.secret_shapes`), by its place in an address
(`core.secret_logins`), or because it is the value of a variable of the environment that has a secret's name. Everything
else stays as it is: a value that was hidden without need is lost.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus, unquote, urlsplit

from sonde.core import strict_json
from sonde.core.secret import HIDDEN
from sonde.core.secret_assignments import hide_named
from sonde.core.secret_logins import hide_logins
from sonde.core.secret_names import Naming, is_about, is_plural, naming
from sonde.core.secret_shapes import hide_keys, hide_random, hide_tokens
from sonde.core.secret_values import hidden
from sonde.core.strict_json import Json

_OPTION = re.compile(r"--?[^\W\d][\w.-]*")
_ONE_DASH_OPTION = re.compile(r"-[^\W\d_]+\d*")  # another word with one dash may as well be a password
_ASSIGNED = re.compile(r"([-+~]{0,2})([^\W\d][\w.@/\[\]-]{0,255})=(?!=)(.+)", re.DOTALL)
_LOGIN_OPTIONS = frozenset({"-u", "--user", "--login", "--proxy-user"})
_NAMES, _VALUES = ("name", "key", "header", "option", "parameter"), ("value", "val", "default")
# What is hidden may bare what is beside it; a long text is no setting, and has to be done with.
_ROUNDS, _SHORT = 4, 1 << 16
_LONG_NUMBER = 1_000_000

# Of the environment: a shorter value would be found in texts that have nothing to do with it.
_LEAST_CHARACTERS = 8
_LEAST_LETTERS = 12
_FOLDERS = frozenset({"PWD", "OLDPWD"})
_PATH = re.compile(r"(?:[A-Za-z]:)?[\\/~.][\w\\/~. -]*")


class Redactor:
    """Hides secrets; what it gives, given again, stays the same.

    Args:
        secrets: Texts to hide wherever they occur, as they are or encoded for an address (`secrets_of`).

    Example:
        >>> redact = Redactor({"correct horse"})
        >>> redact.plain({"lr": 0.1, "api_key": "abc", "args": ["--db", "postgres://me:pw@host/db", "--token", "xyz"]})
        {'lr': 0.1, 'api_key': '•••', 'args': ['--db', 'postgres://•••@host/db', '--token', '•••']}
        >>> redact.text("login with correct horse failed at step 3 of 1d9131e")
        'login with ••• failed at step 3 of 1d9131e'
    """

    def __init__(self, secrets: Collection[str] = ()) -> None:
        forms = {form for secret in secrets if secret for form in (secret, quote(secret, safe=""), quote_plus(secret))}
        self._secrets = sorted(forms, key=len, reverse=True)

    def text(self, text: str) -> str:
        """A text without secrets."""
        for _ in range(_ROUNDS if len(text) <= _SHORT else 1):
            shown = self._once(text)
            if shown == text:
                break
            text = shown
        return text

    def plain(self, value: Any) -> Json:
        """Any value as JSON can say it (`core.strict_json`), without secrets. Never raises."""
        return self._walk(strict_json.plain(value))

    def _once(self, text: str) -> str:
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, HIDDEN)
        return hide_random(hide_tokens(hide_named(hide_logins(hide_keys(text)))))

    def _walk(self, value: Json) -> Json:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return self._mapping(value)
        if isinstance(value, list):
            return self._pairs(value) if _are_pairs(value) else list(self._words(value))
        return value

    def _mapping(self, value: Mapping[str, Json]) -> Json:
        shown = {key: self._named(naming(key), item) for key, item in self._items(value)}
        name = next((value[key] for key in _NAMES if isinstance(value.get(key), str)), None)
        if name is not None:  # {"name": "API_KEY", "value": …}
            shown |= {key: self._named(naming(name), value[key]) for key in _VALUES if key in value}
        return shown

    def _named(self, said: Naming, value: Json) -> Json:
        if said is Naming.HARMLESS or value is None or isinstance(value, bool | float):
            return self._walk(value)
        if isinstance(value, int):
            is_hidden = said is Naming.SECRET or (said is Naming.TOKEN and abs(value) >= _LONG_NUMBER)
            return HIDDEN if is_hidden else value
        if isinstance(value, str):
            return self._value(value, said)
        if isinstance(value, list):
            return [self._named(said, item) for item in value]
        # What is under such a name is secret by it, unless it has a name that says otherwise.
        return {
            key: self._named(own if (own := naming(key)) is not Naming.HARMLESS or is_about(key) else said, item)
            for key, item in self._items(value)
        }

    def _value(self, value: str, said: Naming) -> str:
        for _ in range(_ROUNDS):
            shown = hidden(value, said)
            shown = self.text(value if shown is None else shown)
            if shown == value:
                break
            value = shown
        return value

    def _items(self, value: Mapping[str, Json]) -> Iterator[tuple[str, Json]]:
        return ((self.text(key), item) for key, item in value.items())

    def _pairs(self, value: list[Json]) -> Json:
        return [[name, self._named(naming(name), item)] for name, item in ((self.text(n), item) for n, item in value)]

    def _words(self, words: list[Json]) -> Iterator[Json]:
        """The words of a command line, or of anything else."""
        said, goes_on, is_login = Naming.HARMLESS, False, False
        for word in words:
            if not isinstance(word, str):
                yield self._walk(word)
                said, is_login = Naming.HARMLESS, False
            elif _OPTION.fullmatch(word) and (
                said not in (Naming.SECRET, Naming.TOKEN) or word[:2] == "--" or _ONE_DASH_OPTION.fullmatch(word)
            ):
                yield self.text(word)
                said = naming(word.lstrip("-")) if len(word) > 2 else Naming.HARMLESS
                goes_on, is_login = is_plural(word), word in _LOGIN_OPTIONS
            elif is_login and ":" in word and "://" not in word:
                yield HIDDEN
                is_login = False
            elif said in (Naming.SECRET, Naming.TOKEN) or (
                said is not Naming.HARMLESS and not _ASSIGNED.fullmatch(word)
            ):
                yield self._named(said, word)
                said = said if goes_on else Naming.HARMLESS
            else:
                yield self._word(word)
                said, is_login = Naming.HARMLESS, False

    def _word(self, word: str) -> str:
        for _ in range(_ROUNDS):
            assigned = _ASSIGNED.fullmatch(word)
            shown = None if assigned is None else hidden(assigned[3], naming(assigned[2]))
            shown = self.text(word if assigned is None or shown is None else f"{assigned[1]}{assigned[2]}={shown}")
            if shown == word:
                break
            word = shown
        return word


def secrets_of(environment: Mapping[str, str]) -> frozenset[str]:
    """The values of variables whose names say that they are secret, and the passwords of addresses in the others.

    Short values, plain words and paths are left out: hiding `postgres` or `/tmp` wherever it occurs would spoil much
    and protect nothing.

    Example:
        >>> sorted(secrets_of({"DB_PASSWORD": "tr0ub4dor&3", "URL": "http://me:hunter2hunter2@host", "AUTH": "basic"}))
        ['hunter2hunter2', 'tr0ub4dor&3']
    """
    found: set[str] = set()
    for name, value in environment.items():
        if "://" in value:
            found |= _passwords(value)
        said = naming(name)
        if said is Naming.HARMLESS or name in _FOLDERS:
            continue
        if hidden(value, said) == HIDDEN or (said is Naming.ADDRESS and "://" in value):
            found.add(value.strip())
    return frozenset(value for value in found if _is_telling(value))


def _passwords(value: str) -> set[str]:
    try:
        password = urlsplit(value).password
    except ValueError:  # no address after all
        return set()
    return {password, unquote(password)} if password else set()


def _is_telling(value: str) -> bool:
    if len(value) < _LEAST_CHARACTERS or _PATH.fullmatch(value):
        return False
    return len(value) >= _LEAST_LETTERS or not value.isalpha()


def _are_pairs(items: list[Json]) -> bool:
    return bool(items) and all(isinstance(item, list) and len(item) == 2 and isinstance(item[0], str) for item in items)
