"""LOS011 settles-high."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import amount, count, share
from sonde.rules.history.level import has_level, untrained
from sonde.rules.rule import Against, Cause, Claims, For, Look, Onset, Severity, Sighting
from sonde.rules.step_view import StepViews
from sonde.signals.phases import Phase


class SettlesHighState(NamedTuple):
    """How many evaluations there were, and the latest number of examples of a step."""

    num: int = 0
    batch: float = float("nan")


@dataclass(frozen=True, kw_only=True, slots=True)
class SettlesHigh:
    """A model of few parameters has learned what it can, and most of the loss is left.

    What it detects:
        - Training and validation losses are both above `high` of an untrained model's.
        - Validation is within 10% of training, or of what it was above training at the first evaluation: some
          validation sets are harder than others.
        - Over the last evaluations (at least `still`, 100 steps and a third of the run) validation has changed by less
          than 2%, and the training loss by less than 3% or its noise, at a constant learning rate near its peak.
        - The model has no more than one parameter for `examples` examples between two evaluations. It cannot learn them
          by heart, nor, as it seems, find what they have in common.
        - The number of parameters is that of all measured weights, (norm/RMS)².

    Why it matters:
        More steps, another learning rate or less regularisation will not help: the model can express no more.

    Evidence:
        `loss` and `val/loss` against those of an untrained model; `weight/norm@…` and `weight/rms@…` for the size.

    What to do:
        Use a wider or deeper model, or inputs that say more. If a larger model settles at the same loss, that is the
        noise of the targets, and all there is.

    When it is wrong:
        - A linear model on targets that are mostly noise settles in the same way. Only a larger model can tell.

    References:
        Goodfellow, Bengio and Courville, Deep learning, 2016, section 5.2 (capacity).
    """

    code: ClassVar[str] = "LOS011"
    name: ClassVar[str] = "settles-high"
    onset: ClassVar[Onset] = Onset.BACKDATED
    needs: ClassVar[tuple[str, ...]] = ("loss", "val/loss", "weight/rms@")
    reads: ClassVar[tuple[str, ...]] = ("batch/size", "val/loss")
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.INSUFFICIENT_CAPACITY: For("a model of few parameters has settled at a high loss"),
        Cause.PLATEAU: Against("the model has settled on what it can do"),
        Cause.LABEL_NOISE: Against("a model of few parameters would settle so on any labels"),
    }
    quiet_steps: ClassVar[int] = 10_000

    high: float = 0.6
    still: int = 4
    examples: float = 50.0

    def init(self) -> SettlesHighState:
        """Before the first step."""
        return SettlesHighState()

    def step(self, state: SettlesHighState, look: Look) -> tuple[SettlesHighState, Sequence[Sighting]]:
        """Look at one more step."""
        run, num_before = look.run, state.num
        batch = look.view.value("batch/size") if "batch/size" in look.view else state.batch
        seen = run.evaluations
        state = SettlesHighState(seen.num, batch)
        if seen.num == num_before or seen.num < self.still + 2 or not has_level(look) or run.came_trained:
            return state, ()
        if run.phase in (Phase.WARMUP, Phase.DECAY) or run.lr < 0.9 * run.lr_peak:
            return state, ()
        spans = seen.steps[-1] - np.array(seen.steps)
        num = max(self.still, int((spans < max(100, run.step / 3)).sum()) + 1)
        if num > len(spans) - 2:
            return state, ()
        validations, trainings = np.array(seen.validations[-num:]), np.array(seen.trainings[-num:])
        reference, validation, training = untrained(run), float(validations.mean()), float(trainings.mean())
        error = run.loss_scale * math.sqrt(2 / min(spans[-num], 50))
        falls = float(trainings[: num // 2].mean() - trainings[-(num // 2) :].mean())
        stands = np.ptp(validations) < 0.02 * validation and abs(falls) < max(0.03 * training, 2 * error)
        harder = min(max(seen.first / seen.first_training, 1.0), 1.25)
        alike = 0.9 * training < validation < 1.1 * harder * training
        if not (stands and alike and min(validation, training) > self.high * reference):
            return state, ()
        num_parameters = _num_parameters(look.views)
        num_examples = batch * run.accumulation * (seen.steps[-1] - seen.steps[-2])
        if not 0 < self.examples * num_parameters <= num_examples < math.inf:
            return state, ()
        message = (
            f"a model of {count(num_parameters, 'parameter')} has settled at a loss of {amount(training)}, "
            f"{share(training / reference)} of that of an untrained model, on {count(num_examples, 'example')}"
        )
        evidence = look.evidence("loss", training, reference), look.evidence("val/loss", validation, reference)
        return state, (Sighting(Severity.WARNING, message, evidence=evidence, since=seen.steps[-num]),)


def _num_parameters(views: StepViews) -> float:
    """Of all weights that were measured; NaN where none was."""
    norms, sizes = views.latest("weight/norm"), views.latest("weight/rms")
    if norms is None or sizes is None:
        return math.nan
    by_name = dict(zip(sizes.names, sizes.values.tolist(), strict=True))
    pairs = [(norm, by_name.get(name, 0.0)) for name, norm in zip(norms.names, norms.values.tolist(), strict=True)]
    counts = [(norm / rms) ** 2 for norm, rms in pairs if rms > 0]
    return sum(counts) if counts and len(counts) == len(pairs) else math.nan
