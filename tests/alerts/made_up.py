"""Findings and bulletins to tell about."""

from sonde.alerts.notices import Bulletin, Curve, Notice
from sonde.core.causes import Cause
from sonde.core.findings import Finding, Severity, Suspect
from sonde.core.remedies import Action, Remedy, Safety

NOON_S = 1_700_049_600.0  # 2023-11-15 12:00 UTC


def finding(
    code: str = "GRD001",
    *,
    severity: Severity = Severity.WARNING,
    first: int = 10,
    last: int | None = None,
    is_open: bool = True,
) -> Finding:
    return Finding(
        code=code,
        name="made-up",
        severity=severity,
        first_step=first,
        last_step=first if last is None else last,
        open=is_open,
        message=f"something about {code}",
    )


EXPLOSION = Finding(
    code="GRD001",
    name="exploding-gradients",
    severity=Severity.CRITICAL,
    first_step=1840,
    last_step=1852,
    open=True,
    where=("blocks.11.mlp.up.weight", "blocks.10.mlp.up.weight"),
    message="global gradient norm 417, 38 robust deviations above its last 200 steps & <rising>",
    causes=(Suspect(cause=Cause.LR_TOO_HIGH, confidence=0.8, because="update ratio rose 3×"),),
    remedies=(
        Remedy(action=Action.CLIP, args={"norm": 2.0}, safety=Safety.OPT_IN, text="clip the global norm at 2.0"),
    ),
)
STALL = finding("SYS004", first=1700, last=1850)
SPIKE = finding("LOS002", first=1200, last=1260, is_open=False)

BULLETIN = Bulletin(
    notice=Notice(alarms=(EXPLOSION, STALL), resolved=(SPIKE,), more=37, to_follow=1),
    id="3f2a-1",
    run="runs/demo",
    host="node7",
    time_s=NOON_S,
    curve=Curve(title="loss, last 100 steps", values=tuple(1 / (1 + step) for step in range(100))),
)
