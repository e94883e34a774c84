"""Which findings speak for a cause: what came too late to have brought something about does not."""

import sys
from collections.abc import Iterable, Mapping, Sequence

from sonde.core.findings import Finding

SUDDEN = frozenset({"DAT002", "GRD002", "LOS002", "OPT002", "SCH001", "SYS001", "UPD004", "WGT002"})
"""Conditions that begin at a step of their own. Others are there long before they are measured or confirmed."""

BACKDATED = frozenset(
    {
        *("ACT006", "DAT006", "DAT007", "GEN001", "GEN002", "GEN003", "GEN006", "GEN007", "GRD003", "GRD008", "GRD012"),
        *("LOS004", "LOS005", "LOS007", "LOS008", "LOS009", "LOS011", "SCH003", "UPD002", "WGT004", "WGT006", "WGT007"),
        *("SCH008", "SCH009"),
    }
)
"""Conditions that are dated back to when they may have begun, often to the first step: they tell no onset."""

COLLAPSE = frozenset({"ACT004", "DAT001", "GRD005", "LOS001", "NUM002", "OPT003", "WGT001"})
"""What is still worth knowing of a training whose loss is no longer finite."""

PAIRS = (
    ("UPD001", "GRD001"),
    ("UPD001", "LOS003"),
    ("GRD001", "LOS003"),
    ("ACT001", "LOS003"),
    ("ACT001", "UPD001"),
    ("ATT001", "ATT002"),
    ("UPD001", "ATT001"),
    ("GEN003", "DAT004"),
)
"""Conditions of which it matters which came first."""

_LATE_STEPS = 5

_LATE_LOOKS = {"UPD004": 15, "WGT002": 20}
"""More of them where a tensor is only looked at every ten steps or so: it is dated by the look."""


def signs(findings: Iterable[Finding], onset: int) -> Mapping[str, Finding]:
    """What may explain trouble that began at `onset`, by code; of several findings of a code the first.

    A sudden condition that began more than five steps after the onset (or by the next look at it, where looks are rare)
    is left out: it may be a consequence, and cannot be the cause. So is nearly everything that began after the loss was
    no longer finite. An alarm also stands under its code with a "!", one that names places under its code with an "@"
    (with "@1" where it is a single one), and of some pairs the one that came first under both codes with a "<" between
    them.
    """
    by_code: dict[str, Finding] = {}
    for finding in findings:
        if finding.code not in by_code or finding.first_step < by_code[finding.code].first_step:
            by_code[finding.code] = finding
    collapse = by_code["LOS001"].first_step if "LOS001" in by_code else None
    seen = {
        code: finding
        for code, finding in by_code.items()
        if not (code in SUDDEN and finding.first_step > onset + _LATE_LOOKS.get(code, _LATE_STEPS))
        and not (collapse is not None and finding.first_step > collapse and code not in COLLAPSE)
    }
    alarms = {f"{code}!": finding for code, finding in seen.items() if finding.severity.is_alarm}
    places = {f"{code}@": finding for code, finding in seen.items() if finding.where}
    places |= {f"{code}@1": finding for code, finding in seen.items() if len(finding.where) == 1}
    orders = {
        f"{one}<{two}": seen[one]
        for pair in PAIRS
        for one, two in (pair, pair[::-1])
        if one in seen and two in seen and seen[one].first_step < seen[two].first_step
    }
    return seen | alarms | places | orders


def onset(finding: Finding) -> int:
    """The step at which what was found began, as far as that is known; else later than everything."""
    return sys.maxsize if finding.code in BACKDATED else finding.first_step


def onset_of(findings: Sequence[Finding]) -> int:
    """The step at which trouble began: of the first alarm that knows it."""
    return min((onset(finding) for finding in findings if finding.severity.is_alarm), default=sys.maxsize)
