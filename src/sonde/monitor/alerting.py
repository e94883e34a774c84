"""Alerts of a training: its findings on their way to people."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from sonde.alerts.config import AlertsConfig
from sonde.alerts.notices import Curve
from sonde.alerts.sender import Sender
from sonde.core.errors import TagNotFound
from sonde.core.findings import Finding
from sonde.store.reader import load

_POINTS = 320  # a mail's picture has as many columns


class Alarms:
    """Tells channels what is found, and what is over.

    What was found before the training was resumed was told then: that such a finding is over is not told.

    Args:
        config: What is told when, and to whom.
        run: The run's folder, as it is called.
        location: Gives where the folder is now.
        warn: Told, once each, that a channel is dead, and what was not told at the end; not on the training's thread.
    """

    def __init__(
        self, config: AlertsConfig, run: Path, location: Callable[[], Path], warn: Callable[[str], None]
    ) -> None:
        self._sender = Sender(
            config.policy, config.channels, run=str(run), curve=lambda: loss_curve(location()), warn=warn
        )
        self._found: set[tuple[str, int]] = set()

    def put(self, finding: Finding) -> None:
        """A finding is new, worse or over. Never waits."""
        which = finding.code, finding.first_step
        if finding.open:
            self._found.add(which)
        if which in self._found:
            self._sender.put(finding)

    def close(self, timeout_s: float) -> None:
        """Have what is left told, for at most this long."""
        self._sender.close(timeout_s)

    def forget(self) -> None:
        """After a fork: the threads are the parent's."""
        self._sender.forget()


def loss_curve(run: Path) -> Curve | None:
    """The loss so far, as the run on the disk has it; NaN where it was ever not finite. None where there is none."""
    try:
        window = load(run).window("loss", points=_POINTS)
    except TagNotFound:
        return None
    values = np.where(window.nonfinite > 0, np.nan, window.mean)
    return Curve(title=f"loss from step {window.step[0]} on", values=tuple(values.tolist())) if len(values) else None
