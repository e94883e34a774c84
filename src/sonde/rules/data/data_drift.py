"""DAT004 data-drift."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.causes import Cause
from sonde.core.findings import Evidence, Severity
from sonde.core.records import Float64
from sonde.rules.rule import Look, Sighting

_KEPT = 32


class DataDriftState(NamedTuple):
    """Mean and standard deviation of each input at the looks so far, oldest first."""

    inputs: tuple[tuple[str, tuple[tuple[int, float, float], ...]], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class DataDrift:
    """The data change while the training runs.

    What it detects:
        The mean or the standard deviation of a floating-point input lies, in the newer looks (two at least, and each of
        the last two), apart from the older ones (three at least) by `score` standard errors and by `change` of the
        deviation; noise is taken from the differences of neighbouring looks, and the cut is the place that parts them
        best. Information; a warning where the loss is `rise` times its best too.

    Why it matters:
        What was learned is for other data: the loss rises without any fault of the optimiser, and a validation set from
        the beginning says less and less.

    Evidence:
        `batch/mean@…` and `batch/std@…` before and after.

    What to do:
        Find out what changed at that step: a new file, another source, a sensor. Shuffle over the whole set, or
        normalise each source by itself.

    When it is wrong:
        Curricula and growing resolutions change the data on purpose; their loss recovers. Batches are looked at every
        hundredth step, so that a change is seen one or two hundred steps late, and short runs have too few looks.

    References:
        Gama et al., A survey on concept drift adaptation, ACM Computing Surveys 2014.
    """

    code: ClassVar[str] = "DAT004"
    name: ClassVar[str] = "data-drift"
    needs: ClassVar[tuple[str, ...]] = ("batch/mean@", "batch/std@")
    causes: ClassVar[tuple[Cause, ...]] = (Cause.DATA_DRIFT,)
    quiet_steps: ClassVar[int] = 250

    score: float = 8.0
    change: float = 0.25
    rise: float = 1.3

    def init(self) -> DataDriftState:
        """Before the first step."""
        return DataDriftState()

    def step(self, state: DataDriftState, look: Look) -> tuple[DataDriftState, Sequence[Sighting]]:
        """Look at one more batch, where there is one."""
        means, stds = look.scene.layers("batch/mean"), look.scene.layers("batch/std")
        if means is None or stds is None:
            return state, ()
        known, deviations = dict(state.inputs), dict(zip(stds.names, stds.values.tolist(), strict=True))
        sightings = []
        for name, mean in zip(means.names, means.values.tolist(), strict=True):
            std = deviations.get(name, np.nan)
            if np.isfinite(mean) and np.isfinite(std):
                known[name] = (*known.get(name, ()), (look.scene.step, mean, std))[-_KEPT:]
                if sighting := self._judge(name, np.array(known[name]), look):
                    sightings.append(sighting)
        return DataDriftState(tuple(known.items())), sightings

    def _judge(self, name: str, looks: Float64, look: Look) -> Sighting | None:
        if len(looks) < 5:
            return None
        unit = float(np.median(looks[:2, 2]))
        best: tuple[float, int, int] | None = None
        for quantity in (1, 2):
            # From neighbours, whose difference neither a jump nor a slow drift enlarges; 0.954 = √2·0.6745.
            noise = max(float(np.median(np.abs(np.diff(looks[:, quantity])))) / 0.954, 0.02 * unit)
            for cut in range(3, len(looks) - 1):
                older, newer = looks[:cut, quantity], looks[cut:, quantity]
                # All of the newest must be away: one odd batch is no drift.
                between = np.min(np.abs(np.r_[np.median(newer), newer[-2:]] - np.median(older)))
                score = float(between / (noise * np.sqrt(1 / len(older) + 1 / len(newer))))
                apart = float(sum(np.abs(part - np.median(part)).sum() for part in (older, newer)))
                if between > self.change * unit and score > self.score and (best is None or apart < best[0]):
                    best = apart, quantity, cut
        if best is None:
            return None
        _, quantity, cut = best
        word = "mean" if quantity == 1 else "std"
        before, after = float(np.median(looks[:cut, quantity])), float(np.median(looks[cut:, quantity]))
        picture = look.picture
        hurt = picture.loss_best > 0 and picture.loss_smooth > self.rise * picture.loss_best
        message = f"the {word} of input {name} went from {before:.3g} to {after:.3g} by step {looks[cut, 0]:.0f}"
        evidence = Evidence(tag=f"batch/{word}@{name}", step=look.scene.step, value=after, expected=before)
        severity = Severity.WARNING if hurt else Severity.INFO
        return Sighting(severity, message, (name,), (evidence,), since=int(looks[cut, 0]))
