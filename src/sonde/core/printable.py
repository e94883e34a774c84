r"""Texts of others on a screen or in a line of a log: nothing in them steers the terminal or feigns a line.

Shown as visible escapes (`\x1b`, `\u202e`) are the control characters of ASCII and Latin-1 (escape sequences begin with
one), the marks that turn the direction of writing, and halves of surrogate pairs, which no encoding takes.
"""

import re

_BREAKS = re.compile(r"[\t\n\v\f\r\x1c-\x1f\x85\u2028\u2029]+ *")
_TURNS = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_UNSAFE = re.compile(f"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff{_TURNS}]")
_UNSAFE_IN_LINES = re.compile(f"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff{_TURNS}]")


def is_printable(text: str) -> bool:
    r"""Whether the text holds nothing that a screen or a log would obey.

    Example:
        >>> is_printable("läuft 3×"), is_printable("two\nlines"), is_printable("\x1b[31m")
        (True, False, False)
    """
    return _UNSAFE.search(text) is None


def one_line(text: object) -> str:
    r"""The text in one line: breaks are blanks, all else that is not printable is a visible escape.

    Example:
        >>> one_line("two\n  lines \x1b[31m")
        'two lines \\x1b[31m'
    """
    return inline(text).strip()


def inline(text: object) -> str:
    r"""A piece of a line, as `one_line`, with the blanks at its ends.

    Example:
        >>> inline(" and\r\nso on, ")
        ' and so on, '
    """
    return escaped(_BREAKS.sub(" ", str(text)))


def escaped(text: object) -> str:
    r"""The text with an escape for all that is not printable, breaks included: nothing of it is lost.

    Example:
        >>> escaped("a\nb\x9b2J")
        'a\\nb\\x9b2J'
    """
    return _UNSAFE.sub(_escape, str(text))


def lines(text: object) -> str:
    r"""The text with its line breaks (`\n`) as they are, all else that is not printable escaped.

    Example:
        >>> lines("two\nlines\r\x1b]0;title\x07")
        'two\nlines\\r\\x1b]0;title\\x07'
    """
    return _UNSAFE_IN_LINES.sub(_escape, str(text))


def cut(text: str, most: int) -> str:
    """Text of at most so many letters, the end left out.

    Example:
        >>> cut("loss diverges", 6), cut("loss", 6)
        ('loss …', 'loss')
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _escape(found: re.Match[str]) -> str:
    return found.group().encode("unicode_escape", "backslashreplace").decode("ascii")
