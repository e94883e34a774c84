"""DST001 straggler."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.causes import Cause
from sonde.core.findings import Evidence, Severity
from sonde.rules.ranks.rank_series import RankSeries, aligned
from sonde.rules.rule import Look, Sighting


class StragglerState(NamedTuple):
    """One rank alone says nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Straggler:
    """One rank is slower than the others, which wait for it.

    What it detects:
        Ranks that exchange gradients end each step together, so step times agree and only the waiting differs: it lies
        in the backward pass of those that are early. A rank's own time is `time/step` − `time/backward`; a straggler's
        median own time is `ratio` times the median of the other ranks' and the difference more than `share` of a step,
        over the last `window` steps that all ranks have, of which there must be `min_steps`. It needs the series of all
        ranks: `judge` takes them; a single rank's rows say nothing.

    Why it matters:
        All ranks run at the speed of the slowest.

    Evidence:
        `time/step` and `time/backward` of each rank.

    What to do:
        Look at that rank's machine: other work on it, a throttled device, a slow disk; or at its share of the data,
        which may be larger or of longer sequences.

    When it is wrong:
        Ranks with different work by design (pipeline stages, a rank that also logs and evaluates).

    References:
        Wu et al., FALCON: pinpointing and mitigating stragglers for large-scale hybrid-parallel training, 2024.
    """

    code: ClassVar[str] = "DST001"
    name: ClassVar[str] = "straggler"
    needs: ClassVar[tuple[str, ...]] = ("time/step", "time/backward")
    causes: ClassVar[tuple[Cause, ...]] = (Cause.STRAGGLER,)
    quiet_steps: ClassVar[int] = 100

    ratio: float = 1.5
    share: float = 0.2
    window: int = 100
    min_steps: int = 10

    def init(self) -> StragglerState:
        """Before the first step."""
        return StragglerState()

    def step(self, state: StragglerState, look: Look) -> tuple[StragglerState, Sequence[Sighting]]:
        """A single rank's rows: abstains."""
        return state, ()

    def judge(self, series: Mapping[str, RankSeries]) -> Sequence[Sighting]:
        """Look at all ranks together.

        Args:
            series: `time/step` and `time/backward`, each with the steps and values of every rank.
        """
        ranks, steps, totals = aligned(series.get("time/step", {}))
        others, at, backwards = aligned(series.get("time/backward", {}))
        if len(ranks) < 2 or ranks != others:
            return ()
        common = np.intersect1d(steps, at)[-self.window :]
        if len(common) < self.min_steps:
            return ()
        total = np.median(totals[:, np.isin(steps, common)], axis=1)
        own = np.median(totals[:, np.isin(steps, common)] - backwards[:, np.isin(at, common)], axis=1)
        found = []
        for place, rank in enumerate(ranks):
            rest = float(np.median(np.delete(own, place)))
            if own[place] > self.ratio * max(rest, 0.0) and own[place] - rest > self.share * float(np.median(total)):
                message = f"rank {rank} computes for {own[place]:.3g} s a step, the others for {rest:.3g} s"
                evidence = Evidence(tag="time/step", step=int(common[-1]), value=float(own[place]), expected=rest)
                found.append(Sighting(Severity.WARNING, message, (f"rank {rank}",), (evidence,), since=int(common[0])))
        return found
