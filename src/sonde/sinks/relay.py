"""A recorder with sinks behind it."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sonde.core.frames import Frame
from sonde.core.records import Event, Recorder
from sonde.core.redaction import Redactor
from sonde.sinks.feed import Feed
from sonde.sinks.sink import BRANCHED, STARTED, Sink


class Relay:
    """Passes everything on to a recorder and then, in the background, to sinks; itself a `Recorder`.

    Put it in front of the store, behind the doctor, so that findings pass through it as well. What a sink did not get
    becomes an event `sink-dropped` of the run.

    Args:
        recorder: Where everything goes first.
        sinks: Where it goes besides.
        run: The run's folder.
        config: The run's configuration.
        redactor: Gives what hides secrets from sinks; asked for each event, since the environment may change.
        on_problem: Called with a sentence, once a sink, when it first fails; on the thread of its feed.
        feed: Makes the feed of a sink, given it and what to call with a reason.
    """

    def __init__(
        self,
        recorder: Recorder,
        sinks: Sequence[Sink],
        *,
        run: str,
        config: Mapping[str, Any] | None = None,
        redactor: Callable[[], Redactor] = Redactor,
        on_problem: Callable[[str], None] = lambda problem: None,
        feed: Callable[[Sink, Callable[[str], None]], Feed] = lambda sink, problem: Feed(sink, on_problem=problem),
    ) -> None:
        self._recorder, self._redactor, self._on_problem = recorder, redactor, on_problem
        self._feeds = [(sink.name, feed(sink, self._problem(sink.name))) for sink in sinks]
        shown = self._redactor().plain(dict(config or {}))
        self._tell(Event(STARTED, time.time(), None, {"run": run, "config": shown}))

    def append(self, frame: Frame) -> None:
        """Record a row, and pass it on."""
        self._recorder.append(frame)
        for _, feed in self._feeds:
            feed.append(frame)

    def event(self, kind: str, *, step: int | None = None, data: Mapping[str, Any] | None = None) -> None:
        """Record an event, and pass it on."""
        self._recorder.event(kind, step=step, data=data)
        if self._feeds and not kind.startswith("@"):
            self._tell(Event(kind, time.time(), step, self._redactor().plain(dict(data or {}))))

    def branch(self, step: int) -> None:
        """Go back; sinks that can, hide what came after."""
        self._recorder.branch(step)
        self._tell(Event(BRANCHED, time.time(), step))

    def flush(self) -> bool:
        """Wait until all that was taken can be read in the run; sinks follow in their own time."""
        return self._recorder.flush()

    def stop(self, timeout_s: float) -> None:
        """Take nothing more for the sinks, which have this time from now on; `finish` waits for them."""
        for _, feed in self._feeds:
            feed.stop(timeout_s)

    def finish(self, timeout_s: float) -> None:
        """Let go of the sinks, all within this time; the recorder stays open. A second call does nothing."""
        self.stop(timeout_s)
        for name, feed in self._feeds:
            feed.close(timeout_s)
            if feed.dropped:
                self._recorder.event("sink-dropped", data={"sink": name, "dropped": dict(feed.dropped)})
        self._feeds = []

    def close(self) -> None:
        """Let go of the sinks and the recorder."""
        self.finish(10.0)
        self._recorder.close()

    def forget(self) -> None:
        """After a fork: the sinks are the parent's."""
        for _, feed in self._feeds:
            feed.forget()

    def _tell(self, event: Event) -> None:
        for _, feed in self._feeds:
            feed.event(event)

    def _problem(self, name: str) -> Callable[[str], None]:
        return lambda reason: self._on_problem(f"{name} cannot be written: {reason}")
