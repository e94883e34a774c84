"""DAT004 data-drift."""

import bisect
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import amount
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Severity, Sighting, When
from sonde.signals.medians import middle

_MOST_BLOCKS = 32
_MOST_EVALUATIONS = 16
_STEPS = 8  # of a block


class Block(NamedTuple):
    """Some neighbouring looks at an input: the first step, and the averages of its mean and standard deviation."""

    step: int
    mean: float
    std: float
    num: int = 1

    def joined(self, other: "Block") -> "Block":
        """With the looks after it."""
        num = self.num + other.num
        mean, std = ((self.num * a + other.num * b) / num for a, b in ((self.mean, other.mean), (self.std, other.std)))
        return Block(self.step, mean, std, num)


class DataDriftState(NamedTuple):
    """For each input its blocks, oldest first; the last one may still grow."""

    inputs: tuple[tuple[str, tuple[Block, ...]], ...] = ()
    validations: tuple[tuple[int, float], ...] = ()
    """The last evaluations: step and loss."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataDrift:
    """The data change while the training runs.

    What it detects:
        - The mean or the standard deviation of a floating-point input differs between the newer and the older batches
          by `score` standard errors and by `change` of the standard deviation.
        - Measurements are averaged in blocks of eight steps. The older part has at least three blocks, the newer part
          at least two, and each of the last two blocks differs. The noise comes from the differences of neighbouring
          blocks.
        - Warning: the smoothed loss is more than `rise` times its best value, the change came at most `reach` steps ago
          (or three measurements, if they are rare), and the best value came after the first half of the way to the
          change. A loss below 0.3 of its moving average is already coming down, and does not count.
        - Warning: validation got better up to the change, and the first evaluation after it is worse by more than a
          fifth.
        - Information: all other cases, and every case in which the model makes its own data.

    Why it matters:
        What was learned holds for other data. The loss rises without any fault of the optimiser, and a validation set
        from the beginning says less and less.

    Evidence:
        `batch/mean@…` and `batch/std@…` before and after.

    What to do:
        - Find out what changed at that step: a new file, another source, a sensor.
        - Shuffle over the whole data set.
        - Normalise each source by itself.

    When it is wrong:
        - A model that makes its own data, as a player does, changes them on purpose. If Sonde sees that the model is
          called without gradients between its steps, the finding stays information.
        - Curricula and growing resolutions change the data on purpose, and the loss recovers.
        - A task that follows another on purpose makes the validation loss of the first task worse.
        - A run of fewer than five blocks has too little of a past to be judged.

    References:
        Gama et al., A survey on concept drift adaptation, ACM Computing Surveys 2014.
    """

    code: ClassVar[str] = "DAT004"
    name: ClassVar[str] = "data-drift"
    needs: ClassVar[tuple[str, ...]] = ("batch/mean@", "batch/std@")
    reads: ClassVar[tuple[str, ...]] = ("batch/mean@", "batch/std@", "val/loss")
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.DATA_DRIFT: For("the statistics of an input moved and stayed there"),
        Cause.DATA_NOT_SHUFFLED: For("the inputs move with the targets"),
        Cause.OVERFITTING: Against("training goes on with other data than validation has", when=When.ALARM),
        Cause.MISSING_REGULARISATION: Against("training goes on with other data", when=When.ALARM),
    }
    quiet_steps: ClassVar[int] = 250
    guide: ClassVar[str] = "loss-spike"

    score: float = 8.0
    change: float = 0.25
    rise: float = 1.3
    reach: int = 64

    def init(self) -> DataDriftState:
        """Before the first step."""
        return DataDriftState()

    def step(self, state: DataDriftState, look: Look) -> tuple[DataDriftState, Sequence[Sighting]]:
        """Look at one more batch, where there is one."""
        found = look.view.value("val/loss")
        if math.isfinite(found):
            state = state._replace(validations=(*state.validations, (look.view.step, found))[-_MOST_EVALUATIONS:])
        means, stds = look.view.layers("batch/mean"), look.view.layers("batch/std")
        if means is None or stds is None:
            return state, ()
        known, deviations = dict(state.inputs), dict(zip(stds.names, stds.values.tolist(), strict=True))
        sightings = []
        for name, mean in zip(means.names, means.values.tolist(), strict=True):
            std = deviations.get(name, math.nan)
            if not (math.isfinite(mean) and math.isfinite(std)):
                continue
            known[name], complete = _extended(known.get(name, ()), Block(look.view.step, mean, std))
            if complete and (sighting := self._judge(name, complete, look, state.validations)):
                sightings.append(sighting)
        return state._replace(inputs=tuple(known.items())), sightings

    def _judge(
        self, name: str, looks: Sequence[Block], look: Look, validations: Sequence[tuple[int, float]]
    ) -> Sighting | None:
        num = len(looks)
        if num < 5:
            return None
        unit = middle([block.std for block in looks[:2]])
        best: tuple[float, int, int, float, float] | None = None
        for quantity in (1, 2):
            values = [block[quantity] for block in looks]
            # From neighbours, whose difference neither a jump nor a slow drift enlarges; 0.954 = √2·0.6745.
            noise = max(middle([abs(b - a) for a, b in itertools.pairwise(values)]) / 0.954, 0.02 * unit)
            olders, newers = _medians(values), _medians(values[::-1])
            for cut in range(3, num - 1):
                older, newer = olders[cut - 1], newers[num - cut - 1]
                # All of the newest must be away: one odd batch is no drift.
                between = min(abs(value - older) for value in (newer, values[-2], values[-1]))
                if not between > self.change * unit:
                    continue
                if not between > self.score * noise * math.sqrt(1 / cut + 1 / (num - cut)):
                    continue
                apart = math.fsum(abs(value - older) for value in values[:cut])
                apart += math.fsum(abs(value - newer) for value in values[cut:])
                if best is None or apart < best[0]:
                    best = apart, quantity, cut, older, newer
        if best is None:
            return None
        _, quantity, cut, before, after = best
        word, tag = ("mean", "batch/mean") if quantity == 1 else ("standard deviation", "batch/std")
        run = look.run
        hurt = run.loss_best > 0 and run.loss_smooth > self.rise * run.loss_best
        # A loss that has been rising since long before, or began to long after, is not the drift's doing.
        reach = max(self.reach, 3 * (looks[-1].step - looks[-2].step))
        hurt = hurt and 2 * run.best_step > looks[cut].step >= look.view.step - reach
        # Nor is it hurt where the new data are learned already, and only the average of the loss is still high.
        hurt = hurt and run.loss > 0.3 * run.loss_smooth
        hurt = hurt or _turns(validations, looks[cut].step)
        message = (
            f"the {word} of input `{name}` moved from {amount(before)} to {amount(after)} by step {looks[cut].step:,}"
        )
        evidence = Evidence(tag=f"{tag}@{name}", step=look.view.step, value=after, expected=before)
        severity = Severity.WARNING if hurt and not run.acts else Severity.INFO
        return Sighting(severity, message, (name,), (evidence,), since=looks[cut].step)


def _turns(validations: Sequence[tuple[int, float]], changed: int) -> bool:
    """Whether validation got better up to a step, and the first evaluation after it is a fifth worse."""
    before = [loss for step, loss in validations if step < changed]
    after = [loss for step, loss in validations if step >= changed]
    return len(before) >= 2 and bool(after) and before[-2] > before[-1] > 0 and after[0] > 1.2 * before[-1]


def _medians(values: Sequence[float]) -> list[float]:
    """Of the first one, the first two, and so on."""
    medians: list[float] = []
    ordered: list[float] = []
    for value in values:
        bisect.insort(ordered, value)
        high = len(ordered) // 2
        medians.append(ordered[high] if len(ordered) % 2 else (ordered[high - 1] + ordered[high]) / 2)
    return medians


def _extended(blocks: tuple[Block, ...], look: Block) -> tuple[tuple[Block, ...], tuple[Block, ...]]:
    """The blocks with one more look; and, where that begins a new one, those that can be judged."""
    if blocks and blocks[-1].step // _STEPS == look.step // _STEPS:
        return (*blocks[:-1], blocks[-1].joined(look)), ()
    if len(blocks) >= _MOST_BLOCKS:
        # Of the older half the pair with the fewest looks: what is new stays as it is.
        sums = [one.num + two.num for one, two in itertools.pairwise(blocks[: _MOST_BLOCKS // 2])]
        place = sums.index(min(sums))
        blocks = (*blocks[:place], blocks[place].joined(blocks[place + 1]), *blocks[place + 2 :])
    extended = (*blocks, look)
    # A block that has only begun is as good as one before it where looks are rare.
    return extended, extended if blocks and blocks[-1].num == 1 else blocks
