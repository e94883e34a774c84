"""Ways to a doctor: in a process of its own, or on the thread that brings the rows."""

import contextlib
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from sonde.core import strict_json
from sonde.monitor.doctor import wire
from sonde.monitor.doctor.wire import Answer, Message, Packer
from sonde.streams.logs import logger

_log = logger("sonde.monitor")

Where = Literal["process", "thread", "off"]

BEHIND_BYTES = 1 << 17
"""Of messages that wait: a thousand rows or two, which take the doctor half a second."""

_GATHER_S = 0.02
_MOST_AT_ONCE = 1000
_MOST_WAITING_BYTES = 16 << 20
_BEHIND_S = 3.0  # what the end of a training waits for a doctor that has so much left; `sonde diagnose` judges the rest


class InThread:
    """A doctor on the thread that sends; every message is answered before `send` returns. Otherwise as `InProcess`."""

    waiting_bytes, is_open = 0, True

    def __init__(self, answer: Callable[[Answer], None]) -> None:
        from sonde.monitor.doctor.session import Session  # all rules: a process of its own loads them itself

        self._session = Session(lambda said: answer(_as_sent(said)))

    def send(self, kind: bytes, body: Any) -> None:
        self._session.take(Message(kind, body if kind == wire.FRAME else _as_sent(body)))

    def close(self, timeout_s: float) -> str:
        self.send(wire.END, None)
        return ""

    def forget(self) -> None:
        pass


def _as_sent(body: Any) -> Any:
    """As it would arrive at another process, and as a replay reads it."""
    return strict_json.loads(strict_json.dumps(body))


class InProcess:
    """A doctor in a process of its own: rules take no time from the interpreter that the training needs.

    Two threads wait for the pipes to it, so that a slow doctor delays nobody; one that falls 16 MB behind is sent
    nothing more.

    Args:
        process: The doctor's.
        answer: Called with each answer, on one of the two threads.

    Attributes:
        is_open: Whether messages are still answered.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", answer: Callable[[Answer], None]) -> None:
        self._process, self._answer, self._packer = process, answer, Packer()
        self._waiting: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._put_bytes = self._sent_bytes = 0
        """Two counts: one that two threads change would drift."""
        self._closing = threading.Event()
        self.is_open = True
        self._feeder = threading.Thread(target=self._feed, name="sonde-doctor-feed", daemon=True)
        self._listener = threading.Thread(target=self._listen, name="sonde-doctor-answers", daemon=True)
        self._feeder.start()
        self._listener.start()

    @property
    def waiting_bytes(self) -> int:
        """Of messages that the doctor has not taken yet."""
        return self._put_bytes - self._sent_bytes

    def send(self, kind: bytes, body: Any) -> None:
        """Send a message (see `wire`). Never waits."""
        if self.is_open and self.waiting_bytes > _MOST_WAITING_BYTES:
            self._give_up("rows come faster than they can be judged")
        if self.is_open:
            self._put(kind, body)

    def _put(self, kind: bytes, body: Any) -> None:
        message = self._packer.pack(Message(kind, body))
        self._put_bytes += len(message)
        self._waiting.put(message)

    def _give_up(self, problem: str) -> None:
        self.is_open = False
        self._answer({"problem": problem})

    def close(self, timeout_s: float) -> str:
        """Have everything answered within this time, and let go; what went wrong, if anything did."""
        if self.waiting_bytes > BEHIND_BYTES:
            timeout_s = min(timeout_s, _BEHIND_S)
        problem = ""
        self._put(wire.END, None)
        self._closing.set()
        self._waiting.put(b"")  # the feeder may already wait for what comes behind the end
        if _is_stopped(self._process.pid):
            problem = "the doctor's process is stopped: the last steps were not judged"
        else:
            self._listener.join(timeout_s)
            if self._listener.is_alive():
                problem = f"the last steps were not judged within {timeout_s:g} s"
        self._process.kill()  # it has said all, or has no time left
        with contextlib.suppress(subprocess.TimeoutExpired):  # the disk keeps it from ending
            self._process.wait(1.0)
        for thread in (self._feeder, self._listener):
            thread.join(1.0)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        return problem

    def forget(self) -> None:
        """After a fork: the doctor is the parent's."""
        self.is_open = False
        self._process.returncode = 0  # not ours to wait for

    def _feed(self) -> None:
        assert self._process.stdin is not None
        pipe = self._process.stdin.fileno()
        with contextlib.suppress(OSError):  # the doctor is gone
            while not (self._closing.is_set() and self._waiting.empty()):
                self._write(pipe, self._gathered())

    def _gathered(self) -> bytes:
        first = self._waiting.get()
        if self._waiting.empty():
            self._closing.wait(_GATHER_S)  # rows come in batches: one writing for all of them
        return first + b"".join(self._waiting.get() for _ in range(min(self._waiting.qsize(), _MOST_AT_ONCE)))

    def _write(self, pipe: int, messages: bytes) -> None:
        view = memoryview(messages)
        while view:
            view = view[os.write(pipe, view) :]
        self._sent_bytes += len(messages)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answer(strict_json.loads(line))
        if not self._closing.is_set():
            self._give_up("the doctor's process ended")


def _is_stopped(process: int) -> bool:
    """Whether somebody has stopped a child of ours, as SIGSTOP does."""
    with contextlib.suppress(ChildProcessError):  # it is gone
        return os.waitid(os.P_PID, process, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    return False


def in_process(answer: Callable[[Answer], None]) -> InThread | InProcess:
    """A doctor in a process of its own; on the thread that sends where no process can be started."""
    package = str(Path(__file__).resolve().parents[3])
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH", ""))))
    few = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "sonde.monitor.doctor.process", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **few, "PYTHONPATH": path},
        )
    except OSError as error:
        _log.warning("no process for the findings (%s): they are made beside the training", error)
        return InThread(answer)
    return InProcess(process, answer)


Connect = Callable[[Callable[[Answer], None]], InThread | InProcess]
"""Makes a connection, given what to call with each answer."""

CONNECT: dict[str, Connect] = {"process": in_process, "thread": InThread}
"""By the place where the doctor works."""
