"""Every store against the suite that ships with Sonde: the disk in each state that files can be in, and memory."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import sonde
from sonde.core.frames import Frame
from sonde.core.records import Recorder
from sonde.testing import MemoryRun, Store, StoreSuite


class Disk:
    """A run in a folder, as it is used: rows are read from logs while it is live."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open_recorder(self) -> Recorder:
        return sonde.record(self.path)

    def open_record(self) -> sonde.Run:
        return sonde.load(self.path)


class Restless:
    """Passes on to a recorder, and flushes after every few rows, so that logs are folded and merged all the time."""

    rows_a_flush = 20

    def __init__(self, path: Path) -> None:
        self.path = path
        self.inner = self.open()
        self.taken = 0
        self.highest = -1

    def open(self) -> sonde.Writer:
        return sonde.Writer(self.path, segment_rows=1)

    def append(self, frame: Frame) -> None:
        if self.taken >= self.rows_a_flush:
            self.pause(frame)
        self.inner.append(frame)
        self.taken += 1
        self.highest = max(self.highest, frame.step)

    def pause(self, frame: Frame) -> None:
        assert self.inner.flush()
        self.taken = 0

    def event(self, kind: str, *, step: int | None = None, data: Mapping[str, Any] | None = None) -> None:
        self.inner.event(kind, step=step, data=data)

    def branch(self, step: int) -> None:
        self.inner.branch(step)

    def flush(self) -> bool:
        return self.inner.flush()

    def close(self) -> None:
        self.inner.close()


class Reopened(Restless):
    """Closes the run and goes on with it in a new session, wherever that is not going back."""

    rows_a_flush = 40

    def pause(self, frame: Frame) -> None:
        if frame.step > self.highest:
            self.flush()
            self.taken = 0

    def flush(self) -> bool:
        self.inner.close()
        self.inner = self.open()
        return True


class FoldedDisk(Disk):
    """Rows are read from a few logs and many segments, some merged and some about to be."""

    def open_recorder(self) -> Recorder:
        return Restless(self.path)


class ReopenedDisk(Disk):
    """All that is read was folded when a session ended."""

    def open_recorder(self) -> Recorder:
        return Reopened(self.path)


class Memory:
    def __init__(self) -> None:
        self.run = MemoryRun()

    def open_recorder(self) -> Recorder:
        return self.run

    def open_record(self) -> MemoryRun:
        return self.run


@pytest.fixture(autouse=True)
def no_warning_in_the_background(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """What goes wrong there is said and tried again; in these tests nothing may."""
    yield
    said = [record.getMessage() for record in caplog.get_records("call") if record.name.startswith("sonde")]
    assert [message for message in said if "is closed" not in message] == []


class TestDisk(StoreSuite):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return Disk(tmp_path / "run")


class TestFoldedDisk(StoreSuite):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return FoldedDisk(tmp_path / "run")


class TestReopenedDisk(StoreSuite):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return ReopenedDisk(tmp_path / "run")


class TestMemory(StoreSuite):
    @pytest.fixture
    def store(self) -> Store:
        return Memory()
