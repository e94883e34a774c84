"""What people say of a run, checked before it is kept."""

import re
from pathlib import Path

from sonde.core.errors import FormatError
from sonde.core.printable import is_printable
from sonde.server.refusals import Refusal
from sonde.store import notes

_MOST_NOTE, _MOST_TAG = 4_000, 64
_MOST_STEP = 1 << 62
_CODE = re.compile(r"[A-Z]{3}[0-9]{3}")


def add_note(run: Path, kind: str, *, text: str | None, code: str | None, first_step: int | None) -> None:
    """Keep an entry with the run.

    Raises:
        Refusal: it is not as it should be, or the run's folder takes none.
    """
    if kind in ("mute", "unmute"):
        if code is None or not _CODE.fullmatch(code):
            raise _wrong("code", "three capital letters and three digits, such as ABC001")
        if first_step is not None and not 0 <= first_step <= _MOST_STEP:
            raise _wrong("first_step", "a step, or none for all findings of the rule")
        text = None
    else:
        text, code, first_step = _text(kind, text), None, None
    try:
        notes.append(run, kind, text=text, code=code, first_step=first_step)
    except FormatError as error:
        raise Refusal(413, str(error), allowed=f"{notes.MOST_BYTES:,} bytes.", do="shorten the file.") from error
    except OSError as error:
        raise Refusal(
            403,
            f"{notes.NOTES} of this run cannot be written: {error.strerror or error}.",
            allowed="folders of runs that this server may write to.",
            do="start `sonde ui` as somebody who may, or copy the run.",
        ) from error


def _text(kind: str, text: str | None) -> str:
    text = (text or "").replace("\r\n", "\n").strip()
    most = _MOST_NOTE if kind == "note" else _MOST_TAG
    lines = text.split("\n") if kind == "note" else [text]
    if len(text) > most or not all(is_printable(line) for line in lines):
        raise _wrong("text", f"at most {most:,} printable characters")
    if not text and kind != "note":  # an empty note takes the note away
        raise _wrong("text", "a word or two")
    return text


def _wrong(what: str, allowed: str) -> Refusal:
    return Refusal(400, f"`{what}` is missing or wrong.", allowed=f"{allowed}.", do="change it.")
