"""The table of causes and signs: what speaks for which cause, and how strongly.

Rules say what they point to (`points_to`); how much each claim weighs is fitted (`sonde.diagnosis.weights`). A weight
is a log-likelihood ratio: how much more often the sign is seen under the cause than under others, as a natural
logarithm (1.1 three times, 2.3 ten times); a cost is the same for its absence. What a cause brings about counts against
others that would only be its consequences.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sonde.core.causes import Cause
from sonde.diagnosis.weights import PRIORS, WEIGHTS
from sonde.rules.rule import Rule, When, claims_of


class Row(NamedTuple):
    """One cell of the table.

    Attributes:
        cause: What the sign speaks of.
        code: Of the rule.
        when: What it must have seen.
        weight: What the sign adds to the cause's log-odds …
        cost: … and what its absence takes away.
        why: What the sign shows.
    """

    cause: Cause
    code: str
    when: When
    weight: float
    cost: float = 0.0
    why: str = ""

    @property
    def sign(self) -> str:
        """As signs are written: the rule's code, and when it counts."""
        return f"{self.code}{self.when}"


def rows_of(rules: Iterable[type[Rule] | Rule]) -> tuple[Row, ...]:
    """What some rules say of causes. Those that nothing was fitted to weigh what they say themselves."""
    return tuple(
        Row(
            cause,
            rule.code,
            claim.when,
            *WEIGHTS.get(rule.code, {}).get(f"{cause}{claim.when}", (claim.weight, 0.0)),
            claim.why,
        )
        for rule in rules
        for cause, claim in claims_of(rule)
    )


class Table:
    """The rows of some rules, by cause."""

    def __init__(self, rules: Iterable[type[Rule] | Rule]) -> None:
        self._rows: dict[Cause, list[Row]] = {}
        for row in rows_of(rules):
            self._rows.setdefault(row.cause, []).append(row)

    def prior(self, cause: Cause) -> float:
        """Log-odds before anything was seen."""
        return PRIORS.get(cause, -1.0)

    def rows(self, cause: Cause) -> Sequence[Row]:
        """What speaks for or against a cause."""
        return self._rows.get(cause, ())
