"""The door to files of strangers: what it opens, and what it refuses."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from sonde.core.errors import FormatError
from sonde.store import opening
from sonde.store.opening import Refused

SECRET = "somebody else's"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "file").write_text(SECRET)
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    (folder / "tables" / "step").mkdir(parents=True)
    return folder


def make_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the path of a socket may have some hundred bytes only
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


@pytest.mark.parametrize(
    ("what", "make"),
    [
        ("a link", lambda path: path.symlink_to(path.parents[3] / "outside" / "file")),
        ("a link", lambda path: path.symlink_to(path.name)),
        ("a link", lambda path: path.symlink_to("/dev/zero")),
        ("a link", lambda path: path.symlink_to("nowhere")),
        ("a FIFO", os.mkfifo),
        ("a socket", make_socket),
        ("a folder", Path.mkdir),
    ],
)
def test_only_regular_files_are_opened(run: Path, outside: Path, what: str, make: Callable[[Path], object]) -> None:
    path = run / "tables" / "step" / "columns.jsonl"
    make(path)
    with pytest.raises(Refused, match=f"it is {what}"):
        opening.descriptor(path, depth=3)
    with pytest.raises(Refused if what != "a folder" else OSError):
        opening.descriptor(path, os.O_RDWR | os.O_CREAT, depth=3)
    assert not opening.is_file(path, depth=3)
    assert (outside / "file").read_text() == SECRET


@pytest.mark.parametrize("folder", ["tables", "tables/step"])
def test_no_folder_on_the_way_is_a_link(run: Path, outside: Path, folder: str) -> None:
    (outside / "step").mkdir()
    for place in (outside, outside / "step"):
        (place / "columns.jsonl").write_text(SECRET)
    (run / "tables" / "step").rmdir()
    if folder == "tables":
        (run / "tables").rmdir()
    (run / folder).symlink_to(outside)
    with pytest.raises(Refused, match="it is a link"):
        opening.reading(run / "tables" / "step" / "columns.jsonl", depth=3)
    with pytest.raises(Refused, match="it is a link"):
        opening.names(run / folder, depth=len(Path(folder).parts))
    with pytest.raises(Refused, match="it is a link"):
        opening.make_folder(run / "tables" / "step" / "b0", depth=3)
    opening.remove(run / "tables" / "step" / "columns.jsonl", depth=3)
    assert {path.name for path in outside.rglob("*")} == {"file", "step", "columns.jsonl"}


def test_links_of_the_user_s_own_are_followed(run: Path, tmp_path: Path) -> None:
    (run / "tables" / "step" / "columns.jsonl").write_text("own")
    (tmp_path / "latest").symlink_to(run)
    path = tmp_path / "latest" / "tables" / "step" / "columns.jsonl"
    assert opening.read_bytes(path, depth=3, limit=10) == b"own"
    opening.make_folder(tmp_path / "latest" / "tables" / "layers", depth=2)
    assert (run / "tables" / "layers").is_dir()


def test_replacing_a_link_leaves_what_it_points_to(run: Path, outside: Path) -> None:
    state = run / "state.json"
    state.symlink_to(outside / "file")
    (run / f"state.json.{os.getpid()}.tmp").symlink_to(outside / "file")
    opening.replace(state, b"{}", depth=1)
    assert state.read_text() == "{}"
    assert not state.is_symlink()
    assert sorted(path.name for path in run.iterdir()) == ["state.json", "tables"]
    assert (outside / "file").read_text() == SECRET


def test_a_file_counts_as_long_as_what_is_stored_of_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.write(b"line\n" * 1000)
        file.truncate(1 << 40)
    with opening.reading(path, depth=1) as opened:
        assert 5000 <= opening.stored_bytes(opened.fileno()) <= 1 << 20
        assert opened.read(5) == b"line\n"
    with pytest.raises(FormatError, match="at most 100 are read"):
        opening.read_bytes(path, depth=1, limit=100)
    with pytest.raises(FormatError, match="only a part"):
        opening.read_bytes(path, depth=1, limit=1 << 41)
    with pytest.raises(FormatError, match="only a part"):
        opening.reading_below(tmp_path, path)
    lines = list(opening.lines(path, depth=1, longest=10, limit=1 << 20))
    assert lines[:1000] == [b"line\n"] * 1000
    assert lines[-1] is None


def test_a_line_that_is_too_long_does_not_hide_the_next(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"a\n" + b"x" * 50 + b"\n\n" + b"y" * 10 + b"\nb")
    assert list(opening.lines(path, depth=1, longest=10, limit=1000)) == [b"a\n", None, b"y" * 10 + b"\n", b"b"]
    assert list(opening.lines(path, depth=1, longest=10, limit=3)) == [b"a\n", b"x", None]


def test_files_below_a_folder_are_found_without_links(run: Path, outside: Path) -> None:
    (run / "tables" / "a.txt").write_text("")
    (run / "tables" / "b.txt").symlink_to(outside / "file")
    (run / "more").symlink_to(outside)
    os.mkfifo(run / "c.txt")
    assert opening.files(run, "*.txt") == [run / "tables" / "a.txt"]
    assert opening.files(run) == [run / "tables" / "a.txt"]
