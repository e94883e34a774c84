"""DST002 rank-divergence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import share as percent
from sonde.core.records import Float64
from sonde.rules.ranks.rank_series import Aligned, RankSeries, aligned, outliers
from sonde.rules.rule import Cause, Claims, Evidence, For, Look, Severity, Sighting


class RankDivergenceState(NamedTuple):
    """One rank alone says nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankDivergence:
    """Ranks that should hold the same weights do not.

    What it detects:
        - Weights: the global weight norms of the ranks of a data-parallel training differ by more than `tolerance`,
          relative to the largest, at one measurement.
        - Gradients: the norms of the applied gradients differ by more than `tolerance` at `confirmed` steps in a row.
          This counts only if these norms were equal before, because gradients may be averaged after they are read.
        - `tolerance` covers the rounding of the recorded norms, for ranks on different devices that add up in another
          order. On equal devices an all-reduce gives every rank the same bits, and the norms differ by 0.
        - Nothing is said if both norms differ at the first measurement, and the weights by more than `pieces`: the
          ranks hold different weights by design (shards, stages of a pipeline).
        - Always critical. The message is dated back to the first step at which the ranks differed. The series of all
          ranks are needed.

    Why it matters:
        Averaged gradients belong to none of the models, and the checkpoint is one of several models that have drifted
        apart.

    Evidence:
        `weight/norm` and `grad/norm_applied` of each rank.

    What to do:
        - Broadcast the initial weights (`DistributedDataParallel` does so).
        - Call the wrapper and not the model inside it.
        - Clip and step in the same way on all ranks.
        - Draw random numbers that change weights on all ranks alike.

    When it is wrong:
        - Local SGD, federated averaging, and different experts on each rank diverge on purpose.
        - Ranks that count their steps differently are compared at different steps.
        - Two ranks whose weights differ in direction only have equal norms, and are not found. This is rare.

    References:
        Jiang et al., TrainCheck, OSDI 2025 (replicas out of sync; clipping on one rank only).
    """

    code: ClassVar[str] = "DST002"
    name: ClassVar[str] = "rank-divergence"
    needs: ClassVar[tuple[str, ...]] = ("weight/norm",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.RANK_DIVERGENCE: For("the ranks hold different models"),
    }
    quiet_steps: ClassVar[int] = 100

    tolerance: float = 1e-6
    confirmed: int = 2
    pieces: float = 0.01

    def init(self) -> RankDivergenceState:
        """Before the first step."""
        return RankDivergenceState()

    def step(self, state: RankDivergenceState, look: Look) -> tuple[RankDivergenceState, Sequence[Sighting]]:
        """A single rank's rows: abstains."""
        return state, ()

    def judge(self, series: Mapping[str, RankSeries]) -> Sequence[tuple[int, Sighting]]:
        """Look at all ranks together: what is seen at which step, from nothing later than that.

        Args:
            series: `weight/norm` and, where it is known, `grad/norm_applied`, each with the steps and values of every
                rank.
        """
        weights, gradients = aligned(series.get("weight/norm", {})), aligned(series.get("grad/norm_applied", {}))
        weights_at, gradients_at = _places(weights), _places(gradients)
        weights_apart, gradients_apart = _apart(weights.values), _apart(gradients.values)
        if self._are_pieces(weights, weights_apart, gradients_at, gradients_apart):
            return ()
        found: list[tuple[int, Sighting]] = []
        averaged: bool | None = None  # whether gradients are equal by the time they are read; None: not known yet
        since: int | None = None
        num = 0
        for step in sorted({*weights_at, *gradients_at}):
            place, at = weights_at.get(step), gradients_at.get(step)
            differs = at is not None and averaged is not False and bool(gradients_apart[at] > self.tolerance)
            if place is not None and weights_apart[place] <= self.tolerance:
                since, num = None, 0
                if differs:  # and yet the weights do not: it is averaged after it was read
                    averaged = False
                    continue
            if differs:
                since = step if since is None else since
                num += 1
            elif at is not None:
                num = 0
                averaged = averaged if averaged is False or not gradients.values[:, at].any() else True
            if place is not None and weights_apart[place] > self.tolerance:
                since = step if since is None else since
                found.append((step, _sighting("weight", weights, place, weights_apart, since)))
            elif at is not None and averaged and num >= self.confirmed:
                found.append((step, _sighting("gradient", gradients, at, gradients_apart, since)))
        return found

    def _are_pieces(
        self, weights: Aligned, weights_apart: Float64, gradients_at: Mapping[int, int], gradients_apart: Float64
    ) -> bool:
        """Whether the ranks' weights were never meant to be equal."""
        if not len(weights.steps) or not weights_apart[0] > self.pieces:
            return False
        at = gradients_at.get(int(weights.steps[0]))
        return at is not None and bool(gradients_apart[at] > self.tolerance)


_TAGS = {"weight": "weight/norm", "gradient": "grad/norm_applied"}


def _places(compared: Aligned) -> dict[int, int]:
    """Where a step's values are; none where there is nothing to compare."""
    return {step: place for place, step in enumerate(compared.steps.tolist())} if len(compared.ranks) > 1 else {}


def _apart(norms: Float64) -> Float64:
    """How far apart the ranks are at each step, relative to the largest; 0 where all are 0."""
    if not norms.size:
        return np.empty(0)
    return np.asarray(np.ptp(norms, axis=0) / np.maximum(np.max(np.abs(norms), axis=0), 1e-30))


def _sighting(what: str, compared: Aligned, place: int, apart: Float64, since: int | None) -> Sighting:
    values, step = compared.values[:, place], int(compared.steps[place])
    middle = float(np.median(values))
    evidence = tuple(Evidence(tag=_TAGS[what], step=step, value=value, expected=middle) for value in values.tolist())
    message = f"the {what} norms of the ranks differ by {percent(float(apart[place]))}"
    return Sighting(Severity.CRITICAL, message, outliers(compared.ranks, values), evidence, since)
