import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.core.tags import parse_tag
from sonde.store import column_index
from sonde.store.column_index import TAGS_A_LINE, ColumnIndex, read_tags
from sonde.store.layout import COLUMNS

TRICKY = [
    *("first", "bins", "tags", "0", "a", "aa", "a@a", 'a@"a"', 'a@"', "a@\\", 'a@\\"a', "a@ä", "a@\\u00e4", "a@🙂"),
    *('a@", "b', 'a@["a"]', 'b@{"first": 7, "tags": ["a"]}'),
]


def new_folder(tmp_path: Path, kind: str = "tables") -> Path:
    folder = tmp_path / kind / "step"
    folder.mkdir(parents=True)
    return folder


def assert_finds(folder: Path, tags: list[str]) -> None:
    assert read_tags(folder) == tags
    assert ColumnIndex(folder).tags() == tags
    index = ColumnIndex(folder)
    assert [index.find(tag) for tag in tags] == list(range(len(tags)))


def test_tags_are_found_where_they_were_added(tmp_path: Path) -> None:
    folder = new_folder(tmp_path)
    column_index.append(folder, ("loss", "lr"), 0, 2, 1)
    column_index.append(folder, ("loss", "lr", "late"), 2, 3, 1)
    assert_finds(folder, ["loss", "lr", "late"])
    assert ColumnIndex(folder).find("los") is None
    assert ColumnIndex(folder).find("late@x") is None


def test_an_index_sees_tags_that_come_after_it_was_opened(tmp_path: Path) -> None:
    folder = new_folder(tmp_path)
    index = ColumnIndex(folder)
    assert (index.find("loss"), index.tags()) == (None, [])
    column_index.append(folder, ("loss",), 0, 1, 1)
    assert (index.find("loss"), index.tags()) == (0, ["loss"])
    assert index.find("late") is None
    column_index.append(folder, ("loss", "late"), 1, 2, 1)
    assert (index.find("late"), index.tags()) == (1, ["loss", "late"])


def test_tags_that_look_like_each_other_or_like_the_file_are_told_apart(tmp_path: Path) -> None:
    for tag in TRICKY:
        parse_tag(tag)  # they are all allowed
    folder = new_folder(tmp_path)
    for i in range(len(TRICKY)):
        column_index.append(folder, TRICKY, i, i + 1, 1)
    assert_finds(folder, TRICKY)
    for i, tag in enumerate(TRICKY):  # each alone is found by nothing but itself
        alone = new_folder(tmp_path / str(i))
        column_index.append(alone, [tag], 0, 1, 1)
        index = ColumnIndex(alone)
        assert [other for other in TRICKY if index.find(other) is not None] == [tag]


@settings(deadline=None, max_examples=60)
@given(
    tags=st.lists(st.text('ab@"\\[]{}:, ä0', min_size=1, max_size=6), min_size=1, max_size=12, unique=True),
    cuts=st.lists(st.integers(0, 12), max_size=3),
)
def test_any_text_is_found_where_it_stands(
    tmp_path_factory: pytest.TempPathFactory, tags: list[str], cuts: list[int]
) -> None:
    folder = new_folder(tmp_path_factory.mktemp("index"))
    edges = sorted({0, len(tags), *(cut for cut in cuts if cut < len(tags))})
    for first, last in pairwise(edges):
        column_index.append(folder, tags, first, last, 1)
    assert_finds(folder, tags)
    index = ColumnIndex(folder)
    for other in ("a", '"', "\\", "ab", "first"):
        assert index.find(other) == (tags.index(other) if other in tags else None)


def test_thousands_of_tags_take_a_line_a_thousand(tmp_path: Path) -> None:
    folder = new_folder(tmp_path)
    tags = [f"grad/norm@blocks.{i}.weight" for i in range(5000)]
    column_index.append(folder, tags, 0, 3, 1)
    column_index.append(folder, tags, 3, 5000, 1)
    lines = [json.loads(line) for line in (folder / COLUMNS).read_text().splitlines()]
    assert max(len(line["tags"]) for line in lines) == TAGS_A_LINE
    assert [line["first"] for line in lines] == [0, 3, 1003, 2003, 3003, 4003]
    assert_finds(folder, tags)


def test_a_file_torn_at_any_byte_knows_the_lines_before_it(tmp_path: Path) -> None:
    folder = new_folder(tmp_path)
    tags = ["loss", "lr", 'x@"q"', "x@ä", "last"]
    for i in range(5):
        column_index.append(folder, tags, i, i + 1, 1)
    whole = (folder / COLUMNS).read_bytes()
    for size in range(len(whole)):
        (folder / COLUMNS).write_bytes(whole[:size])
        index = ColumnIndex(folder)
        known = index.tags()
        assert known == tags[: len(known)]
        assert len(known) >= whole[:size].count(b"\n")
        assert [index.find(tag) for tag in tags] == [*range(len(known)), *[None] * (5 - len(known))]


def test_columns_that_a_full_disk_tore_are_added_again(tmp_path: Path) -> None:
    folder = new_folder(tmp_path)
    tags = [f"tag@{i}" for i in range(2500)]
    column_index.append(folder, tags, 0, 2500, 1)
    whole = (folder / COLUMNS).read_bytes()
    for size in (0, 1, 500, whole.index(b"\n"), whole.index(b"\n") + 1, len(whole) - 1, len(whole)):
        (folder / COLUMNS).write_bytes(whole[:size])
        column_index.append(folder, tags, 0, 2500, 1)
        column_index.append(folder, [*tags, "late"], 2500, 2501, 1)
        assert read_tags(folder) == [*tags, "late"]
        index = ColumnIndex(folder)
        assert [index.find(tag) for tag in ("tag@0", "tag@999", "tag@1000", "tag@2499", "late")] == [
            0,
            999,
            1000,
            2499,
            2500,
        ]


@pytest.mark.parametrize(("kind", "bins"), [("tables", 1), ("histograms", 64)])
def test_an_index_knows_how_many_numbers_a_tag_has(tmp_path: Path, kind: str, bins: int) -> None:
    folder = new_folder(tmp_path, kind)
    index = ColumnIndex(folder)
    assert index.bins == 1  # nothing was recorded yet
    column_index.append(folder, ["a"], 0, 1, bins)
    assert index.bins == bins


@pytest.mark.parametrize("content", [b"", b"\n\n", b"[]\n", b'{"first": 0}\n', b'{"first": 0, "tags": 3}\n', b"\xff\n"])
def test_a_damaged_file_has_no_tags(tmp_path: Path, content: bytes) -> None:
    folder = new_folder(tmp_path, "histograms")
    (folder / COLUMNS).write_bytes(content)
    index = ColumnIndex(folder)
    assert (index.tags(), index.find("loss"), index.find("first"), index.bins) == ([], None, None, 1)
