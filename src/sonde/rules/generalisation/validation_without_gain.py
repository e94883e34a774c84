"""GEN007 validation-without-gain."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import amount, count
from sonde.rules.history.evaluations import Evaluations
from sonde.rules.history.level import has_level, left
from sonde.rules.losses.loss_plateau import MEANINGS
from sonde.rules.rule import Cause, Claims, Evidence, For, Look, Onset, Severity, Sighting
from sonde.signals import lines
from sonde.signals.stalls import Stall, stall


class ValidationWithoutGainState(NamedTuple):
    """All evaluations by number, and those since the best one, the first of them as long as there is room."""

    num: int = 0
    since: Evaluations = Evaluations()
    best: float = float("inf")
    best_step: int = 0
    best_training: float = float("nan")


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidationWithoutGain:
    """The validation loss has not improved for many steps.

    What it detects:
        - The best validation loss is at least `patience_steps` steps old. A loss that is lower by less than
          `least_gain` of it does not count as better.
        - At least `least` evaluations came since then.
        - The line through the last 32 of them does not fall by a standard error. The best loss may have been luck, and
          the others may still be on their way down.
        - Nothing is said if both losses are nearly gone: validation below `gone` of the loss at the start.
        - Always information, because a run that has converged stands still as well. LOS005 and GEN001 raise the alarms.

    Why it matters:
        So many steps have brought nothing that validation could show. It is time to change something, or to stop.

    Evidence:
        `val/loss` now and at its best; the training `loss` of both.

    What to do:
        - The training loss fell meanwhile: stop and keep the weights of the best step, or regularise.
        - The training loss did not fall: decay the learning rate. If it has decayed already, stop.

    When it is wrong:
        - Some tasks are learned late, long after training has learned its examples by heart.
        - A metric other than the loss may go on improving.

    References:
        Prechelt, Early stopping: but when?, 1998. Power et al., Grokking: generalization beyond overfitting on small
        algorithmic datasets, 2022.
    """

    code: ClassVar[str] = "GEN007"
    name: ClassVar[str] = "validation-without-gain"
    onset: ClassVar[Onset] = Onset.BACKDATED
    needs: ClassVar[tuple[str, ...]] = ("loss", "val/loss")
    reads: ClassVar[tuple[str, ...]] = ("val/loss",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.PLATEAU: For("validation has not improved for long"),
    }
    quiet_steps: ClassVar[int] = 20_000

    patience_steps: int = 10_000
    least: int = 5
    least_gain: float = 1e-3
    gone: float = 0.03

    def init(self) -> ValidationWithoutGainState:
        """Before the first step."""
        return ValidationWithoutGainState()

    def step(
        self, state: ValidationWithoutGainState, look: Look
    ) -> tuple[ValidationWithoutGainState, Sequence[Sighting]]:
        """Look at one more step."""
        view, seen = look.view, look.run.evaluations
        if seen.num == state.num:
            return state, ()
        now, training = seen.validations[-1], seen.trainings[-1]
        if not now >= state.best - self.least_gain * abs(state.best):
            fresh = Evaluations().taken(view.step, training, now)
            return ValidationWithoutGainState(seen.num, fresh, now, view.step, training), ()
        state = state._replace(num=seen.num, since=state.since.taken(view.step, training, now))
        steps = view.step - state.best_step
        if steps < self.patience_steps or state.since.num <= self.least:
            return state, ()
        if _falls(state.since) or (look.run.is_solved and state.best < self.gone * look.run.loss_start):
            return state, ()
        kind = _kind(look)
        message = (
            f"the validation loss has not been better than {amount(state.best)} (step {state.best_step:,}) for "
            f"{count(steps, 'step')} and {count(state.since.num - 1, 'evaluation')}; the training loss was "
            f"{amount(state.best_training)} then and is {amount(training)} now"
        )
        message += "" if kind is Stall.UNKNOWN else f"; the training loss is {MEANINGS[kind]}"
        evidence = (
            Evidence(tag="val/loss", step=view.step, value=now, expected=state.best),
            Evidence(tag="loss", step=view.step, value=training, expected=state.best_training),
        )
        return state, (Sighting(Severity.INFO, message, evidence=evidence, since=state.best_step),)


def _falls(since: Evaluations) -> bool:
    """Whether evaluations fall beyond their noise; the best one, from which all others rise, left out."""
    skip = 1 if since.num == len(since.validations) else 0
    values = np.array(since.validations[skip:])
    line = lines.fit(np.array(since.steps[skip:], np.float64)[None], values[None])
    return bool(line.slope[0] < -line.slope_error[0])


def _kind(look: Look) -> Stall:
    """Of the standstill, as far as the training's own loss and gradients tell."""
    run = look.run
    share = left(run) if has_level(look) else math.nan
    kinds = stall(np.array([share]), np.array([run.grad_median / run.grad_start]), np.array([run.grad_cosine]))
    return Stall(int(kinds[0]))
