"""What changes, as events for the page: of single runs, or of the table of runs."""

import asyncio
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from sonde.core import strict_json
from sonde.core.errors import StoreError
from sonde.core.strict_json import Json
from sonde.server.details import finding_json
from sonde.server.folders import Folder
from sonde.server.lines import Line, Lines
from sonde.server.opened import OpenRuns
from sonde.server.recorded import finding_id, recorded
from sonde.server.refusals import Refusal

POLL_S = 0.5
_BREATH_S = 15.0
_WINK_S = 0.1
_PATIENCE_S = 0.5  # a look
MOST_STREAMS = 64
MOST_RUNS = 16

LAST = (
    "loss",
    "loss/ema",
    "val/loss",
    "lr",
    "grad/norm",
    "grad/norm_applied",
    "clip/factor",
    "update/ratio",
    "weight/norm",
    "time/step",
    "time/data",
    "throughput/samples_per_s",
    "throughput/tokens_per_s",
    "memory/allocated",
    "host/rss",
    "amp/scale",
    "epoch",
)
"""The series of which the newest value comes with a step."""

_PLACE = re.compile(r"(\d{1,12})\.(\d{1,18})")


@dataclass(slots=True)
class _Seen:
    """What a stream has told of a run."""

    num_events: int = -1
    step: int = -1
    state: tuple[Json, ...] = ()
    is_gone: bool = False


@final
class Live:
    """Makes streams; it looks at a run only while somebody listens.

    Args:
        folder: Of the runs.
        lines: The table of them.
        opened: Runs that are open.
        is_over: Whether the server ends.
    """

    def __init__(self, folder: Folder, lines: Lines, opened: OpenRuns, is_over: Callable[[], bool]) -> None:
        self._folder, self._lines, self._opened, self._is_over = folder, lines, opened, is_over
        self._num_streams = 0
        self._table: tuple[float, dict[str, Line]] = (-1.0, {})
        self._looking = threading.Lock()

    def stream(self, runs: Sequence[str], last_id: str) -> AsyncIterator[str]:
        """The events of some runs, or of the table where none is named.

        Args:
            runs: Their ids.
            last_id: The `id` of the last event that a client had before it lost us; "" where it had none.

        Raises:
            Refusal: there are too many streams, or runs in one.
        """
        if len(runs) > MOST_RUNS:
            raise Refusal(400, f"a stream of {len(runs)} runs", allowed=f"{MOST_RUNS} runs", do="open several streams.")
        if self._num_streams >= MOST_STREAMS:
            raise Refusal(
                429,
                f"{MOST_STREAMS} streams are open.",
                allowed=f"{MOST_STREAMS} streams at a time.",
                do="close some of the tabs that show this page.",
            )
        looks = self._runs(runs, last_id) if runs else self._tables(last_id)
        return self._polled(looks)

    async def _polled(self, looks: Iterator[list[str]]) -> AsyncIterator[str]:
        self._num_streams += 1
        try:
            yield ": sonde\nretry: 1000\n\n"
            quiet_since = time.monotonic()
            while not self._is_over():
                began = time.monotonic()
                said = await asyncio.to_thread(next, looks)
                for event in said:
                    yield event
                now = time.monotonic()
                if said:
                    quiet_since = now
                elif now - quiet_since > _BREATH_S:
                    quiet_since = now
                    yield ": still here\n\n"
                # A look at thousands of runs must not be all that we do.
                until = now + max(POLL_S, 4 * (now - began))
                while time.monotonic() < until and not self._is_over():
                    await asyncio.sleep(_WINK_S)
        finally:
            self._num_streams -= 1

    def _runs(self, runs: Sequence[str], last_id: str) -> Iterator[list[str]]:
        seen = {run: _Seen() for run in runs}
        places = _PLACE.findall(last_id)
        if len(places) == len(seen):
            for one, (num_events, step) in zip(seen.values(), places, strict=True):
                one.num_events, one.step = int(num_events), int(step)
        while True:
            said = []
            for run, one in seen.items():
                for kind, data in self._look(run, one):
                    place = ",".join(f"{max(0, s.num_events)}.{max(0, s.step)}" for s in seen.values())
                    said.append(_event(kind, data, place))
            yield said

    def _look(self, run: str, seen: _Seen) -> Iterator[tuple[str, Json]]:
        """What is new of a run."""
        try:
            path = self._folder.find(run)
        except Refusal:
            if not seen.is_gone:
                seen.is_gone, seen.num_events, seen.step, seen.state = True, -1, -1, ()
                yield "gone", {"run": run}
            return
        seen.is_gone = False
        line = self._lines.of(run, path)
        try:
            yield from self._findings(path, seen)
            if line.steps != seen.step and line.problem is None:
                seen.step = line.steps
                yield "step", self._step(run, path, line)
        except (StoreError, OSError):  # deleted under our eyes, or damaged: the next look says so
            pass
        state = (line.state, line.verdict, *line.alarms.values(), line.problem)
        if state != seen.state:
            seen.state = state
            yield "state", {"run": run, "state": line.state, "verdict": line.verdict, "alarms": line.alarms}

    def _findings(self, path: Path, seen: _Seen) -> Iterator[tuple[str, Json]]:
        """Those that are new, worse or over since the last look; at the first look none, for the page has them."""
        count = self._lines.recorded(path).num_events
        if seen.num_events < 0 or count < seen.num_events:
            seen.num_events = count
        if count == seen.num_events:
            return
        with self._opened.use(path) as opened:
            events = opened.run.events()
        news, seen.num_events = events[seen.num_events :], len(events)
        concerned = {
            f"{event.data.get('code')}@{event.data.get('first_step')}"
            for event in news
            if event.kind in ("finding", "finding-closed")
        }
        notes = self._lines.notes(path)
        for finding in recorded(events).findings if concerned else ():
            if finding_id(finding) in concerned:
                yield "finding", finding_json(finding, notes)

    def _step(self, run: str, path: Path, line: Line) -> Json:
        with self._opened.use(path) as opened:
            last = opened.run.latest(LAST)
        newest = max((point.time for point in last.values()), default=line.updated)
        values = {tag: point.value for tag, point in last.items()}
        return {"run": run, "step": line.steps, "time": newest, "last": values}

    def _tables(self, last_id: str) -> Iterator[list[str]]:
        # What is partial now is told once it was read: a page has just been given as much.
        before = self._lines.all(self._folder.runs(), until=0)
        # After a break: what was written since is told again, for nobody knows what was heard.
        since = float(last_id) if re.fullmatch(r"\d{1,12}(\.\d{1,6})?", last_id) else None
        missed = [] if since is None else [line for line in before.values() if line.updated >= since - 2 * POLL_S]
        yield [_event("runs", _change(missed, []), f"{time.time():.3f}")] if missed else []
        while True:
            now = self._lines_now()
            changed = [line for name, line in now.items() if line != before.get(name)]
            gone = [name for name in before if name not in now]
            yield [_event("runs", _change(changed, gone), f"{time.time():.3f}")] if changed or gone else []
            before = now

    def _lines_now(self) -> dict[str, Line]:
        """The table, looked at once for all streams."""
        with self._looking:
            at, found = self._table
            if time.monotonic() - at > POLL_S / 2:
                found = self._lines.all(self._folder.runs(), until=time.monotonic() + _PATIENCE_S)
                self._table = time.monotonic(), found
            return found


def _change(changed: Sequence[Line], gone: Sequence[str]) -> Mapping[str, Any]:
    return {"changed": [line.to_json() for line in changed], "gone": list(gone)}


def _event(kind: str, data: Json, place: str) -> str:
    """One event; JSON has no line breaks."""
    return f"id: {place}\nevent: {kind}\ndata: {strict_json.dumps(data)}\n\n"
