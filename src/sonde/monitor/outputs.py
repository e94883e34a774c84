"""Where a training's rows and findings go: sinks, the console, the doctor, and those whom alerts go to."""

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sonde.alerts.config import AlertsConfig
from sonde.console import terminals
from sonde.console.announcements import Announcements
from sonde.console.board import Board
from sonde.console.display import Display
from sonde.console.layer_tables import LayerTables
from sonde.console.tap import Tap
from sonde.core.findings import Finding
from sonde.monitor import ranks
from sonde.monitor.alerting import Alarms
from sonde.monitor.doctor.connections import CONNECT, Where
from sonde.monitor.doctor.host import Host, Place
from sonde.sinks.relay import Relay
from sonde.sinks.sink import Sink
from sonde.store.environment import redactor, told
from sonde.store.writer import Writer
from sonde.streams.logs import logger

_log = logger("sonde.monitor")


class Outputs:
    """Starts all of them; rows and events come in by `entrance`, on the background thread.

    On ranks but the first there is no doctor, no alert and nothing on the console. Where several processes train
    together, the doctor also compares what all of them record in the run's folder.

    Args:
        writer: Of the run.
        config: What the user says about the run.
        sinks: Loggers that are sent the run as well.
        alerts: Whom findings are told to.
        console: What is shown, on stderr, as far as it fits where we are.
        console_s: Seconds between two of its lines.
        length: Steps and epochs to come, as far as they are known.
        doctor: Where rows are judged.
        rules: Settings of rules by name.
        on_finding: Called with each finding that is new or worse, on the doctor's thread.
        on_alarm: Called before, where the finding is an alarm.
        problem: Told about a sink or a channel that does not work, on its own thread.

    Attributes:
        entrance: Takes rows and events.
        relay: The same behind the doctor and the console: the run and its sinks alone.
        doctor: None where nothing is judged.
    """

    def __init__(
        self,
        writer: Writer,
        *,
        config: Mapping[str, Any] | None,
        sinks: Sequence[Sink],
        alerts: AlertsConfig,
        console: terminals.Wanted,
        console_s: float,
        length: Mapping[str, int | None],
        doctor: Where,
        rules: Mapping[str, Any],
        on_finding: Callable[[Finding], None] | None,
        on_alarm: Callable[[], None],
        problem: Callable[[str], None],
    ) -> None:
        self._writer, self._on_finding, self._on_alarm, self._problem = writer, on_finding, on_alarm, problem
        self._is_callback_said = False
        self._announcements = Announcements()
        rank, world_size = ranks.rank(), ranks.world_size()
        is_judged = doctor != "off" and not rank
        run = str(writer.path.absolute())
        self.relay = Relay(writer, sinks, run=run, config=config, redactor=redactor, on_problem=problem)
        for channel, secret in alerts.lacking.items() if is_judged else ():
            _log.warning("alerts: %s is not told anything: its secret, %s, is not set", channel, secret)
        self._alarms: Alarms | None = None
        if alerts.channels and is_judged:
            self._alarms = Alarms(alerts, writer.path, lambda: writer.location, self._alarm_problem)
        if any(length.values()):
            writer.event("length", data=length)
        mode = terminals.choose(console, stream=sys.stderr, environ=os.environ, rank=rank, world_size=world_size)
        board = Board(str(writer.path), began=time.time(), **length)
        findings = self.findings if is_judged else lambda: None
        self._display = None if mode == "quiet" else Display(board, findings, mode=mode, interval_s=console_s)
        self._tables = LayerTables(self._say) if mode == "verbose" else None
        self.doctor: Host | None = None
        if is_judged:
            self.doctor = Host(
                self.relay,
                CONNECT[doctor],
                rules=rules,
                on_finding=self._found,
                say=self._say,
                place=self._place,
                model=lambda: writer.model,
                together=world_size > 1,
            )
        self.entrance: Host | Relay | Tap = self.doctor or self.relay
        if self._display is not None:
            self.entrance = Tap(self.entrance, board.take, *([] if self._tables is None else [self._tables.take]))

    def findings(self) -> tuple[Finding, ...]:
        """All findings so far, alarms first."""
        return () if self.doctor is None else self.doctor.findings

    def close(self, *, doctor_s: float, services_s: float) -> None:
        """Let them have the rest, the doctor first, whose findings the others are told; the console stays open.

        Args:
            doctor_s: How long the doctor may take.
            services_s: How long all that goes elsewhere may take, and a little.
        """
        if self.doctor is not None:
            self.doctor.close(doctor_s)
        self.relay.stop(services_s)
        if self._alarms is not None:
            self._alarms.close(services_s)
        self.relay.finish(services_s)

    def leave(self, words: str = "") -> None:
        """Close the console.

        Args:
            words: Its last line.
        """
        if self._tables is not None:
            self._tables.rest()
        if self._display is not None:
            self._display.close(words)

    def forget(self) -> None:
        """After a fork: this process is not the one that trains."""
        for output in (self.doctor, self._alarms, self.relay, self._display):
            if output is not None:
                output.forget()

    def _say(self, text: str) -> None:
        if self._display is not None:
            self._display.say(text)

    def _announce(self, alarm: Finding) -> None:
        said = self._announcements.of(alarm, self.findings())
        if said:
            self._say(f"\n{said}\n" if "\n" in said else f"Sonde: {said}")

    def _place(self) -> Place:
        return self._writer.location, None if self._display is None else self._display.place

    def _alarm_problem(self, reason: str) -> None:
        _log.warning("%s", reason)
        self._problem(reason)

    def _found(self, finding: Finding) -> None:
        """A finding is new, worse or over; on the doctor's thread."""
        if finding.open and finding.severity.is_alarm:
            self._on_alarm()
            self._announce(finding)
        if self._alarms is not None:
            self._alarms.put(finding)
        if not finding.open or self._on_finding is None:
            return
        try:
            self._on_finding(finding)
        # It is the user's, and may call `sys.exit`: the thread and the findings go on. Ctrl-C comes to the main
        # thread alone, which passes here where the training is closed.
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                raise
            if not self._is_callback_said:
                self._is_callback_said = True
                _log.warning("`on_finding` failed for %s; findings go on: %s", finding.code, told(error))
                self._problem(f"`on_finding` failed for {finding.code}: {error!r}")
