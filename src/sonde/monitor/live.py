"""Findings while the training runs: every row and event that is recorded is judged on its way."""

import contextlib
import math
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from sonde.core import strict_json
from sonde.core.findings import Finding
from sonde.core.frames import Columns, Frame
from sonde.core.late_rows import as_known
from sonde.core.records import Recorder
from sonde.monitor import ranks, wire
from sonde.monitor.wire import Message, Packer
from sonde.store.environment import redactor
from sonde.streams.logs import logger

if TYPE_CHECKING:
    from sonde.monitor.consultation import Answer

_log = logger("sonde.monitor")

Where = Literal["process", "thread", "off"]
Place = tuple[Path, tuple[str, int] | None]

_GATHER_S = 0.02
_MOST_WAITING_BYTES = 16 << 20
_BEHIND_BYTES = 1 << 18  # some thousand rows, which take the doctor a second or two
_BEHIND_S = 3.0  # what the end of a training waits for a doctor that has so much left; `sonde diagnose` judges the rest
_LOOK_S = 0.2
_UNUSUAL = 4.0  # standard deviations of the loss
_MOST_AT_ONCE_BYTES = 1 << 20


def start(
    recorder: Recorder,
    where: Where,
    settings: Mapping[str, Any],
    on_finding: Callable[[Finding], None],
    on_closed: Callable[[Finding], None],
    say: Callable[[str], None],
    place: "Callable[[], Place]",
) -> "Live | None":
    """A doctor beside a training; None where there is to be none, as on all ranks but the first.

    Where several processes train together, it also compares what all of them record in the run's folder.
    """
    if where == "off" or ranks.rank():
        return None
    return Live(
        recorder,
        where=where,
        settings=settings,
        on_finding=on_finding,
        on_closed=on_closed,
        say=say,
        place=place,
        together=ranks.world_size() > 1,
    )


class Practice(Protocol):
    """Where the doctor works."""

    def frame(self, frame: Frame) -> None:
        """Tell a row."""

    def tell(self, kind: bytes, body: Any) -> None:
        """Tell anything else."""

    @property
    def waiting_bytes(self) -> int:
        """Of what was told and not taken yet."""

    @property
    def is_deaf(self) -> bool:
        """Whether nothing that is told will be answered any more."""

    def close(self, timeout_s: float) -> str:
        """Have everything answered, within this time; let go. What went wrong, if anything did."""

    def forget(self) -> None:
        """After a fork: it belongs to the parent."""


class Live:
    """A recorder that passes everything on to another, and to a doctor; findings are recorded as events.

    Rows and events come from one thread, in the order of their steps, as a replay of the run reads them: so both find
    the same. Only where steps come faster than they can be judged (a thousand in a second) is the doctor spared rows:
    those of steps that have little more than a loss, as long as that is a usual one. It is said once.

    Args:
        recorder: Where rows, events and findings go.
        where: `"process"` for a process of its own, `"thread"` for the thread that brings the rows.
        settings: Of rules, by name, as `rules.configuring.configured` takes them.
        on_finding: Called with each finding that is new or has got worse, not on the training's thread.
        on_closed: Called with each finding that is over, likewise.
        say: Called with the lines that an epoch's end gives rise to, likewise.
        place: Gives the run's folder, and the terminal on which something of ours stands with the number of its rows:
            the doctor says there how the training ended, should that not say it itself.
        together: Whether other ranks record in that folder as well.
    """

    def __init__(
        self,
        recorder: Recorder,
        *,
        where: Literal["process", "thread"],
        settings: Mapping[str, Any],
        on_finding: Callable[[Finding], None],
        say: Callable[[str], None],
        on_closed: Callable[[Finding], None] = lambda finding: None,
        place: "Callable[[], Place] | None" = None,
        together: bool = False,
    ) -> None:
        self._recorder, self._on_finding, self._on_closed, self._say = recorder, on_finding, on_closed, say
        self._columns: dict[tuple[str, tuple[str, ...]], Columns] = {}
        self._all: str | tuple[Finding, ...] = ()
        """The findings; as text while nobody has asked for them."""
        self._is_behind = False
        """Whether the doctor was ever spared anything."""
        self._judged = -1
        """The step of the checkpoint that this session goes on from."""
        self._answered = threading.Condition()
        self._state: tuple[Any, int] = (None, 0)
        """What the doctor remembered when it was last asked, and the last step that it had been told then."""
        self._asked: deque[int] = deque()
        """The steps at which it was asked and has not answered."""
        self._is_late = False
        self._told = 0
        self._practice: Practice = _in_process(self._take) if where == "process" else _Beside(self._take)
        if settings:
            self._practice.tell(wire.SETTINGS, dict(settings))
        self._find_place = place
        self._place: Place = Path(), None
        self._tell_place()
        if together:
            self._practice.tell(wire.RANKS, None)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All so far, the worst first."""
        known = self._all
        if isinstance(known, str):
            found = tuple(Finding.from_json(plain) for plain in redactor().plain(strict_json.loads(known)))
            if self._all is known:  # no newer ones came meanwhile
                self._all = found
            return found
        return known

    def append(self, frame: Frame) -> None:
        """Record a row, and have it judged."""
        self._recorder.append(frame)
        self._tell_place()
        if frame.columns.bins == 1 and frame.columns.width:
            self._told = frame.step
            if self._practice.waiting_bytes > _BEHIND_BYTES and _is_plain(frame):
                if not self._is_behind:
                    self._is_behind = True
                    reason = (
                        "steps come faster than they can be judged: some were passed over (not by `sonde diagnose`)"
                    )
                    data = {"tag": "monitor/judged", "reason": reason}
                    self._recorder.event("not-measured", step=frame.step, data=data)
                return
            self._practice.frame(as_known(frame))

    def _tell_place(self) -> None:
        place = self._place if self._find_place is None else self._find_place()
        if place != self._place:
            self._place = place
            run, terminal = place
            self._practice.tell(wire.PLACE, {"run": str(run), "terminal": terminal})

    def event(self, kind: str, *, step: int | None = None, data: Mapping[str, Any] | None = None) -> None:
        """Record an event, and have it considered."""
        shown = redactor().plain(dict(data or {}))  # as the store has it: a replay is told the same
        self._recorder.event(kind, step=step, data=shown)
        if step is not None:
            self._practice.tell(wire.EVENT, {"kind": kind, "data": shown})

    def branch(self, step: int) -> None:
        """Go back; `restore` tells the doctor."""
        self._recorder.branch(step)

    def flush(self) -> bool:
        """Wait until all that was taken can be read."""
        return self._recorder.flush()

    @property
    def waiting_bytes(self) -> int:
        """How far the doctor is behind, in bytes of rows and events."""
        return self._practice.waiting_bytes

    def state(self, timeout_s: float) -> tuple[Any, int]:
        """What the doctor remembers, in plain JSON, and of which step.

        Where it does not answer in time, that is what it last answered; None where it never did.
        """
        with self._answered:
            if not self._asked and not self._practice.is_deaf:
                self._asked.append(self._told)
                self._practice.tell(wire.SAVE, None)
            self._answered.wait_for(lambda: not self._asked or self._practice.is_deaf, timeout_s)
            state, step = self._state
            if self._asked and not self._practice.is_deaf and not self._is_late:  # a dead one was said before
                self._is_late = True
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
        self._all, self._judged = (), step
        self._practice.tell(wire.RESTORE, state)
        if known is not None and known < step:
            knew = f"what it knew at step {known}" if state is not None else "nothing"
            reason = f"the doctor did not answer when the checkpoint was made: it goes on with {knew}"
            self._recorder.event("not-measured", step=step, data={"tag": "monitor/judged", "reason": reason})

    def close(self, timeout_s: float = 10.0) -> None:
        """Judge the last step; what is not judged by then is left to `sonde diagnose`."""
        if problem := self._practice.close(timeout_s):
            self._take({"problem": problem})

    def forget(self) -> None:
        """After a fork: the doctor is the parent's."""
        self._practice.forget()

    def _take(self, answer: "Answer") -> None:
        rows = answer.get("rows", ())
        # The last step before a checkpoint is judged after it, by the session that went on and again by this one.
        fresh = [row for row in rows if row[1] > self._judged]
        for table, step, values in fresh:
            self._record(table, step, values)
        if answer.get("epoch") and (fresh or not rows):
            self._say("\n".join(answer["epoch"]))
        if "all" in answer:
            self._all = answer["all"]
        for plain in redactor().plain(answer.get("new", ())):  # a rule of somebody else's may say anything
            finding = Finding.from_json(plain)
            self._recorder.event("finding", step=finding.last_step, data=finding.to_json())
            self._on_finding(finding)
        for plain in redactor().plain(answer.get("closed", ())):
            finding = Finding.from_json(plain)
            over = {"code": finding.code, "first_step": finding.first_step}
            self._recorder.event("finding-closed", step=finding.last_step, data=over)
            self._on_closed(finding)
        if "problem" in answer:
            problem = redactor().text(str(answer["problem"]))
            _log.warning("findings have a problem and come no more: %s; `sonde diagnose` may know more", problem)
            self._recorder.event("monitor-problem", data={"reason": problem})
        if "state" in answer or "problem" in answer:
            with self._answered:
                step = self._asked.popleft() if "state" in answer and self._asked else 0
                if answer.get("state") is not None:
                    self._state = answer["state"], step
                self._answered.notify_all()

    def _record(self, table: str, step: int, values: Mapping[str, Any]) -> None:
        names = tuple(values)
        columns = self._columns.get((table, names))
        if columns is None:
            columns = self._columns[table, names] = Columns(table, names)
        numbers = np.array([strict_json.to_number(value) for value in values.values()], np.float32)
        self._recorder.append(Frame(columns, step, time.time(), numbers))


def _is_plain(frame: Frame) -> bool:
    """Whether a row is that of a step in which nothing was looked at, with a loss as usual."""
    columns = frame.columns
    if columns.table != "step" or any(tag.startswith("grad/") for tag in columns.tags):
        return False
    row: dict[str, float] = dict(zip(columns.tags, frame.values.tolist(), strict=True))
    if "loss/ema" not in row:  # it can be switched off
        return abs(row.get("loss/score", math.nan)) <= _UNUSUAL
    loss, smooth, variance = (row.get(tag, math.nan) for tag in ("loss", "loss/ema", "loss/variance"))
    return abs(loss - smooth) <= _UNUSUAL * math.sqrt(max(variance, 0.0))


class _Beside:
    """On the thread that brings the rows."""

    def __init__(self, answer: "Callable[[Answer], None]") -> None:
        from sonde.monitor.consultation import Consultation  # all rules: a process of its own loads them itself

        self._consultation = Consultation(lambda said: answer(strict_json.loads(strict_json.dumps(said))))
        self.waiting_bytes = 0
        self.is_deaf = False

    def frame(self, frame: Frame) -> None:
        self._consultation.take(Message(wire.FRAME, frame))

    def tell(self, kind: bytes, body: Any) -> None:
        # As a replay will read it.
        self._consultation.take(Message(kind, strict_json.loads(strict_json.dumps(body))))

    def close(self, timeout_s: float) -> str:
        self.tell(wire.END, None)
        return ""

    def forget(self) -> None:
        pass


class _Apart:
    """In a process of its own: rules take no time from the interpreter that the training needs.

    Two threads wait for the pipes to it, so that a slow doctor delays nobody; one that falls 16 MB behind is told no
    more.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", answer: "Callable[[Answer], None]") -> None:
        self._process, self._answer, self._packer = process, answer, Packer()
        self._waiting: deque[bytes] = deque()
        self._put_bytes = self._sent_bytes = 0
        """Two counts: one that two threads change would drift."""
        self._wake = threading.Event()
        self._done = threading.Event()
        self._ended = self._gave_up = False
        self._threads = [
            threading.Thread(target=work, name=f"sonde-doctor-{name}", daemon=True)
            for name, work in (("feed", self._feed), ("answers", self._listen))
        ]
        for thread in self._threads:
            thread.start()

    def frame(self, frame: Frame) -> None:
        self._put(self._packer.frame(frame))

    def tell(self, kind: bytes, body: Any) -> None:
        self._put(wire.pack(kind, body))

    @property
    def waiting_bytes(self) -> int:
        """Of messages that the doctor has not taken yet."""
        return self._put_bytes - self._sent_bytes

    def _put(self, message: bytes) -> None:
        if self._gave_up:
            return
        if self.waiting_bytes > _MOST_WAITING_BYTES:
            self._gave_up = True
            self._answer({"problem": "rows come faster than they can be judged"})
            return
        self._put_bytes += len(message)
        self._waiting.append(message)
        if not self._wake.is_set():
            self._wake.set()

    @property
    def is_deaf(self) -> bool:
        return self._gave_up

    def close(self, timeout_s: float) -> str:
        if self.waiting_bytes > _BEHIND_BYTES:
            timeout_s = min(timeout_s, _BEHIND_S)
        self._gave_up = False
        self._put(wire.pack(wire.END, None))
        self._ended = True
        self._wake.set()
        deadline, problem = time.monotonic() + timeout_s, ""
        while not (problem or self._done.wait(min(timeout_s, _LOOK_S))):
            if _is_stopped(self._process.pid):
                problem = "the doctor's process is stopped: the last steps were not judged"
            elif time.monotonic() >= deadline:
                problem = f"the last steps were not judged within {timeout_s:g} s"
        self._process.kill()  # it has said all, or has no time left
        with contextlib.suppress(subprocess.TimeoutExpired):  # the disk keeps it from ending
            self._process.wait(1.0)
        for thread in self._threads:
            thread.join(1.0)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(OSError):  # something was left in it
                stream.close()
        return problem

    def forget(self) -> None:
        self._gave_up = True
        self._process.returncode = 0  # not ours to wait for

    def _feed(self) -> None:
        assert self._process.stdin is not None
        pipe = self._process.stdin.fileno()
        while True:
            self._wake.wait()
            self._wake.clear()
            if not self._ended:
                time.sleep(_GATHER_S)  # rows come in batches: one writing for all of them
            while self._waiting:
                some = bytearray()
                while self._waiting and len(some) < _MOST_AT_ONCE_BYTES:
                    some += self._waiting.popleft()
                try:
                    view = memoryview(some)
                    while view:
                        view = view[os.write(pipe, view) :]
                except OSError:  # it is gone
                    return
                self._sent_bytes += len(some)
                del some, view  # nothing is held while we wait
            if self._ended and not self._waiting:
                return

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = strict_json.loads(line)
            self._answer(answer)
            if answer.get("done"):
                break
            del line, answer  # nothing is held while we wait
        if not self._ended:
            self._gave_up = True
            self._answer({"problem": "the doctor's process ended"})
        self._done.set()


def _is_stopped(process: int) -> bool:
    """Whether somebody has stopped it, as SIGSTOP does."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # gone, or not on Linux
        return False
    return stat.rpartition(")")[2].split()[0] in ("T", "t")


def _in_process(answer: "Callable[[Answer], None]") -> Practice:
    """A doctor in a process of its own; beside us where no process can be started."""
    package = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH", ""))))
    few = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "sonde.monitor.bedside", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **few, "PYTHONPATH": path},
        )
    except OSError as error:
        _log.warning("no process for the findings (%s): they are made beside the training", error)
        return _Beside(answer)
    return _Apart(process, answer)
