"""A bulletin as plain text: for log files, phones, and the mail programs that show nothing else."""

from sonde.alerts.notices import Bulletin, Notice
from sonde.core import printable
from sonde.core.findings import Finding
from sonde.core.quantities import count, moment

_MOST_CHARACTERS = 4_000  # of one finding: some messages hold a tensor


def title(bulletin: Bulletin) -> str:
    """One line for a subject or a heading; without line breaks, whatever the run is called.

    Example:
        >>> title(Bulletin(notice=Notice(more=3), id="1", run="runs/demo", host="node7", time_s=0.0))
        'Sonde: 3 findings in runs/demo'
    """
    notice = bulletin.notice
    run = printable.one_line(bulletin.run)
    if len(notice.alarms) == 1 and not notice.more and not notice.to_follow:
        (finding,) = notice.alarms
        return f"{finding.severity}: {finding.code} {finding.name} in {run}, step {finding.first_step}"
    if notice.alarms:
        number = len(notice.alarms) + notice.more + notice.to_follow
        return f"{notice.severity}: {count(number, 'finding')} in {run}, step {bulletin.step}"
    if len(notice.resolved) == 1 and not notice.more_resolved:
        (finding,) = notice.resolved
        return f"resolved: {finding.code} {finding.name} in {run}, step {finding.last_step}"
    if notice.resolved:
        return (
            f"resolved: {count(len(notice.resolved) + notice.more_resolved, 'finding')} in {run}, step {bulletin.step}"
        )
    return f"Sonde: {count(notice.more, 'finding')} in {run}"


def text(bulletin: Bulletin) -> str:
    """The whole bulletin, its title first."""
    notice = bulletin.notice
    parts = [title(bulletin), origin(bulletin), *map(shortened, notice.alarms)]
    if notice.resolved:
        parts.append("\n".join(f"resolved: {summary(finding)}" for finding in notice.resolved))
    parts.extend(remainder(notice))
    parts.append(see_all(bulletin))
    return "\n\n".join(parts) + "\n"


def log_lines(bulletin: Bulletin) -> list[str]:
    r"""A line a finding, each whole in itself, with when and where in front.

    Example:
        >>> log_lines(Bulletin(notice=Notice(more=3), id="1", run="a\nb", host="node7", time_s=0.0))
        ['1970-01-01 00:00:00 UTC  a\\nb on node7  and 3 more findings that are not listed']
    """
    notice = bulletin.notice
    told = [
        *(" | ".join(map(str.strip, shortened(finding).splitlines())) for finding in notice.alarms),
        *(f"resolved: {summary(finding)}" for finding in notice.resolved),
        *remainder(notice),
    ]
    head = f"{moment(bulletin.time_s)}  {bulletin.run} on {bulletin.host}"
    return [printable.escaped(f"{head}  {each}") for each in told]


def origin(bulletin: Bulletin) -> str:
    """Where and when."""
    return printable.one_line(f"{bulletin.run} on {bulletin.host}, {moment(bulletin.time_s)}")


def see_all(bulletin: Bulletin) -> str:
    """What to type."""
    return printable.one_line(f"see all: sonde diagnose {bulletin.run}")


def summary(finding: Finding) -> str:
    """A finding in one line.

    Example:
        >>> from sonde.core.findings import Severity
        >>> summary(Finding(code="LOS002", name="loss-spike", severity=Severity.WARNING, first_step=3, last_step=9,
        ...                 open=False, message="7 deviations"))
        'LOS002 loss-spike  warning  steps 3–9 (closed)'
    """
    return str(finding).partition("\n")[0]


def remainder(notice: Notice) -> list[str]:
    """What the notice says by numbers only, a sentence each.

    Example:
        >>> remainder(Notice(more=37, to_follow=1))
        ['and 37 more findings that are not listed', '1 critical finding follows in the next message']
    """
    sentences = []
    if notice.more:
        sentences.append(f"and {count(notice.more, 'more finding')} that {_are(notice.more)} not listed")
    if notice.more_resolved:
        sentences.append(f"and {notice.more_resolved:,} more that {_are(notice.more_resolved)} resolved")
    if notice.to_follow:
        verb = "follows" if notice.to_follow == 1 else "follow"
        sentences.append(f"{count(notice.to_follow, 'critical finding')} {verb} in the next message")
    return sentences


def shortened(finding: Finding) -> str:
    """A finding in full, cut where it is longer than anybody reads."""
    return printable.cut(str(finding), _MOST_CHARACTERS)


def _are(num: int) -> str:
    return "is" if num == 1 else "are"
