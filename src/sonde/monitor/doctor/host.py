"""The training's side of its doctor: every row and event that is recorded is judged on its way."""

import math
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sonde.core import strict_json
from sonde.core.findings import Finding
from sonde.core.frames import Columns, Detail, Frame, is_missing
from sonde.core.late_rows import as_known
from sonde.core.records import Recorder
from sonde.monitor.doctor import wire
from sonde.monitor.doctor.connections import BEHIND_BYTES, Connect
from sonde.monitor.doctor.wire import Answer
from sonde.store.environment import redactor
from sonde.streams.logs import logger

_log = logger("sonde.monitor")

Place = tuple[Path, tuple[str, int] | None]

_UNUSUAL = 4.0  # standard deviations of the loss, and times the last gradient norm
_BEHIND = "steps come faster than they can be judged: some were passed over (not by `sonde diagnose`)"


class Host:
    """A recorder that passes everything on to another, and to a doctor; findings are recorded as events.

    Rows and events come from one thread, in the order of their steps, as a replay of the run reads them: so both find
    the same. Only where steps come faster than they can be judged (a thousand in a second) is the doctor spared rows:
    those of steps, and of their layers, as long as loss and gradient norm are usual ones. It is said once.

    Args:
        recorder: Where rows, events and findings go.
        connect: Makes the connection to the doctor, given what to call with each of its answers.
        rules: Settings of rules by name, as `rules.configuring.configured` takes them.
        on_finding: Called with each finding that is new, has got worse or is over; not on the training's thread.
        say: Called with the lines that an epoch's end gives rise to, likewise.
        place: Gives the run's folder, and the terminal on which something of ours stands with the number of its rows:
            the doctor says there how the training ended, should that not say it itself.
        model: Gives the model table as `run.json` has it; another object where it has changed.
        together: Whether other ranks record in that folder as well.
    """

    def __init__(
        self,
        recorder: Recorder,
        connect: Connect,
        *,
        rules: Mapping[str, Any] | None = None,
        on_finding: Callable[[Finding], None] = lambda finding: None,
        say: Callable[[str], None] = lambda lines: None,
        place: Callable[[], Place] | None = None,
        model: Callable[[], Any] = lambda: None,
        together: bool = False,
    ) -> None:
        self._recorder, self._on_finding, self._say, self._find_place = recorder, on_finding, say, place
        self._columns: dict[tuple[str, ...], Columns] = {}
        self._all, self._read = "[]", ("[]", tuple[Finding, ...]())
        """All findings as text, and those that were last read from one."""
        self._told = 0
        self._state: tuple[Any, int] = (None, 0)
        """What the doctor remembered when it last answered, and the last step that it had been told then."""
        self._answered, self._is_asked = threading.Condition(), False
        self._was_behind = self._was_late = False
        """What is said once."""
        self._doctor = connect(self._take)
        if rules or together:
            self._doctor.send(wire.START, {"rules": dict(rules or {}), "together": together})
        self._place: Place | None = None
        self._find_model, self._model = model, None
        self._usual_norm = math.inf
        """The gradient norm of the last step that the doctor was told."""
        self._spared: int | None = None
        """The step whose rows the doctor is spared."""
        self._send_place()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All so far, the worst first."""
        text = self._all
        if text != self._read[0]:
            self._read = text, _findings(strict_json.loads(text))
        return self._read[1]

    @property
    def waiting_bytes(self) -> int:
        """How far the doctor is behind, in bytes of rows and events."""
        return self._doctor.waiting_bytes

    def append(self, frame: Frame) -> None:
        """Record a row, and have it judged."""
        self._recorder.append(frame)
        if frame.step != self._told:
            self._send_place()
        if frame.columns.bins > 1 or not frame.columns.width:
            return
        self._told = frame.step
        if frame.columns.table == "step":  # the first of its step's rows
            is_spared = self._doctor.waiting_bytes > BEHIND_BYTES and self._is_usual(frame)
            self._spared = frame.step if is_spared else None
        if self._spared != frame.step or not (frame.columns.table == "step" or _is_of_layers(frame)):
            self._doctor.send(wire.FRAME, as_known(frame))
        elif not self._was_behind:
            self._was_behind = True
            self._not_judged(frame.step, _BEHIND)

    def event(self, kind: str, *, step: int | None = None, data: Mapping[str, Any] | None = None) -> None:
        """Record an event, and have it considered."""
        shown = redactor().plain(dict(data or {}))  # as the store has it: a replay is told the same
        self._recorder.event(kind, step=step, data=shown)
        if step is not None:
            self._doctor.send(wire.EVENT, {"kind": kind, "data": shown})

    def branch(self, step: int) -> None:
        """Go back; `restore` tells the doctor."""
        self._recorder.branch(step)

    def flush(self) -> bool:
        """Wait until all that was taken can be read."""
        return self._recorder.flush()

    def state(self, timeout_s: float) -> tuple[Any, int]:
        """What the doctor remembers, in plain JSON, and of which step.

        Where it does not answer in time, that is what it last answered; None where it never did.
        """
        with self._answered:
            if not self._is_asked and self._doctor.is_open:
                self._is_asked = True
                self._doctor.send(wire.SAVE, self._told)
            self._answered.wait_for(lambda: not (self._is_asked and self._doctor.is_open), timeout_s)
            state, step = self._state
            if self._is_asked and self._doctor.is_open and not self._was_late:  # a dead one was said before
                self._was_late = True
                has = "nothing of what it knows" if state is None else f"what it knew at step {step}"
                _log.warning("the doctor's process did not answer within %g s: the checkpoint has %s", timeout_s, has)
            return state, step

    def restore(self, state: Any, step: int, *, known: int | None = None) -> None:
        """Go on from what `state` gave, after this step.

        Args:
            state: None to begin anew.
            step: The last that was made.
            known: The last that the doctor had been told, where it is another.
        """
        self._all = "[]"
        self._doctor.send(wire.RESTORE, {"state": state, "step": step})
        if known is not None and known < step:
            knew = f"what it knew at step {known}" if state is not None else "nothing"
            self._not_judged(step, f"the doctor did not answer when the checkpoint was made: it goes on with {knew}")

    def close(self, timeout_s: float = 10.0) -> None:
        """Judge the last step; what is not judged by then is left to `sonde diagnose`."""
        if problem := self._doctor.close(timeout_s):
            self._take({"problem": problem})

    def forget(self) -> None:
        """After a fork: the doctor is the parent's."""
        self._doctor.forget()

    def _send_place(self) -> None:
        place = None if self._find_place is None else self._find_place()
        if place is not None and place != self._place:
            self._place = place
            self._doctor.send(wire.PLACE, {"run": str(place[0]), "terminal": place[1]})
        model = self._find_model()
        if model is not self._model:
            self._model = model
            self._doctor.send(wire.MODEL, model)

    def _is_usual(self, frame: Frame) -> bool:
        """Whether a step's row has a loss and a gradient norm as usual."""
        row: dict[str, float] = dict(zip(frame.columns.tags, frame.values.tolist(), strict=True))
        norm = row.get("grad/norm", 0.0)
        if not norm <= _UNUSUAL * self._usual_norm:
            return False
        self._usual_norm = norm or self._usual_norm
        if "loss/ema" not in row:  # it can be switched off
            return abs(row.get("loss/score", math.nan)) <= _UNUSUAL
        loss, smooth, variance = (row.get(tag, math.nan) for tag in ("loss", "loss/ema", "loss/variance"))
        return abs(loss - smooth) <= _UNUSUAL * math.sqrt(max(variance, 0.0))

    def _not_judged(self, step: int, reason: str) -> None:
        self._recorder.event("not-measured", step=step, data={"tag": "monitor/judged", "reason": reason})

    def _take(self, answer: Answer) -> None:
        for row in answer.get("rows", ()):
            self._recorder.append(self._frame(*row))
        self._all = answer.get("all", self._all)
        for finding in _findings(answer.get("findings", ())):
            over = {"code": finding.code, "first_step": finding.first_step}
            kind, data = ("finding", finding.to_json()) if finding.open else ("finding-closed", over)
            self._recorder.event(kind, step=finding.last_step, data=data)
            self._on_finding(finding)
        if told := redactor().plain(answer.get("plugin_rules", {})):
            for problem in told["problems"]:
                _log.warning("%s", problem)
            self._recorder.event("plugin-rules", data=told)
        for rule, reason in redactor().plain(answer.get("failed", {})).items():
            _log.warning("rule %s judges no more: it %s", rule, reason)
            self._recorder.event("not-measured", step=self._told, data={"tag": rule, "reason": reason})
        if answer.get("begins_anew"):
            _log.warning("the checkpoint's findings are of another version of Sonde: rules begin anew at this step")
        if "problem" in answer:
            problem = redactor().text(str(answer["problem"]))
            _log.warning("findings have a problem and come no more: %s; `sonde diagnose` may know more", problem)
            self._recorder.event("monitor-problem", data={"reason": problem})
        if answer.get("epoch"):  # it may point to what was found just now
            self._say("\n".join(answer["epoch"]))
        with self._answered:
            if "state" in answer:
                self._state, self._is_asked = answer["state"] or self._state, False
            self._answered.notify_all()

    def _frame(self, table: str, step: int, values: Mapping[str, Any]) -> Frame:
        names = (table, *values)
        columns = self._columns.get(names)
        if columns is None:
            columns = self._columns[names] = Columns(table, tuple(values))
        numbers = np.array([strict_json.to_number(value) for value in values.values()], np.float32)
        return Frame(columns, step, time.time(), numbers)


def _is_of_layers(frame: Frame) -> bool:
    """Whether a row is about layers, and nothing in it is NaN or infinite."""
    is_known = np.isfinite(frame.values) | is_missing(frame.values)
    return frame.columns.detail is Detail.LAYER and bool(is_known.all())


def _findings(plain: Any) -> tuple[Finding, ...]:
    """Findings without secrets: a rule of somebody else's may say anything."""
    return tuple(Finding.from_json(one) for one in redactor().plain(plain))
