"""DST001 straggler."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import amount
from sonde.rules.ranks.rank_series import RankSeries, aligned
from sonde.rules.rule import Cause, Claims, Evidence, For, Look, Severity, Sighting


class StragglerState(NamedTuple):
    """One rank alone says nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Straggler:
    """One rank is slower than the others, which wait for it.

    What it detects:
        - A rank's own time is `time/step` − `time/backward` − `time/communication`. Ranks that exchange gradients end
          each step together, and the faster ranks wait in the backward pass or in the calls of `torch.distributed`; so
          only the own times differ.
        - At each of the last `window` measurements that all ranks have, the same rank took more than `each` times as
          long as the slowest of the others.
        - Its median own time is more than `ratio` times the median of the others, and longer by more than `share` of a
          step.
        - If its own time is longer by `large` of a step at all of them but one, `few` measurements are enough.
        - Always a warning. The series of all ranks are needed.

    Why it matters:
        All ranks run at the speed of the slowest.

    Evidence:
        `time/step`, `time/backward` and `time/communication` of each rank.

    What to do:
        - Look at the machine of that rank: other work on it, a throttled device, a slow disk.
        - Look at its share of the data, which may be larger or have longer sequences.

    When it is wrong:
        - Ranks may have different work by design: the stages of a pipeline, or a rank that also logs and evaluates.

    References:
        Wu et al., FALCON: pinpointing and mitigating stragglers for large-scale hybrid-parallel training, 2024.
    """

    code: ClassVar[str] = "DST001"
    name: ClassVar[str] = "straggler"
    needs: ClassVar[tuple[str, ...]] = ("time/step", "time/backward")
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.STRAGGLER: For("one rank takes longer than all others"),
    }
    quiet_steps: ClassVar[int] = 100

    ratio: float = 1.5
    each: float = 1.2
    share: float = 0.2
    large: float = 0.5
    window: int = 10
    few: int = 5

    def init(self) -> StragglerState:
        """Before the first step."""
        return StragglerState()

    def step(self, state: StragglerState, look: Look) -> tuple[StragglerState, Sequence[Sighting]]:
        """A single rank's rows: abstains."""
        return state, ()

    def judge(self, series: Mapping[str, RankSeries]) -> Sequence[tuple[int, Sighting]]:
        """Look at all ranks together: what is seen at which step, from nothing later than that.

        Args:
            series: `time/step`, `time/backward` and, where there is any, `time/communication`, each with the steps and
                values of every rank.
        """
        whole, backward = aligned(series.get("time/step", {})), aligned(series.get("time/backward", {}))
        if len(whole.ranks) < 2 or whole.ranks != backward.ranks:
            return ()
        steps, here, there = np.intersect1d(whole.steps, backward.steps, return_indices=True)
        totals = whole.values[:, here]
        owns = totals - backward.values[:, there]
        spoken = aligned(series.get("time/communication", {}))
        if spoken.ranks == whole.ranks:
            _, mine, theirs = np.intersect1d(steps, spoken.steps, return_indices=True)
            owns[:, mine] -= spoken.values[:, theirs]
        slowest, second = np.argmax(owns, axis=0), np.sort(owns, axis=0)[-2]
        longest = owns.max(axis=0)
        large = longest - second > self.large * np.median(totals, axis=0)
        found: list[tuple[int, Sighting]] = []
        num = 0  # readings in a row at which the same rank stood out
        for end, step in enumerate(steps.tolist(), 1):
            now = end - 1
            same = num > 0 and slowest[now] == slowest[now - 1]
            num = (num + 1 if same else 1) if longest[now] > self.each * max(second[now], 0.0) else 0
            if num >= self.few and large[end - self.few : end].sum() >= self.few - 1:
                last = self.few
            elif num >= self.window:
                last = self.window
            else:
                continue
            place = int(slowest[now])
            own, total = np.median(owns[:, end - last : end], axis=1), float(np.median(totals[:, end - last : end]))
            rest = float(np.median(np.delete(own, place)))
            if own[place] > self.ratio * max(rest, 0.0) and own[place] - rest > self.share * total:
                rank, since = whole.ranks[place], int(steps[end - num])
                message = (
                    f"rank {rank} computes for {amount(own[place])} s a step, the other ranks for {amount(rest)} s"
                )
                evidence = Evidence(tag="time/step", step=step, value=float(own[place]), expected=rest)
                found.append((step, Sighting(Severity.WARNING, message, (f"rank {rank}",), (evidence,), since)))
        return found
