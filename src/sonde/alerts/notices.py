"""What is told: a notice is decided by the policy, a bulletin is the notice of a run, ready to be put into words."""

from dataclasses import dataclass

from sonde.core.findings import Finding, Severity


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """What one message to one channel says.

    Args:
        alarms: Findings that are new or worse, the worst first.
        resolved: Findings that are over, and whose alarm the channel was told.
        more: How many further findings are told by this number only.
        more_resolved: The same of findings that are over.
        to_follow: How many critical ones had no room, and come with the next message.
    """

    alarms: tuple[Finding, ...] = ()
    resolved: tuple[Finding, ...] = ()
    more: int = 0
    more_resolved: int = 0
    to_follow: int = 0

    @property
    def severity(self) -> Severity:
        """Of the worst alarm; information where there is none."""
        return max((finding.severity for finding in self.alarms), default=Severity.INFO)


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """Numbers to draw beside a message, such as the last losses; NaN and infinities as measured."""

    title: str
    values: tuple[float, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Bulletin:
    """A notice, and where and when.

    Args:
        notice: What is told.
        id: The same at every attempt to send it: a receiver that gets it twice can tell.
        run: Name or path of the run.
        host: The machine.
        time_s: When it was decided, seconds since 1970.
        curve: Drawn where the channel shows pictures.
    """

    notice: Notice
    id: str
    run: str
    host: str
    time_s: float
    curve: Curve | None = None

    @property
    def step(self) -> int:
        """The last step that any of its findings speaks of."""
        return max((finding.last_step for finding in (*self.notice.alarms, *self.notice.resolved)), default=0)
