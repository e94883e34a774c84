"""Messages, as people get them: the files in golden/ are to be read.

To write them anew after a change that is meant: SONDE_GOLDEN=write pytest tests/alerts/test_messages.py
"""

import dataclasses
import email
import email.policy
import html
import json
import os
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.alerts.made_up import BULLETIN, EXPLOSION, SPIKE, finding

from sonde.alerts.messages import mail, payload, plain, png, slack
from sonde.alerts.notices import Bulletin, Notice
from sonde.core import strict_json
from sonde.core.findings import Finding, Severity
from sonde.core.printable import is_printable

GOLDEN = Path(__file__).parent / "golden"

FORMS = {
    "plain.txt": plain.text(BULLETIN),
    "mail.html": mail.html(BULLETIN),
    "slack.json": json.dumps(slack.payload(BULLETIN), indent=2, ensure_ascii=False) + "\n",
    "webhook.json": json.dumps(payload.payload(BULLETIN), indent=2, ensure_ascii=False) + "\n",
}


@pytest.mark.parametrize("name", FORMS)
def test_a_message_is_the_one_in_the_golden_file(name: str) -> None:
    if os.environ.get("SONDE_GOLDEN") == "write":
        (GOLDEN / name).write_text(FORMS[name], encoding="utf-8")
    assert FORMS[name] == (GOLDEN / name).read_text(encoding="utf-8")


def saying(notice: Notice, run: str = "runs/demo") -> Bulletin:
    return dataclasses.replace(BULLETIN, notice=notice, run=run)


@pytest.mark.parametrize(
    ("notice", "title"),
    [
        (Notice(alarms=(EXPLOSION,)), "critical: GRD001 exploding-gradients in runs/demo, step 1840"),
        (Notice(alarms=(EXPLOSION,), more=2), "critical: 3 findings in runs/demo, step 1852"),
        (Notice(resolved=(SPIKE,)), "resolved: LOS002 made-up in runs/demo, step 1260"),
        (Notice(resolved=(SPIKE, SPIKE), more_resolved=3), "resolved: 5 findings in runs/demo, step 1260"),
    ],
)
def test_the_title_says_what_it_is_about(notice: Notice, title: str) -> None:
    assert plain.title(saying(notice)) == title


def test_a_line_break_in_the_name_of_a_run_does_not_make_a_header_of_a_mail() -> None:
    forged = saying(Notice(alarms=(EXPLOSION,)), run="demo\r\nBcc: all@example.org")
    assert mail.message(forged, sender="a@b.c", to=["d@e.f"])["Bcc"] is None


def test_a_mail_has_plain_text_html_and_the_picture_that_the_html_shows() -> None:
    written = mail.message(BULLETIN, sender="sonde@example.org", to=["a@example.org", "b@example.org"])
    read = email.message_from_bytes(bytes(written), policy=email.policy.default)
    kinds = [part.get_content_type() for part in read.walk()]
    assert kinds == ["multipart/alternative", "text/plain", "multipart/related", "text/html", "image/png"]
    picture = list(read.walk())[-1]
    assert f'src="cid:{picture["Content-ID"].strip("<>")}"' in mail.html(BULLETIN)
    assert picture.get_content() == png.draw(BULLETIN.curve.values if BULLETIN.curve else ())
    assert "update ratio rose 3×" in read.get_body(("plain",)).get_content()  # type: ignore[union-attr]
    assert (read["Message-ID"], read["To"]) == ("<3f2a-1@sonde>", "a@example.org, b@example.org")


def test_a_mail_without_a_curve_has_no_picture() -> None:
    bare = dataclasses.replace(BULLETIN, curve=None)
    assert "img" not in mail.html(bare)
    assert not any(
        part.get_content_maintype() == "image" for part in mail.message(bare, sender="a@b.c", to=["d@e.f"]).walk()
    )


texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6000).filter(str.strip)


def long_finding(message: str) -> Finding:
    return dataclasses.replace(EXPLOSION, message=message)


@given(st.lists(texts, min_size=1, max_size=40), st.integers(0, 40), texts)
def test_slack_takes_every_message(messages: list[str], num_resolved: int, run: str) -> None:
    alarms = tuple(map(long_finding, messages))
    resolved = tuple(finding(f"LOS{number:03}", is_open=False) for number in range(num_resolved))
    said = slack.payload(saying(Notice(alarms=alarms, resolved=resolved, more=10**9, to_follow=10**9), run=run))
    blocks = said["blocks"]
    assert len(blocks) <= 50
    assert len(blocks[0]["text"]["text"]) <= 150
    written = [block.get("text", {}).get("text", "") or block["elements"][0]["text"] for block in blocks]
    assert all(1 <= len(text) <= 3000 for text in written)
    assert sum(map(len, written)) <= 13_000
    assert sum(text.startswith("*GRD001 exploding-gradients") for text in written) == len(alarms)
    for text in written[1:]:
        assert "<" not in text
        assert ">" not in text
        assert text.count("&") == text.count("&amp;") + text.count("&lt;") + text.count("&gt;")


@given(st.text(st.sampled_from("a&<>é")), st.integers(1, 30))
def test_a_text_for_slack_is_cut_to_its_room_between_letters(text: str, room: int) -> None:
    cut = slack.escaped(text, room)
    assert len(cut) <= room
    whole = html.unescape(cut)
    assert whole == text or (whole.endswith("…") and text.startswith(whole[:-1]))


def test_the_payload_holds_findings_that_can_be_read_back() -> None:
    read = strict_json.loads(strict_json.dumps(payload.payload(BULLETIN)))
    assert tuple(map(Finding.from_json, read["findings"])) == BULLETIN.notice.alarms
    assert tuple(map(Finding.from_json, read["resolved"])) == BULLETIN.notice.resolved


def pixels(data: bytes) -> list[bytes]:
    """The rows of a PNG, read by its specification: signature, chunks with their sums, filter 0."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        name, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert data[at + 8 + length : at + 12 + length] == struct.pack(">I", zlib.crc32(name + body))
        chunks[name], at = body, at + 12 + length
    assert list(chunks) == [b"IHDR", b"PLTE", b"IDAT", b"IEND"]
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    raw = zlib.decompress(chunks[b"IDAT"])
    assert len(raw) == height * (width + 1)
    lines = [raw[row * (width + 1) : (row + 1) * (width + 1)] for row in range(height)]
    assert {line[0] for line in lines} == {0}
    return [line[1:] for line in lines]


@given(st.lists(st.floats(), min_size=1, max_size=500))
def test_a_picture_shows_every_value_that_is_not_finite_and_a_line_elsewhere(values: list[float]) -> None:
    rows = pixels(png.draw(values, width=60, height=20))
    for column in range(60):
        colours = {row[column] for row in rows}
        first = column * len(values) // 60
        here = values[first : max(first + 1, (column + 1) * len(values) // 60)]
        finite = all(value - value == 0 for value in here)
        assert colours == ({0, 1} if finite else {2})


def test_a_falling_curve_falls() -> None:
    rows = png.raster([3.0, 2.0, 1.0], width=3, height=9)
    lowest = [max(y for y in range(9) if rows[y][column]) for column in range(3)]
    assert lowest == sorted(lowest)
    assert lowest[0] < lowest[2]


def test_the_severity_of_a_message_is_that_of_its_worst_alarm() -> None:
    assert BULLETIN.notice.severity is Severity.CRITICAL
    assert Notice(resolved=(SPIKE,)).severity is Severity.INFO


def test_texts_of_a_run_make_no_headers_links_or_mentions() -> None:
    run = "r\r\nBcc: you@example.org\n\x1b]0;t\x07\u202e<!channel> <https://e.vil|x> <img src=x>"
    hostile = dataclasses.replace(BULLETIN, run=run, host=run)
    sent = email.message_from_bytes(
        mail.message(hostile, sender="a@example.org", to=["b@example.org"]).as_bytes(), policy=email.policy.default
    )
    assert "Bcc" not in sent
    assert r"r Bcc: you@example.org \x1b]0;t\x07\u202e<!channel>" in sent["Subject"]
    told = slack.payload(hostile)
    texts = json.dumps(told, ensure_ascii=False)
    assert "<" not in "".join(block["elements"][0]["text"] for block in told["blocks"] if block["type"] == "context")
    assert all(block["text"]["verbatim"] for block in told["blocks"] if block["type"] == "section")
    for text in (plain.text(hostile), mail.html(hostile), texts):
        assert all(is_printable(line) for line in text.split("\n"))
    assert "<img src=x>" not in mail.html(hostile)
