"""What rules say that compare the ranks of a training: they are told the series of all of them, now and then."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast, final

from sonde.rules.ranks.rank_divergence import RankDivergence
from sonde.rules.ranks.rank_series import RankSeries
from sonde.rules.ranks.straggler import Straggler
from sonde.rules.rule import Look, Rule, Sighting
from sonde.rules.tiers import bare, informing

ACROSS_RANKS = ("time/step", "time/backward", "time/communication", "weight/norm", "grad/norm_applied")
"""The series that are compared between ranks."""


@final
class Compared:
    """A rule that has been told about all ranks; at each step it says what is to be seen of them by then.

    Where it is told about steps that are over, it says the last of what it had not said yet.
    """

    def __init__(self, rule: Straggler | RankDivergence) -> None:
        self.code, self.name, self.needs, self.points_to = rule.code, rule.name, rule.needs, rule.points_to
        self.quiet_steps = rule.quiet_steps
        self._rule = rule
        self._seen: Sequence[tuple[int, Sighting]] = ()
        self._said = -1
        self._place = 0

    def tell(self, ranks: Mapping[str, RankSeries]) -> None:
        """The series of all ranks, from their first step on."""
        self._seen = self._rule.judge(ranks)
        self._place = next((i for i, (step, _) in enumerate(self._seen) if step > self._said), len(self._seen))

    def init(self) -> tuple[Any, ...]:
        """What was said belongs to the run's ranks, not to one row."""
        return ()

    def step(self, state: tuple[Any, ...], look: Look) -> tuple[tuple[Any, ...], Sequence[Sighting]]:
        """What was seen since the last step."""
        now: tuple[Sighting, ...] = ()
        while self._place < len(self._seen) and self._seen[self._place][0] <= look.view.step:
            self._said, sighting = self._seen[self._place]
            now = (sighting,)
            self._place += 1
        return state, now


def compared(rules: Iterable[Rule]) -> tuple[list[Rule], list[Compared]]:
    """The rules, those that compare ranks ready to be told about them; and these once more."""
    found, across = list[Rule](), list[Compared]()
    for rule in rules:
        itself = bare(rule)
        if isinstance(itself, Straggler | RankDivergence):
            across.append(Compared(itself))
            comparing = cast("Rule", across[-1])
            found.append(comparing if rule is itself else informing(comparing))
        else:
            found.append(rule)
    return found, across
