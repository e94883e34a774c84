"""A real pseudo-terminal with a program in it, and what a person would see there."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pyte = pytest.importorskip("pyte", reason="a terminal's behaviour is asked of pyte: pip install pyte")

_LONGEST_S = 60.0


@dataclass
class Terminal:
    """A terminal of some size.

    Args:
        rows: Its height.
        columns: Its width.
    """

    rows: int = 30
    columns: int = 80
    raw: bytes = b""
    """All that was written to it."""
    seen: list[list[str]] = field(default_factory=list)
    """What was on it each time that something had been written."""

    def __post_init__(self) -> None:
        self.screen: Any = pyte.HistoryScreen(self.columns, self.rows, history=10_000)
        self._stream: Any = pyte.ByteStream(self.screen)
        self._descriptors: tuple[int, ...] = pty.openpty()
        self._own, self._theirs = self._descriptors
        self._say_size()

    def _say_size(self) -> None:
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", self.rows, self.columns, 0, 0))

    def resize(self, rows: int, columns: int) -> None:
        """As if somebody dragged the window's corner."""
        self.rows, self.columns = rows, columns
        self.screen.resize(rows, columns)
        self._say_size()

    def run(
        self,
        code: str,
        *,
        cwd: Path,
        environ: Mapping[str, str] | None = None,
        stdout: int | None = None,
        on_output: Callable[["Terminal"], None] = lambda terminal: None,
    ) -> int:
        """Run Python code here, its stdout elsewhere if one is given; the exit status."""
        process = self.start(code, cwd=cwd, environ=environ, stdout=stdout)
        try:
            self.read(process, on_output)
        finally:
            process.kill()
        return process.wait()

    def start(
        self, code: str, *, cwd: Path, environ: Mapping[str, str] | None = None, stdout: int | None = None
    ) -> "subprocess.Popen[bytes]":
        """The same, and go on."""
        surroundings = {"TERM": "xterm-256color", "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
        surroundings["PYTHONUTF8"] = "1"  # as most terminals have it, wherever the tests run
        plain = {name: value for name, value in os.environ.items() if name not in ("CI", "NO_COLOR", "SONDE_CONSOLE")}
        return subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=cwd,
            env={**plain, **surroundings, **(environ or {})},
            stdin=self._theirs,
            stdout=self._theirs if stdout is None else stdout,
            stderr=self._theirs,
        )

    def read(
        self,
        process: "subprocess.Popen[bytes]",
        on_output: Callable[["Terminal"], None] = lambda terminal: None,
        until: Callable[[], bool] = lambda: False,
    ) -> None:
        """Take what is written, until the program ends or something else has come about."""
        deadline = time.monotonic() + _LONGEST_S
        while time.monotonic() < deadline:
            ended = process.poll() is not None  # asked before reading: what the last look misses, nobody wrote
            if select.select([self._own], [], [], 0.0 if ended else 0.05)[0]:
                some = os.read(self._own, 1 << 16)
                self.raw += some
                self._stream.feed(some)
                self.seen.append(self.lines)
                on_output(self)
            elif ended:
                return
            if until():
                return
        raise TimeoutError("\n".join(self.lines))

    @property
    def lines(self) -> list[str]:
        """What is on the screen."""
        return [line.rstrip() for line in self.screen.display]

    @property
    def scrolled(self) -> list[str]:
        """What has left the screen at the top, and what is on it."""
        width = self.columns
        above = ["".join(row[i].data for i in range(width)).rstrip() for row in self.screen.history.top]
        return above + self.lines

    def close(self) -> None:
        """Let go of it, as if its window had been closed; a second call does nothing."""
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = ()
