import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sonde.store.layout import read_lines
from sonde.store.lines import Appender


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Writes behind `size` fail half-way, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def append(path: Path, lines: bytes) -> None:
    file = Appender(path)
    file.queue(lines)
    file.drain()
    file.close()


def test_lines_are_appended_in_the_order_they_were_queued(tmp_path: Path) -> None:
    file = Appender(tmp_path / "lines")
    file.queue(b"1\n2\n")
    file.queue(b"3\n")
    file.drain()
    file.queue(b"4\n")
    file.drain()
    file.sync()
    file.close()
    assert (tmp_path / "lines").read_bytes() == b"1\n2\n3\n4\n"


def test_nothing_queued_makes_no_file(tmp_path: Path) -> None:
    file = Appender(tmp_path / "lines")
    file.drain()
    file.sync()
    file.close()
    assert not (tmp_path / "lines").exists()


def test_a_closed_appender_opens_the_file_again(tmp_path: Path) -> None:
    file = Appender(tmp_path / "lines")
    for line in (b"1\n", b"2\n"):
        file.queue(line)
        file.drain()
        file.close()
        file.close()
    assert (tmp_path / "lines").read_bytes() == b"1\n2\n"


@pytest.mark.parametrize("before", ["", '{"a": 1}\n', '{"a": 1}\n{"b', '{"a": 1}\n{"b": 2}', "\n", "{"])
def test_a_line_that_the_last_writer_tore_does_not_swallow_the_next(tmp_path: Path, before: str) -> None:
    path = tmp_path / "lines"
    path.write_text(before)
    known = read_lines(path)
    append(path, b'{"new": 1}\n')
    append(path, b'{"new": 2}\n')
    assert read_lines(path) == [*known, {"new": 1}, {"new": 2}]


def test_what_a_full_disk_refused_is_written_once_there_is_room(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    file = Appender(path)
    lines = [f'{{"number": {i}}}\n'.encode() for i in range(100)]
    with largest_file(500):
        for line in lines:
            file.queue(line)
            if len(b"".join(lines[: lines.index(line) + 1])) <= 500:
                file.drain()
            else:
                with pytest.raises(OSError, match="large"):
                    file.drain()
    assert path.stat().st_size == 500
    file.drain()
    file.close()
    assert path.read_bytes() == b"".join(lines)


def test_a_folder_that_is_not_there_keeps_the_lines_until_it_is(tmp_path: Path) -> None:
    file = Appender(tmp_path / "later" / "lines")
    file.queue(b"1\n")
    with pytest.raises(FileNotFoundError):
        file.drain()
    (tmp_path / "later").mkdir()
    file.drain()
    file.close()
    assert (tmp_path / "later" / "lines").read_bytes() == b"1\n"


def test_a_file_torn_at_any_byte_has_the_whole_lines_before_it(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    whole = '{"a": 1}\n{"text": "grün\\n"}\n[3]\n'.encode()
    path.write_bytes(whole)
    lines = read_lines(path)
    assert lines == [{"a": 1}, {"text": "grün\n"}, [3]]
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        got = read_lines(path)
        assert got == lines[: len(got)]
        assert len(got) >= whole[:size].count(b"\n")


def test_a_damaged_line_is_left_out_and_the_others_are_not(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b'{"a": 1}\n{"b": NaN}\n\xff\xfe\n\n{"c": 3}\n')
    assert read_lines(path) == [{"a": 1}, {"c": 3}]
