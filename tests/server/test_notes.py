"""What people say of a run is kept beside it, and counts."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.server.answers import Ask
from tests.server.conftest import record_good

from sonde.store import notes


@pytest.fixture
def own(serve: Callable[..., Ask], tmp_path: Path) -> Ask:
    """A server of a run that a test may change."""
    record_good(tmp_path / "good")
    return serve(tmp_path)


def test_a_mute_takes_the_finding_out_of_the_verdict_and_is_undone_as_easily(own: Ask) -> None:
    answer = own.note("good", {"kind": "mute", "code": "LOS002", "first_step": 700})
    assert answer.status_code == 200
    assert answer.json()["notes"]["mutes"] == [{"code": "LOS002", "first_step": 700}]
    told = own.run("good")
    assert (told["verdict"], told["alarms"]) == ("healthy", {"warning": 0, "critical": 0})
    assert [finding["muted"] for finding in told["findings"]] == [True]
    assert told["groups"] == []
    assert own.note("good", {"kind": "unmute", "code": "LOS002", "first_step": 700}).json()["notes"]["mutes"] == []
    assert own.run("good")["verdict"] == "warning"


def test_a_mute_of_a_rule_counts_for_all_its_findings_and_for_no_other(own: Ask) -> None:
    own.note("good", {"kind": "mute", "code": "LOS001"})
    own.note("good", {"kind": "mute", "code": "LOS002", "first_step": 701})
    assert own.run("good")["verdict"] == "warning"
    own.note("good", {"kind": "mute", "code": "LOS002"})
    assert own.run("good")["verdict"] == "healthy"


def test_tags_and_the_note_are_in_the_table(own: Ask, tmp_path: Path) -> None:
    for text in ("keep", "paper", "keep", "ü <b>"):
        own.note("good", {"kind": "tag", "text": text})
    own.note("good", {"kind": "untag", "text": "paper"})
    own.note("good", {"kind": "note", "text": "first line\r\nsecond"})
    (line,) = own.json("runs")["runs"]
    assert (line["tags"], line["note"]) == (["keep", "ü <b>"], "first line\nsecond")
    own.note("good", {"kind": "note", "text": ""})
    assert own.run("good")["notes"]["note"] == ""
    entries = [json.loads(text) for text in (tmp_path / "good" / "notes.jsonl").read_text().splitlines()]
    assert [entry["kind"] for entry in entries] == ["tag"] * 4 + ["untag", "note", "note"]


def test_secrets_do_not_enter_the_run(own: Ask, tmp_path: Path) -> None:
    own.note("good", {"kind": "note", "text": "logged in with --api-key sk-abcdefghijklmnopqrstuvwx1234"})
    assert "sk-abcdef" not in (tmp_path / "good" / "notes.jsonl").read_text()
    assert "•••" in own.run("good")["note"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"kind": "delete"},
        {"kind": "mute"},
        {"kind": "mute", "code": "los002"},
        {"kind": "mute", "code": "LOS002", "first_step": -1},
        {"kind": "mute", "code": "LOS002", "first_step": 1.5},
        {"kind": "tag"},
        {"kind": "tag", "text": "  "},
        {"kind": "tag", "text": "two\nlines"},
        {"kind": "tag", "text": "x" * 65},
        {"kind": "tag", "text": "\x1b[31m"},
        {"kind": "note", "text": "x" * 4001},
        {"kind": "note", "text": 5},
        [],
        "mute",
    ],
)
def test_an_entry_that_is_not_as_it_should_be_is_refused(own: Ask, tmp_path: Path, body: Any) -> None:
    answer = own.note("good", body)
    assert answer.status_code == 400
    assert answer.json()["error"]["what"]
    assert not (tmp_path / "good" / "notes.jsonl").exists()


def test_a_run_that_may_not_be_written_says_so(own: Ask, tmp_path: Path) -> None:
    (tmp_path / "good" / "notes.jsonl").mkdir()
    answer = own.note("good", {"kind": "tag", "text": "keep"})
    assert answer.status_code == 403
    assert "cannot be written" in answer.json()["error"]["what"]


def test_a_link_in_place_of_the_notes_is_not_written_through(own: Ask, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    (tmp_path / "good" / "notes.jsonl").symlink_to(victim)
    assert own.note("good", {"kind": "tag", "text": "keep"}).status_code == 403
    assert victim.read_text() == "untouched"


def test_notes_of_another_hand_that_are_damaged_are_left_out(own: Ask, tmp_path: Path) -> None:
    lines = ['{"kind": "tag", "time": 1, "text": "keep"}', "{", "[]", '{"kind": "tag", "time": 2}', '{"kind": "mute"}']
    (tmp_path / "good" / "notes.jsonl").write_text("\n".join(lines) + '\n{"kind": "tag", "ti')
    assert own.run("good")["tags"] == ["keep"]
    assert own.note("good", {"kind": "tag", "text": "more"}).json()["notes"]["tags"] == ["keep", "more"]


def test_a_file_that_is_full_takes_no_more(own: Ask, tmp_path: Path) -> None:
    (tmp_path / "good" / "notes.jsonl").write_bytes(b"\n" * notes.MOST_BYTES)
    assert own.note("good", {"kind": "tag", "text": "keep"}).status_code == 413
