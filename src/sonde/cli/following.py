"""A run that somebody else records, looked at again and again."""

import math
import time
from collections.abc import Iterator, Mapping
from typing import final

import numpy as np

from sonde.console.layers import STATISTICS, Roster
from sonde.console.paces import Pace
from sonde.console.reading import curve_tag, view_of
from sonde.console.view import View
from sonde.core.errors import FormatError
from sonde.core.findings import Finding
from sonde.core.frames import Columns, Frame
from sonde.core.quantities import age
from sonde.core.records import Ending, Point, State
from sonde.store.reader import Run

_SHARE = 0.1  # of one processor that looking may take, however large the model is
_PACE_STEPS = 200
_CURVE_COLUMNS = 128


@final
class Following:
    """Looks at a run again and again, at its last values only."""

    def __init__(self, run: Run) -> None:
        self._run, self._pace, self._roster = run, Pace(), Roster()
        self._state: State | None = None
        self._columns: Columns | None = None
        self._paced_step = 0

    def views(self, interval_s: float) -> Iterator[View]:
        """One view now, and another at each interval until the run has ended: that one is the last."""
        while True:
            began = time.monotonic()
            view = self.look()
            yield view
            if view.ending != "live":
                return
            time.sleep(max(interval_s, (time.monotonic() - began) / _SHARE))

    def look(self) -> View:
        """The run as it is now."""
        state = self._state = self._run.state  # asked before the values: what the last look misses, nobody wrote
        last = self._run.last()
        self._take_layers(last)
        self._take_pace(last, state.steps)
        newest = max((point.time for point in last.values()), default=state.updated)
        # The state of an imported run is the import's.
        ended = newest if self._run.events("imported") else state.updated
        until = time.time() if state.ending is Ending.LIVE else ended
        created = self._run.info.get("created")
        length = self._length()
        return view_of(
            last,
            run=str(self._run.path),
            ending=state.ending.value,
            step=state.steps,
            roster=self._roster,
            findings=self._findings(),
            total_steps=length[0],
            total_epochs=length[1],
            elapsed_s=until - created if isinstance(created, int | float) else 0.0,
            silent_s=until - newest,
            steps_per_s=self._pace.per_s,
            curve=self._curve(last),
        )

    def standing(self, now: float) -> str:
        """How the run stood at the last look, in a sentence."""
        state = self._state
        assert state is not None
        said = f"{state.ending} after {state.steps:,} steps"
        if state.ending == "died":
            why = "" if state.reason else ", and nobody said why"
            said += f", {age(now - state.updated)}: its process is gone{why}"
        return f"{said}: {state.reason}" if state.reason else said

    def _take_layers(self, last: Mapping[str, Point]) -> None:
        """Told to the roster as a row, as the training itself would."""
        optimizers = {tag.partition("@")[2] for tag in last if tag.startswith("lr@")}
        for path in STATISTICS:
            tags = [tag for tag in last if tag.startswith(f"{path}@") and tag[len(path) + 1 :] not in optimizers]
            if tags:
                if self._columns is None or list(self._columns.tags) != tags:
                    self._columns = Columns("gradients", tags)
                values = np.array([last[tag].value for tag in tags], np.float32)
                self._roster.take(Frame(self._columns, 0, 0.0, values))
                return

    def _take_pace(self, last: Mapping[str, Point], step: int) -> None:
        """From the times of the last steps that were not looked at yet."""
        followed = next((tag for tag in ("loss", "lr", *last) if tag in last and last[tag].step == step), None)
        if followed is None or step == self._paced_step:
            return
        recent = self._run.series(followed, start=max(self._paced_step + 1, step - _PACE_STEPS))
        for when, at in zip(recent.time.tolist(), recent.step.tolist(), strict=True):
            self._pace.put(when, at)
        self._paced_step = step

    def _curve(self, last: Mapping[str, Point]) -> tuple[float, ...]:
        tag = curve_tag(last)
        if tag is None:
            return ()
        window = self._run.window(tag, points=_CURVE_COLUMNS)
        columns = zip(window.mean.tolist(), window.nonfinite.tolist(), strict=True)
        return tuple(math.nan if nonfinite else mean for mean, nonfinite in columns)

    def _length(self) -> tuple[int | None, int | None]:
        said = [event.data for event in self._run.events("length")]
        steps, epochs = (said[-1].get(name) if said else None for name in ("total_steps", "total_epochs"))
        return steps if isinstance(steps, int) else None, epochs if isinstance(epochs, int) else None

    def _findings(self) -> tuple[Finding, ...]:
        """Those that were told and not closed, each as it was told last."""
        told: dict[str, Finding] = {}
        for event in self._run.events():
            if event.kind == "finding":
                try:
                    finding = Finding.from_json(dict(event.data))
                except FormatError:  # somebody else's event of that name
                    continue
                told[finding.code] = finding
            elif event.kind == "finding-closed":
                code = str(event.data.get("code"))
                if code in told and told[code].first_step == event.data.get("first_step"):  # not one opened anew
                    del told[code]
            elif event.kind == "resumed" and event.step is not None:
                told = {code: finding for code, finding in told.items() if finding.first_step <= event.step}
        return tuple(told.values())
