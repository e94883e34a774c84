"""A bulletin as Slack blocks.

Slack refuses a message of more than 50 blocks, a section of more than 3,000 characters, a header of more than 150, and
(msg_blocks_too_long, a limit that is not documented) blocks of about 13,000 characters together. `&`, `<` and `>` are
to be escaped; nothing else is.

References:
    Slack, Block Kit reference: blocks; Slack, Formatting text for app surfaces: escaping text.
"""

from sonde.alerts.messages import plain
from sonde.alerts.notices import Bulletin
from sonde.core import printable
from sonde.core.findings import Finding
from sonde.core.strict_json import Json

_MOST_IN_HEADER = 150
_MOST_IN_SECTION = 3_000
_MOST_IN_ALL = 11_000
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def payload(bulletin: Bulletin) -> Json:
    """What to post to the webhook; every listed finding is in it, shortened where they are many."""
    notice = bulletin.notice
    room = min(_MOST_IN_SECTION, _MOST_IN_ALL // (len(notice.alarms) + 2))
    blocks: list[Json] = [
        {
            "type": "header",
            "text": {"type": "plain_text", "text": printable.cut(plain.title(bulletin), _MOST_IN_HEADER)},
        },
        *(_section(_alarm(finding), room) for finding in notice.alarms),
    ]
    if notice.resolved:
        blocks.append(_section("\n".join(f"resolved: {plain.summary(finding)}" for finding in notice.resolved), room))
    footer = "\n".join([*plain.remainder(notice), plain.origin(bulletin)])
    blocks.append({"type": "context", "elements": [_text(footer, room)]})
    return {"text": escaped(plain.title(bulletin), _MOST_IN_SECTION), "blocks": blocks}


def escaped(text: str, room: int) -> str:
    """The text for Slack, cut to at most `room` characters, but never within an escape.

    Example:
        >>> escaped("loss < 3 & falling", 100), escaped("<<<<<", 13)
        ('loss &lt; 3 &amp; falling', '&lt;&lt;&lt;…')
    """
    letters = [_ESCAPES.get(letter, letter) for letter in text]
    if sum(map(len, letters)) <= room:
        return "".join(letters)
    length = 0
    for index, letter in enumerate(letters):
        length += len(letter)
        if length > room - 1:
            return "".join(letters[:index]) + "…"
    raise AssertionError("longer than the room, as was asked above")


def _alarm(finding: Finding) -> str:
    head, _, body = str(finding).partition("\n")
    return f"*{head}*\n" + "\n".join(line.removeprefix("  ") for line in body.splitlines())


def _section(text: str, room: int) -> Json:
    return {"type": "section", "text": _text(text, room)}


def _text(text: str, room: int) -> Json:
    # Verbatim: Slack makes no links of addresses and names that stand in a run.
    return {"type": "mrkdwn", "text": escaped(text, room), "verbatim": True}
