"""The table of many runs comes at once, and its curves as they are read."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sonde.server.diagnoses import Diagnoses
from sonde.server.folders import Folder
from sonde.server.lines import Lines, flat
from sonde.server.live import Live
from sonde.server.opened import OpenRuns
from sonde.server.remembered import Remembered


@pytest.fixture
def lines() -> Iterator[Lines]:
    """The lines of a server that has just begun."""
    diagnoses = Diagnoses()
    yield Lines(diagnoses)
    diagnoses.close()


def test_without_time_lines_are_partial_and_later_whole(lines: Lines, runs: Path) -> None:
    folder = Folder(runs)
    quick = lines.all(folder.runs(), until=0)
    assert {name: line.partial for name, line in quick.items()} == {
        "good": True,
        "deep/er/plain": True,
        "damaged": False,
    }
    assert (quick["good"].spark, quick["good"].lr, quick["good"].verdict) == ((), None, "warning")
    whole = lines.all(folder.runs())
    assert not any(line.partial for line in whole.values())
    assert len(whole["good"].spark) > 10
    again = lines.all(folder.runs(), until=0)  # what was read once is at hand
    assert again == whole
    assert all(one is other for one, other in zip(again.values(), whole.values(), strict=True) if one.problem is None)


async def first(live: Live) -> str:
    async for event in live.stream([], ""):
        if "event: runs" in event:
            return event
    return ""


@pytest.mark.anyio
async def test_a_table_that_was_partial_is_told_again(lines: Lines, runs: Path) -> None:
    end = time.monotonic() + 60
    live = Live(Folder(runs), lines, OpenRuns(), lambda: time.monotonic() > end)
    event = await first(live)
    assert '"id": "good"' in event
    assert '"partial": false' in event


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def test_only_what_fits_into_columns_is_of_the_table() -> None:
    deep: dict[str, object] = {}
    for _ in range(100):
        deep = {"in": deep, "x": 1}
    assert list(flat(deep)) == ["in.in.in.in.in.x", "in.in.in.in.x", "in.in.in.x", "in.in.x", "in.x", "x"]
    assert len(flat({str(i): i for i in range(10_000)})) == 200
    assert flat({"text": "x" * 1000, "many": [1] * 9, "none": None, "": 3}) == {"text": "x" * 200, "none": None}
    assert flat([1, 2]) == flat("text") == flat(None) == {}


def test_what_is_remembered_is_bounded() -> None:
    kept: Remembered[int] = Remembered(3)
    for key in range(10):
        kept.get(key, "stamp", lambda key=key: key)  # type: ignore[misc]
        kept.get(0, "stamp", lambda: 0)  # asked for again and again, so it stays
    assert [kept.peek(key, "stamp") for key in range(10)] == [0, *[None] * 7, 8, 9]
    assert kept.peek(0, "another") is None
