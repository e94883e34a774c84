"""The doctor beside a training: every row and event that is recorded is judged on its way."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sonde.core.findings import Finding
from sonde.core.frames import Frame
from sonde.core.records import Recorder
from sonde.diagnosis.doctor import Doctor


class Live:
    """A recorder that passes everything on, and writes down what the doctor finds.

    Rows come from one thread. Events may come from others; those of a step are judged with it.

    Args:
        recorder: Where rows, events and findings go.
        doctor: Who judges.
        on_finding: Called with each finding that is new or has got worse, on the thread that brings the rows.
        fail: Told what goes wrong in the judging; recording goes on.
    """

    def __init__(
        self,
        recorder: Recorder,
        doctor: Doctor,
        *,
        on_finding: Callable[[Finding], None] | None,
        fail: Callable[[Exception], None],
    ) -> None:
        self._recorder, self._doctor, self._on_finding, self._fail = recorder, doctor, on_finding, fail
        self._events: list[tuple[int, str, Mapping[str, Any]]] = []
        self._lock = threading.Lock()
        self._findings: tuple[Finding, ...] = ()
        self._broken = False

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All so far, the worst first."""
        with self._lock:
            return self._findings

    def append(self, frame: Frame) -> None:
        """Record a row, and judge the step before where this one begins another."""
        self._recorder.append(frame)
        if not self._broken and frame.columns.bins == 1:
            self._judge(lambda: self._take(frame))

    def event(self, kind: str, *, step: int | None = None, data: Mapping[str, Any] | None = None) -> None:
        """Record an event, and remember it for its step."""
        self._recorder.event(kind, step=step, data=data)
        with self._lock:
            self._events.append((step or 0, kind, dict(data or {})))

    def branch(self, step: int) -> None:
        """Go back. What was judged of the line that was left stays as it is."""
        self._recorder.branch(step)

    def flush(self) -> bool:
        """Wait until all that was taken can be read."""
        return self._recorder.flush()

    def close(self) -> None:
        """Judge the last step."""
        if not self._broken:
            self._judge(self._finish)

    def _take(self, frame: Frame) -> Sequence[Finding]:
        with self._lock:
            due = [event for event in self._events if event[0] < frame.step]
            self._events = [event for event in self._events if event[0] >= frame.step]
        for _, kind, data in due:
            self._doctor.event(kind, data)
        return self._doctor.frame(frame)

    def _finish(self) -> Sequence[Finding]:
        with self._lock:
            due, self._events = self._events, []
        for _, kind, data in due:
            self._doctor.event(kind, data)
        return self._doctor.settle()

    def _judge(self, work: Callable[[], Sequence[Finding]]) -> None:
        try:
            found = work()
            for finding in found:
                self._recorder.event("finding", step=finding.last_step, data=finding.to_json())
            if found:
                everything = self._doctor.findings()
                with self._lock:
                    self._findings = everything
            for finding in found:
                if self._on_finding is not None:
                    self._on_finding(finding)
        except Exception as error:  # a fault of ours, or of the user's function: said once, and judged no more
            self._broken = True
            self._fail(error)
