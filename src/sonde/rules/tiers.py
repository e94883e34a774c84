"""Tiers: a stable rule alarms; a preview rule only informs until its alarms are known to be right."""

import enum
from collections.abc import Sequence
from typing import Any, cast, final

from sonde.core.findings import Severity
from sonde.rules.alarm_precision import PRECISION
from sonde.rules.rule import Look, Rule, Sighting, onset_of

ENOUGH_ALARMS = 20
"""With fewer the share of right ones is known too badly: 18 of 20 may be 70% or 97%."""

LEAST_RIGHT = 0.9
"""Of all alarms: below, one in ten sends somebody to look for a fault that is not there."""


class Tier(enum.StrEnum):
    """Whether a rule's findings alarm."""

    STABLE = "stable"
    PREVIEW = "preview"
    """What it sees is information, whatever it calls it."""


def tier_of(rule: type[Rule] | Rule) -> Tier:
    """The tier of a rule: by its measured precision, or what its class says (`tier`) where too little was measured.

    Example:
        >>> from sonde.rules.losses.loss_spike import LossSpike
        >>> tier_of(LossSpike).value
        'stable'
    """
    right, num = PRECISION.get(rule.code, (0, 0))
    if num >= ENOUGH_ALARMS:
        return Tier.STABLE if right >= LEAST_RIGHT * num else Tier.PREVIEW
    return Tier(getattr(rule, "tier", Tier.STABLE))


def informing(rule: Rule) -> Rule:
    """A rule whose alarms are information."""
    return cast("Rule", _Informing(rule))


def bare(rule: Any) -> Rule:
    """The rule itself, whatever its tier."""
    return rule.rule if isinstance(rule, _Informing) else rule


@final
class _Informing:
    """A rule, and what it sees as information."""

    def __init__(self, rule: Rule) -> None:
        self.code, self.name, self.needs, self.points_to = rule.code, rule.name, rule.needs, rule.points_to
        self.quiet_steps, self.onset = rule.quiet_steps, onset_of(rule)
        self.reads, self.waits = getattr(rule, "reads", None), getattr(rule, "waits", None)
        self.rule = rule

    def init(self) -> Any:
        return self.rule.init()

    def step(self, state: Any, look: Look) -> tuple[Any, Sequence[Sighting]]:
        state, seen = self.rule.step(state, look)
        return state, [sighting._replace(severity=Severity.INFO) for sighting in seen]
