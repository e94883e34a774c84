"""DST002 rank-divergence."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.causes import Cause
from sonde.core.findings import Evidence, Severity
from sonde.rules.ranks.rank_series import RankSeries, aligned
from sonde.rules.rule import Look, Sighting


class RankDivergenceState(NamedTuple):
    """One rank alone says nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankDivergence:
    """Ranks that should hold the same weights do not.

    What it detects:
        The global weight norms of the ranks of a data-parallel training differ by more than `tolerance`, relative to
        the largest, at `confirmed` readings in a row, of which the first is named. Replicas that apply the same
        gradient agree to the last bit, or to rounding where reductions are not deterministic. It needs the series of
        all ranks: `judge` takes them; a single rank's rows say nothing.

    Why it matters:
        Averaged gradients belong to none of the models; what is saved is one of several that have drifted apart.

    Evidence:
        `weight/norm` of each rank.

    What to do:
        Broadcast the initial weights (`DistributedDataParallel` does), clip and step alike on all ranks, and draw no
        random number on some of them only where it changes weights.

    When it is wrong:
        Local SGD, federated averaging and different experts on each rank diverge on purpose.

    References:
        Jiang et al., TrainCheck, OSDI 2025 (replicas out of sync; clipping on one rank only).
    """

    code: ClassVar[str] = "DST002"
    name: ClassVar[str] = "rank-divergence"
    needs: ClassVar[tuple[str, ...]] = ("weight/norm",)
    causes: ClassVar[tuple[Cause, ...]] = (Cause.RANK_DIVERGENCE,)
    quiet_steps: ClassVar[int] = 100

    tolerance: float = 1e-5
    confirmed: int = 2

    def init(self) -> RankDivergenceState:
        """Before the first step."""
        return RankDivergenceState()

    def step(self, state: RankDivergenceState, look: Look) -> tuple[RankDivergenceState, Sequence[Sighting]]:
        """A single rank's rows: abstains."""
        return state, ()

    def judge(self, weight_norm: RankSeries) -> Sequence[Sighting]:
        """Look at all ranks together.

        Args:
            weight_norm: Steps and values of `weight/norm` of every rank.
        """
        ranks, steps, norms = aligned(weight_norm)
        if len(ranks) < 2 or len(steps) < self.confirmed:
            return ()
        largest = np.maximum(np.max(np.abs(norms), axis=0), 1e-30)
        apart = np.ptp(norms, axis=0) / largest > self.tolerance
        for place in range(len(steps) - self.confirmed + 1):
            if apart[place : place + self.confirmed].all():
                last = np.median(norms[:, -1])
                odd = int(np.argmax(np.abs(norms[:, -1] - last)))
                message = (
                    f"the ranks' weight norms differ by {float(np.ptp(norms[:, -1]) / largest[-1]):.2g} of their size"
                )
                evidence = tuple(
                    Evidence(tag="weight/norm", step=int(steps[-1]), value=float(value), expected=float(last))
                    for value in norms[:, -1]
                )
                return (
                    Sighting(Severity.CRITICAL, message, (f"rank {ranks[odd]}",), evidence, since=int(steps[place])),
                )
        return ()
