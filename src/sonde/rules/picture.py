"""The whole picture of a training, computed once a step for all rules.

"Is progress impaired?" comes before every other question: a symptom in a training that goes well is rarely an alarm.
"""

import statistics
from typing import NamedTuple

import numpy as np

from sonde.rules.scene import Scene
from sonde.signals.ema import Ema, EmaState
from sonde.signals.phases import Phase, Phases, PhasesState
from sonde.signals.plateau import Plateau, PlateauState
from sonde.signals.robust_z import RobustZ, RobustZState

_FIRST = 5
_EVERY = 4
"""Losses between two judgements of whether the loss gets better, over the last 100."""


class Picture(NamedTuple):
    """What is known of a training as a whole at a step; NaN where it cannot be said (yet).

    Attributes:
        step: The training's step.
        num_losses: Finite losses so far.
        loss: Of this step.
        loss_z: Robust score of the loss against the last 128 before it.
        loss_median: Of those 128.
        loss_scale: Robust standard deviation of those 128.
        loss_start: Median of the first five losses.
        loss_smooth: Moving average over about 20 steps, bias-corrected.
        loss_best: The smallest `loss_smooth` so far.
        best_step: When that was.
        improvement_z: How surely the loss fell over the last 100 steps, in standard errors; negative where it rose.
            Asked anew at every fourth loss.
        plateau: Probability that it no longer falls.
        trivial: What a predictor that ignores its input would get (mean entropy of the labels), where it was
            measured.
        lr: Learning rate of the first group.
        lr_peak: The largest so far.
        phase: Of the schedule.
        phase_start: The step at which it began.
        lr_jumped: Whether the rate jumped at this step.
        grad_norm: Before clipping.
        grad_z: Robust score of its logarithm against the last 128 before it.
        grad_median: Of those 128.
        grad_start: Median of the first five.
        grad_cosine: Moving average of the cosine between gradients of neighbouring steps.
        update_cosine: The same of updates.
        ratio: Update ratio ‖Δθ‖/‖θ‖ of the whole model, the latest.
        ratio_peak: The largest so far.
        clip_share: Moving share of steps whose gradient was really clipped; NaN where no clip was ever seen.
        clip_factor: Moving average of the factor.
        val_loss: The latest validation loss.
        val_best: The best so far.
        num_evaluations: So far.
        accumulation: Micro-steps a step, the latest.
    """

    step: int = 0
    num_losses: int = 0
    loss: float = float("nan")
    loss_z: float = float("nan")
    loss_median: float = float("nan")
    loss_scale: float = float("nan")
    loss_start: float = float("nan")
    loss_smooth: float = float("nan")
    loss_best: float = float("nan")
    best_step: int = 0
    improvement_z: float = float("nan")
    plateau: float = float("nan")
    trivial: float = float("nan")
    lr: float = float("nan")
    lr_peak: float = float("nan")
    phase: Phase = Phase.UNKNOWN
    phase_start: int = 0
    lr_jumped: bool = False
    grad_norm: float = float("nan")
    grad_z: float = float("nan")
    grad_median: float = float("nan")
    grad_start: float = float("nan")
    grad_cosine: float = float("nan")
    update_cosine: float = float("nan")
    ratio: float = float("nan")
    ratio_peak: float = float("nan")
    clip_share: float = float("nan")
    clip_factor: float = float("nan")
    val_loss: float = float("nan")
    val_best: float = float("nan")
    num_evaluations: int = 0
    accumulation: float = 1.0

    @property
    def progress(self) -> float:
        """How much of the starting loss is gone, 1 − smooth/start, for losses that start above zero; else NaN."""
        if not self.loss_start > 0:
            return float("nan")
        return 1 - self.loss_smooth / self.loss_start

    @property
    def is_solved(self) -> bool:
        """Whether the loss is nearly gone: small gradients are then success."""
        return self.progress > 0.97 or abs(self.loss_smooth) < 1e-4 * max(abs(self.loss_start), 1e-12)

    @property
    def is_falling(self) -> bool:
        """Whether the loss falls beyond its noise."""
        return self.improvement_z > 2

    @property
    def is_rising(self) -> bool:
        """Whether the loss rises beyond its noise, or has left its start upwards."""
        return self.improvement_z < -3 or self.loss_smooth > 1.5 * abs(self.loss_start) + 1e-12

    @property
    def is_impaired(self) -> bool:
        """Whether the training does not get on: neither solved nor falling, or rising, or no longer finite."""
        return not np.isfinite(self.loss) or self.is_rising or not (self.is_solved or self.is_falling)


class PictureState(NamedTuple):
    """What `Pictures` remembers."""

    picture: Picture
    first_losses: tuple[float, ...]
    first_norms: tuple[float, ...]
    scores: RobustZState
    """Of the loss and of the logarithm of the gradient's norm."""
    averages: EmaState
    """Of the loss, of whether and how hard gradients are clipped, of the two cosines, of the labels' entropy."""
    plateau: PlateauState
    phases: PhasesState


class Pictures:
    """Makes the picture of each step."""

    _z = RobustZ()
    _plateau = Plateau()
    _phases = Phases()
    _slow = Ema(decay=0.95)

    def init(self) -> PictureState:
        """Before the first step."""
        return PictureState(
            Picture(),
            (),
            (),
            self._z.init(2),
            self._slow.init(6),
            self._plateau.init(1),
            self._phases.init(1),
        )

    def step(self, state: PictureState, scene: Scene) -> tuple[PictureState, Picture]:
        """The picture after one more scene."""
        old = state.picture
        loss, norm, lr = scene.value("loss"), scene.value("grad/norm"), scene.value("lr")
        with np.errstate(divide="ignore", invalid="ignore"):
            scores_state, scores = self._z.step(state.scores, np.array([loss, np.log(norm)]))
        factor = scene.value("clip/factor")
        clipped = np.nan if np.isnan(factor) else float(factor < 0.999)
        others = scene.value("grad/cosine"), scene.value("update/cosine"), scene.value("label/entropy")
        averages_state, averages = self._slow.step(state.averages, np.array([loss, clipped, factor, *others]))
        plateau_state, improvement_z, plateau = state.plateau, old.improvement_z, old.plateau
        if np.isfinite(loss):
            plateau_state = self._plateau.take(state.plateau, np.array([loss]))
            if (old.num_losses + 1) % _EVERY == 0:
                judged = self._plateau.judge(plateau_state)
                improvement_z, plateau = float(judged.z[0]), float(judged.plateau[0])
        phase_state, phase = self._phases.step(state.phases, np.array([lr]), scene.step)
        first_losses = _first(state.first_losses, loss)
        first_norms = _first(state.first_norms, norm)
        smooth_loss = float(averages[0])
        is_best = not smooth_loss >= old.loss_best and np.isfinite(smooth_loss)
        val = scene.value("val/loss")
        picture = Picture(
            step=scene.step,
            num_losses=old.num_losses + bool(np.isfinite(loss)),
            loss=loss,
            loss_z=float(scores.z[0]),
            loss_median=float(scores.median[0]),
            loss_scale=float(scores.scale[0]),
            loss_start=_median(first_losses),
            loss_smooth=smooth_loss,
            loss_best=smooth_loss if is_best else old.loss_best,
            best_step=scene.step if is_best else old.best_step,
            improvement_z=improvement_z,
            plateau=plateau,
            trivial=float(averages[5]),
            lr=lr if "lr" in scene else old.lr,
            lr_peak=float(np.fmax(old.lr_peak, lr)),
            phase=Phase(int(phase.phase[0])),
            phase_start=int(phase.start[0]) if np.isfinite(phase.start[0]) else 0,
            lr_jumped=bool(phase.jumped[0]),
            grad_norm=norm,
            grad_z=float(scores.z[1]),
            grad_median=float(np.exp(scores.median[1])),
            grad_start=_median(first_norms),
            grad_cosine=float(averages[3]),
            update_cosine=float(averages[4]),
            ratio=_latest(scene, "update/ratio", old.ratio),
            ratio_peak=float(np.fmax(old.ratio_peak, scene.value("update/ratio"))),
            clip_share=float(averages[1]),
            clip_factor=float(averages[2]),
            val_loss=val if "val/loss" in scene else old.val_loss,
            val_best=float(np.fmin(old.val_best, val)),
            num_evaluations=old.num_evaluations + ("val/loss" in scene),
            accumulation=_latest(scene, "loss/num_micro", old.accumulation),
        )
        new = PictureState(picture, first_losses, first_norms, scores_state, averages_state, plateau_state, phase_state)
        return new, picture


def _first(seen: tuple[float, ...], value: float) -> tuple[float, ...]:
    return (*seen, value) if len(seen) < _FIRST and np.isfinite(value) else seen


def _latest(scene: Scene, tag: str, old: float) -> float:
    return scene.value(tag) if tag in scene else old


def _median(values: tuple[float, ...]) -> float:
    return statistics.median(values) if values else float("nan")
