"""Which findings a channel is told."""

from dataclasses import dataclass
from fnmatch import fnmatchcase

from sonde.core.findings import Finding, Severity

_ALL = ("*",)


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """By severity, and by code or name.

    Args:
        severity: The least that is told.
        codes: Codes or names that are told; `*` stands for anything (`GRD*`, `exploding-*`).
        except_codes: Those that are not, whatever `codes` says.

    Example:
        >>> finding = Finding(code="GRD001", name="exploding-gradients", severity=Severity.WARNING, first_step=1,
        ...                   last_step=1, open=True, message="norm 417")
        >>> choices = Choice(), Choice(severity=Severity.CRITICAL), Choice(codes=("LOS*",))
        >>> [choice.takes(finding) for choice in choices]
        [True, False, False]
    """

    severity: Severity = Severity.WARNING
    codes: tuple[str, ...] = _ALL
    except_codes: tuple[str, ...] = ()

    def takes(self, finding: Finding) -> bool:
        """Whether it is told."""
        # Asked for each finding of a storm, by each channel.
        if finding.severity is not self.severity and finding.severity < self.severity:
            return False
        if self.codes != _ALL and not _among(finding, self.codes):
            return False
        return not (self.except_codes and _among(finding, self.except_codes))


def _among(finding: Finding, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(finding.code, pattern) or fnmatchcase(finding.name, pattern) for pattern in patterns)
