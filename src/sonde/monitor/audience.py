"""Who is shown and told what is recorded: sinks, the console, the doctor, and those whom alerts go to."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sonde.alerts.config import AlertsConfig
from sonde.console.terminals import Wanted as Console
from sonde.core.findings import Finding
from sonde.monitor import live, ranks
from sonde.monitor.alerting import Alarms
from sonde.monitor.live import Where
from sonde.monitor.showing import Showing
from sonde.sinks.relay import Relay
from sonde.sinks.sink import Sink
from sonde.store.environment import redactor, told
from sonde.store.writer import Writer
from sonde.streams.logs import logger

_log = logger("sonde.monitor")


class Audience:
    """Begins with all of them; rows and events come in by `entrance`, on the background thread.

    Args:
        writer: Of the run.
        config: What the user says about the run.
        sinks: Loggers that are sent the run as well.
        alerts: Whom findings are told to.
        console: What is shown.
        console_s: Seconds between two of its lines.
        length: Steps and epochs to come, as far as they are known.
        doctor: Where rows are judged.
        rules: Settings of rules by name.
        on_finding: Called with each finding, on the doctor's thread.
        on_alarm: Called before, where the finding is an alarm.
        problem: Told about a sink or a channel that does not work, on its own thread.
    """

    def __init__(
        self,
        writer: Writer,
        *,
        config: Mapping[str, Any] | None,
        sinks: Sequence[Sink],
        alerts: AlertsConfig,
        console: Console,
        console_s: float,
        length: Mapping[str, int | None],
        doctor: Where,
        rules: Mapping[str, Any],
        on_finding: Callable[[Finding], None] | None,
        on_alarm: Callable[[], None],
        problem: Callable[[str], None],
    ) -> None:
        self._on_finding, self._on_alarm, self._problem = on_finding, on_alarm, problem
        self._writer = writer
        self._is_callback_said = False
        self.relay = Relay(
            writer, sinks, run=str(writer.path.absolute()), config=config, redactor=redactor, on_problem=problem
        )
        may_tell = doctor != "off" and not ranks.rank()
        for channel, secret in alerts.lacking.items() if may_tell else ():
            _log.warning("alerts: %s is not told anything: its secret, %s, is not set", channel, secret)
        is_told = bool(alerts.channels) and may_tell
        self._alarms = (
            Alarms(alerts, writer.path, self._alarm_problem, location=lambda: writer.location) if is_told else None
        )
        if any(length.values()):
            writer.event("length", data=length)
        self._showing = Showing(
            console,
            writer.path,
            lambda: None if doctor == "off" else self.findings(),
            interval_s=console_s,
            total_steps=length["total_steps"],
            total_epochs=length["total_epochs"],
        )
        said = self._found, self._over, self._showing.say
        self.live = live.start(self.relay, doctor, rules, *said, self._place, lambda: writer.model)
        self.entrance = self._showing.before(self.relay if self.live is None else self.live)

    def _alarm_problem(self, reason: str) -> None:
        _log.warning("%s", reason)
        self._problem(reason)

    def findings(self) -> tuple[Finding, ...]:
        """All findings so far, alarms first."""
        return () if self.live is None else self.live.findings

    def _place(self) -> live.Place:
        return self._writer.location, self._showing.place

    def _found(self, finding: Finding) -> None:
        """On the doctor's thread."""
        if finding.severity.is_alarm:
            self._on_alarm()
            self._showing.say(f"\n{finding}\n")
        if self._alarms is not None:
            self._alarms.found(finding)
        if self._on_finding is not None:
            try:
                self._on_finding(finding)
            # It is the user's, and may call `sys.exit`: the thread and the findings go on. Ctrl-C comes to the main
            # thread alone, which passes here where the training is closed.
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                    raise
                self._callback_problem(finding, error)

    def _callback_problem(self, finding: Finding, error: BaseException) -> None:
        if not self._is_callback_said:
            self._is_callback_said = True
            _log.warning("`on_finding` failed for %s; findings go on: %s", finding.code, told(error))
            self._problem(f"`on_finding` failed for {finding.code}: {error!r}")

    def _over(self, finding: Finding) -> None:
        """On the doctor's thread."""
        if self._alarms is not None:
            self._alarms.closed(finding)

    def close(self, *, doctor_s: float, services_s: float) -> None:
        """Let them have the rest, the doctor first, whose findings the others are told; the console stays open.

        Args:
            doctor_s: How long the doctor may take.
            services_s: How long all that goes elsewhere may take, and a little.
        """
        if self.live is not None:
            self.live.close(doctor_s)
        self.relay.stop(services_s)
        if self._alarms is not None:
            self._alarms.close(services_s)
        self.relay.finish(services_s)

    def leave(self, words: str = "") -> None:
        """Close the console.

        Args:
            words: Its last line.
        """
        self._showing.close(words)

    def forget(self) -> None:
        """After a fork: this process is not the one that trains."""
        if self.live is not None:
            self.live.forget()
        if self._alarms is not None:
            self._alarms.forget()
        self.relay.forget()
        self._showing.forget()
