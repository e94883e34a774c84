"""Diagnoses of runs that nobody judged while they were recorded: replayed in the background, one at a time."""

import contextlib
import os
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path
from typing import final

from sonde.core import strict_json
from sonde.core.errors import FormatError
from sonde.core.findings import Diagnosis
from sonde.server.remembered import Remembered
from sonde.server.stamps import RunStamp

_MOST_WAITING = 16
_MOST_KEPT = 64
_PATIENCE_S = 600.0
_MOST_BYTES = 16 << 20
_NICE = 15


@final
class Diagnoses:
    """Replays runs in a process of their own: it can be ended, and takes nothing of ours, however long the run is.

    A run is replayed when it is asked for and its files have changed since. The last that was asked for goes first; of
    many that wait the oldest are forgotten, until they are asked for again.
    """

    def __init__(self) -> None:
        self._done: Remembered[Diagnosis | str] = Remembered(_MOST_KEPT)
        self._waiting: deque[tuple[Path, RunStamp]] = deque(maxlen=_MOST_WAITING)
        self._at_work: tuple[Path, RunStamp] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def known(self, run: Path, stamp: RunStamp) -> Diagnosis | None:
        """The diagnosis, where it was made already."""
        found = self._done.peek(run, _of_rows(stamp))
        return found if isinstance(found, Diagnosis) else None

    def failure(self, run: Path, stamp: RunStamp) -> str | None:
        """Why there is none, where it was tried in vain."""
        found = self._done.peek(run, _of_rows(stamp))
        return found if isinstance(found, str) else None

    def ask(self, run: Path, stamp: RunStamp) -> None:
        """Have it made, unless it was, or is on its way."""
        with self._changed:
            job = run, _of_rows(stamp)
            if self._is_closed or job == self._at_work or self._done.peek(*job) is not None:
                return
            if job in self._waiting:
                self._waiting.remove(job)
            self._waiting.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="sonde-replay", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self) -> None:
        """End the replay that is under way, and begin no other."""
        with self._changed:
            self._is_closed = True
            self._waiting.clear()
            if self._process is not None:
                self._process.kill()
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._at_work = None
                self._changed.wait_for(lambda: self._waiting or self._is_closed)
                if self._is_closed:
                    return
                job = self._at_work = self._waiting.pop()
            self._done.put(*job, self._replay(job[0]))

    def _replay(self, run: Path) -> Diagnosis | str:
        # -P: modules that lie in the working directory are none of ours.
        command = [sys.executable, "-P", "-m", "sonde", "diagnose", "--json", "--", str(run)]
        with self._changed:
            if self._is_closed:
                return "the server ends"
            try:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
                )
            except OSError as error:
                return f"`sonde diagnose` does not start: {error}"
            process = self._process
        with contextlib.suppress(OSError):  # trainings of this machine go first, and answers to the page
            os.setpriority(os.PRIO_PROCESS, process.pid, _NICE)
        try:
            said, problem = process.communicate(timeout=_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return f"it took longer than {_PATIENCE_S:.0f} s; run: sonde diagnose {run.name}"
        finally:
            with self._changed:
                self._process = None
        try:
            if len(said) > _MOST_BYTES:
                raise FormatError(f"its answer has more than {_MOST_BYTES:,} bytes")
            return Diagnosis.from_json(strict_json.loads(said))
        except FormatError:
            last = problem.decode(errors="replace").strip().splitlines()[-1:]
            return last[0].removeprefix("sonde: ")[:500] if last else "`sonde diagnose` gave no answer"


def _of_rows(stamp: RunStamp) -> RunStamp:
    """Without the notes, which change nothing in a diagnosis."""
    return stamp._replace(notes=None)
