"""GEN007 validation-without-gain."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.rules.generalisation.evaluations import Evaluations
from sonde.rules.levels import has_level, left
from sonde.rules.losses.loss_plateau import MEANINGS
from sonde.rules.rule import Cause, Claims, Evidence, For, Look, Onset, Severity, Sighting
from sonde.signals import lines
from sonde.signals.stalls import Stall, stall


class ValidationWithoutGainState(NamedTuple):
    """The evaluations since the best one, which is the first of them as long as there is room for all."""

    since: Evaluations = Evaluations()
    best: float = float("inf")
    best_step: int = 0
    best_training: float = float("nan")


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidationWithoutGain:
    """Validation has not improved for many steps.

    What it detects:
        - The best validation loss is `patience_steps` steps old or older. One that is lower by less than `least_gain`
          of it is not a better one.
        - At least `least` evaluations came since.
        - The line through them (the last 32) does not fall by a standard error: the best one may have been luck, and
          the others on their way down.
        - Where both losses are nearly gone, validation below `gone` of the loss at the start, it is silent.
        - Information only: a converged run stands still as well. LOS005 and GEN001 raise the alarms. The kind of
          standstill is told as by LOS005.

    Why it matters:
        So many steps have brought nothing that validation could show: time to change something, or to stop.

    Evidence:
        `val/loss` now and at its best; the training `loss` of both.

    What to do:
        - Training loss fell meanwhile: stop and keep the weights of the best step, or regularise.
        - It did not: decay the learning rate. Stop where that was done.

    When it is wrong:
        Some tasks break through late, long after training has learned its examples by heart. A metric other than the
        loss may go on improving.

    References:
        Prechelt, Early stopping: but when?, 1998. Power et al., Grokking: generalization beyond overfitting on small
        algorithmic datasets, 2022.
    """

    code: ClassVar[str] = "GEN007"
    name: ClassVar[str] = "validation-without-gain"
    onset: ClassVar[Onset] = Onset.BACKDATED
    needs: ClassVar[tuple[str, ...]] = ("loss", "val/loss")
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
        scene, num = look.scene, state.since.num
        state = state._replace(since=state.since.noted(scene))
        if state.since.num == num:
            return state, ()
        now, training = state.since.validations[-1], state.since.trainings[-1]
        if not now >= state.best - self.least_gain * abs(state.best):
            fresh = Evaluations(starts=state.since.starts).taken(scene.step, training, now)
            return ValidationWithoutGainState(fresh, now, scene.step, training), ()
        steps = scene.step - state.best_step
        if steps < self.patience_steps or state.since.num <= self.least:
            return state, ()
        if _falls(state.since) or (look.picture.is_solved and state.best < self.gone * look.picture.loss_start):
            return state, ()
        message = (
            f"validation loss has not been better than {state.best:.4g} (step {state.best_step:,}) for {steps:,} steps "
            f"and {state.since.num - 1} evaluations; training loss {training:.4g}, then {state.best_training:.4g}, "
            f"{MEANINGS[_kind(look)]}"
        )
        evidence = (
            Evidence(tag="val/loss", step=scene.step, value=now, expected=state.best),
            Evidence(tag="loss", step=scene.step, value=training, expected=state.best_training),
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
    picture = look.picture
    share = left(picture) if has_level(look) else math.nan
    kinds = stall(
        np.array([share]), np.array([picture.grad_median / picture.grad_start]), np.array([picture.grad_cosine])
    )
    return Stall(int(kinds[0]))
