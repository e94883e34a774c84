"""Notes hold what was said last."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sonde
from sonde.store import notes
from sonde.store.notes import Mute

ENTRIES = st.one_of(
    st.tuples(st.sampled_from(["tag", "untag", "note"]), st.sampled_from(["a", "b", "ü\n\u2028"])),
    st.tuples(
        st.sampled_from(["mute", "unmute"]), st.tuples(st.sampled_from(["LOS001", "LOS002"]), st.none() | st.just(7))
    ),
)


@given(entries=st.lists(ENTRIES, max_size=30))
def test_what_holds_is_what_was_said_last(
    tmp_path_factory: pytest.TempPathFactory, entries: list[tuple[str, object]]
) -> None:
    run = tmp_path_factory.mktemp("run")
    tags: list[str] = []
    mutes: list[Mute] = []
    note = ""
    for kind, said in entries:
        if isinstance(said, tuple):
            mute = Mute(*said)
            notes.append(run, kind, code=mute.code, first_step=mute.first_step)
            mutes = [
                *(one for one in mutes if one != mute or kind == "mute"),
                *([mute] if kind == "mute" and mute not in mutes else []),
            ]
        else:
            text = str(said)
            notes.append(run, kind, text=text)
            if kind == "note":
                note = text
            else:
                tags = [
                    *(one for one in tags if one != text or kind == "tag"),
                    *([text] if kind == "tag" and text not in tags else []),
                ]
    held = notes.read(run)
    assert (held.note, list(held.tags), list(held.mutes)) == (note, tags, mutes)
    assert held.is_muted("LOS001", 7) == bool({Mute("LOS001"), Mute("LOS001", 7)} & set(mutes))


def test_a_run_without_notes_has_none(tmp_path: Path) -> None:
    assert notes.read(tmp_path / "none") == notes.Notes()


def test_the_recorder_leaves_notes_alone(tmp_path: Path) -> None:
    with sonde.record(tmp_path / "run") as writer:
        writer.log({"loss": 1.0}, step=1)
        notes.append(tmp_path / "run", "tag", text="while it runs")
    with sonde.record(tmp_path / "run") as writer:
        writer.log({"loss": 1.0}, step=2)
    assert notes.read(tmp_path / "run").tags == ("while it runs",)
    assert sonde.load(tmp_path / "run").problems == []
