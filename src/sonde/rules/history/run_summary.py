"""What is known of a training as a whole, computed once a step for all rules.

"Is progress impaired?" comes before every other question: a symptom in a training that goes well is rarely an alarm.
"""

import math
import statistics
from typing import NamedTuple

import numpy as np

from sonde.rules.history.block_means import BlockMeans, line_through
from sonde.rules.history.descent import Descent
from sonde.rules.history.disturbance import Disturbance
from sonde.rules.history.epochs import Epochs
from sonde.rules.history.evaluations import Evaluations
from sonde.rules.history.first_epoch import FirstEpoch
from sonde.rules.history.new_weights import fresh_share
from sonde.rules.history.targets import Targets
from sonde.rules.step_view import StepView
from sonde.signals.ema import Ema
from sonde.signals.phases import Phase, Phases, PhasesState
from sonde.signals.plateau import Plateau, PlateauState
from sonde.signals.robust_z import RobustZ, RobustZState

_FIRST = 5
_PHASES = tuple(Phase)
_JUDGED = 100
_LEFT_OUT = 4  # blocks of two losses: with wider ones there are too few in 40 to know their noise by
_LEAST_BLOCKS = 16
_EVERY = 4
"""Losses between two judgements of whether the loss gets better, over the last 100."""


class RunSummary(NamedTuple):
    """What is known of a training as a whole at a step; NaN where it cannot be said (yet).

    Attributes:
        step: The training's step.
        num_losses: Finite losses so far.
        loss: Of this step.
        loss_z: Robust score of the loss against the last 128 before it.
        loss_median: Of those 128.
        loss_scale: Robust standard deviation of those 128.
        loss_first: The first one.
        loss_start: Median of the first five losses: what is judged by, since one alone may be anything.
        loss_smooth: Moving average over about 20 steps, bias-corrected.
        loss_best: The smallest `loss_smooth` so far.
        best_step: When that was.
        loss_low: The smallest loss so far, as it is.
        improvement_z: How surely the loss fell over the last 100 steps, in standard errors; negative where it rose.
            Asked anew at every fourth loss.
        plateau: Probability that it no longer falls.
        most_gone: The largest share of the starting loss that may have gone since the eighth loss without its noise
            showing it (by the line through all since then); from 40 to 100 losses only, while `improvement_z` cannot be
            asked yet.
        trivial: What a predictor that ignores its input would get: by the targets in the loss's own graph
            (`loss/relative`), in its units; else the mean entropy of the labels, where it was measured and the loss
            is about these labels (`targets.py`), as far as that is known.
        shares: The loss over what the best constant answer would cost on the very same targets (`loss/relative`), at
            the looks at it.
        log_z: Mean log of the softmax's normaliser in the first five steps, where the loss is a cross-entropy.
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
        ratio_start: The first one above 0.
        ratio_peak: The largest so far.
        travelled: Sum of the ratios of all steps so far: how far the weights can have come, in units of their norm. NaN
            where none was measured.
        clip_share: Moving share of steps whose gradient was really clipped; NaN where no clip was ever seen.
        clip_factor: Moving average of the factor.
        is_upset: Whether what the optimiser did since the loss was at its best can have raised it (`disturbance.py`).
        is_moved: Whether the loss has risen beyond its noise without that, ever.
        val_loss: The latest validation loss.
        val_first: The first of them.
        val_best: The best so far.
        num_evaluations: So far.
        accumulation: Micro-steps a step, the latest.
        batch: Examples of a micro-step, the latest.
        weight_decay: Of the optimisers' groups, the largest of the latest ones.
        beta2: The decay of their running squares, where they keep some, likewise.
        is_alone: Whether there is one optimiser only, and nobody else trains what the loss passes through (the fact
            `other-player`). Several may be players of a game, whose losses and steps rise and fall with each other's.
        fresh: The share of linear and convolutional layers whose first weights look newly made; NaN where unknown.
        width: How wide the layers inside of the model are, where the run has a model table.
        losses: All of them, as means of blocks.
        descent: How straight the smoothed loss comes down.
        evaluations: Validation losses, each with the training loss of its time.
        epochs: The losses of whole epochs.
        first_epoch: The losses and learning rates of the first one.
        acts: Whether the model seems to make what it is trained on (the fact `acts`), as in reinforcement learning.
    """

    step: int = 0
    num_losses: int = 0
    loss: float = float("nan")
    loss_z: float = float("nan")
    loss_median: float = float("nan")
    loss_scale: float = float("nan")
    loss_first: float = float("nan")
    loss_start: float = float("nan")
    loss_smooth: float = float("nan")
    loss_best: float = float("nan")
    best_step: int = 0
    loss_low: float = float("nan")
    improvement_z: float = float("nan")
    plateau: float = float("nan")
    most_gone: float = float("nan")
    trivial: float = float("nan")
    shares: BlockMeans = BlockMeans(width=1)
    log_z: float = float("nan")
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
    ratio_start: float = float("nan")
    ratio_peak: float = float("nan")
    travelled: float = float("nan")
    is_upset: bool = True
    is_moved: bool = False
    clip_share: float = float("nan")
    clip_factor: float = float("nan")
    val_loss: float = float("nan")
    val_first: float = float("nan")
    val_best: float = float("nan")
    num_evaluations: int = 0
    accumulation: float = 1.0
    batch: float = float("nan")
    weight_decay: float = float("nan")
    beta2: float = float("nan")
    is_alone: bool = True
    acts: bool = False
    fresh: float = float("nan")
    width: int | None = None
    losses: BlockMeans = BlockMeans()
    descent: Descent = Descent()
    evaluations: Evaluations = Evaluations()
    epochs: Epochs = Epochs()
    first_epoch: FirstEpoch = FirstEpoch()

    @property
    def progress(self) -> float:
        """How much of the starting loss is gone, 1 − smooth/start, for losses that start above zero; else NaN."""
        if not self.loss_start > 0:
            return float("nan")
        return 1 - self.loss_smooth / self.loss_start

    @property
    def came_trained(self) -> bool:
        """Whether the model knew its task when the run began, as in fine-tuning: it beat guessing by far.

        Guessing gives the entropy of the labels. Or the right class of a cross-entropy had most of the normaliser
        already, since a new model's loss is about log Z; not where guessing is known to be better still, which large
        logits of any size can be.
        """
        has_share = self.loss_start < 0.5 * self.log_z and not self.loss_start > self.trivial
        return self.loss_start < 0.7 * self.trivial or has_share

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
    def is_measure(self) -> bool:
        """Whether the loss can tell how training goes: not where it rose by something else than the optimiser's steps.

        Data that become harder, a term that is faded in, another player, returns that grow with the policy: then its
        level says nothing, unless the steps have gone wrong as well. Nor is one that was ever below zero: where its
        zero lies is not known, and so no share of it.
        """
        return not self.loss_low < 0 and (self.is_upset or not self.is_moved)

    @property
    def is_thriving(self) -> bool:
        """Whether the loss falls beyond its noise, or has lost a fifth of its start and is as low as it ever was.

        As low, that is by a tenth of what it gained, and by a third of itself unless it is nearly gone.
        """
        gained, rise = self.loss_start - self.loss_best, self.loss_smooth - self.loss_best
        near = self.is_solved or rise < 0.35 * abs(self.loss_best)
        return self.is_falling or (self.progress > 0.2 and rise < 0.1 * gained and near)

    @property
    def is_impaired(self) -> bool:
        """Whether the training does not get on: neither solved nor falling, or rising, or no longer finite."""
        return not math.isfinite(self.loss) or self.is_rising or not (self.is_solved or self.is_falling)


class RunSummaryState(NamedTuple):
    """What `RunSummaries` remembers."""

    run: RunSummary
    first_losses: tuple[float, ...]
    first_norms: tuple[float, ...]
    scores: RobustZState
    """Of the loss and of the logarithm of the gradient's norm."""
    followed: tuple[tuple[float, int, float], ...]
    """Moving averages, as `Ema.one` gives them: of the loss, of whether and how hard gradients are clipped, of the two
    cosines, of the labels' entropy, and of what guessing gives."""
    plateau: PlateauState
    phases: PhasesState
    first_hundred: BlockMeans
    """The first 100 losses."""
    disturbance: Disturbance
    targets: Targets


class RunSummaries:
    """Makes the summary at each step."""

    _z = RobustZ()
    _plateau = Plateau()
    _phases = Phases()
    _slow = Ema(decay=0.95)

    def init(self) -> RunSummaryState:
        """Before the first step."""
        return RunSummaryState(
            RunSummary(),
            (),
            (),
            self._z.init(2),
            ((0.0, 0, math.nan),) * 7,
            self._plateau.init(1),
            self._phases.init(1),
            BlockMeans(width=2),
            Disturbance(),
            Targets(),
        )

    def step(self, state: RunSummaryState, view: StepView) -> tuple[RunSummaryState, RunSummary]:
        """With one more step."""
        old = state.run
        loss, norm, lr = view.value("loss"), view.value("grad/norm"), view.value("lr")
        log_norm = math.log(norm) if norm > 0 else math.nan
        scores_state, scores = self._z.step(state.scores, np.array([loss, log_norm]))
        (loss_z, grad_z), (loss_median, grad_median) = scores.z.tolist(), scores.median.tolist()
        factor = view.value("clip/factor")
        clipped = math.nan if math.isnan(factor) else float(factor < 0.999)
        others = view.value("grad/cosine"), view.value("update/cosine"), view.value("label/entropy"), _guess(view)
        followed = tuple(
            self._slow.one(value, *before[:2]) if math.isfinite(value) else before
            for value, before in zip((loss, clipped, factor, *others), state.followed, strict=True)
        )
        averages = [average for _, _, average in followed]
        plateau_state, improvement_z, plateau = state.plateau, old.improvement_z, old.plateau
        if math.isfinite(loss):
            plateau_state = self._plateau.take(state.plateau, np.array([loss]))
            if (old.num_losses + 1) % _EVERY == 0:
                judged = self._plateau.judge(plateau_state)
                improvement_z, plateau = float(judged.z[0]), float(judged.plateau[0])
        first_hundred, most_gone = state.first_hundred, math.nan
        if first_hundred.num_values < _JUDGED:
            first_hundred = first_hundred.extended(loss)
            most_gone = _most_fall(first_hundred.means[_LEFT_OUT:]) / old.loss_start if old.loss_start > 0 else math.nan
        phase_state, phase = self._phases.step(state.phases, np.array([lr]), view.step)
        first_losses = _first(state.first_losses, loss)
        first_norms = _first(state.first_norms, norm)
        smooth_loss = averages[0]
        is_best = not smooth_loss >= old.loss_best and math.isfinite(smooth_loss)
        val = view.value("val/loss")
        ratio = view.value("update/ratio")
        start_norm = old.grad_start if first_norms is state.first_norms else _median(first_norms)
        usual_norm = max(math.exp(grad_median), start_norm) if math.isfinite(grad_median) else start_norm
        loss_start = old.loss_start if first_losses is state.first_losses else _median(first_losses)
        rise = max(1.0, smooth_loss / loss_start) if loss_start > 0 else 1.0
        disturbance = state.disturbance.after(view, usual_norm, rise=rise, is_best=is_best)
        targets = state.targets.after(view)
        scale = scores.scale.item(0)
        rises = improvement_z < -5 or smooth_loss - loss_start > max(3 * scale, 0.2 * abs(loss_start))
        given_back = smooth_loss > max(2 * old.loss_best, 0.5 * (loss_start + old.loss_best))
        rises = rises or (old.loss_best > 0 and given_back and smooth_loss - old.loss_best > 2 * scale)
        num_losses = old.num_losses + math.isfinite(loss)
        run = RunSummary(
            step=view.step,
            num_losses=num_losses,
            loss=loss,
            loss_z=loss_z,
            loss_median=loss_median,
            loss_scale=scale,
            loss_first=first_losses[0] if first_losses else math.nan,
            loss_start=loss_start,
            loss_smooth=smooth_loss,
            loss_best=smooth_loss if is_best else old.loss_best,
            best_step=view.step if is_best else old.best_step,
            loss_low=-_largest(-old.loss_low, -loss),
            improvement_z=improvement_z,
            plateau=plateau,
            most_gone=most_gone,
            trivial=averages[6] if averages[6] > 0 else averages[5] if targets.are_labels else math.nan,
            shares=old.shares.extended(view.value("loss/relative")),
            log_z=view.value("logits/log_z") if math.isnan(old.log_z) and old.num_losses < _FIRST else old.log_z,
            lr=lr if "lr" in view else old.lr,
            lr_peak=_largest(old.lr_peak, lr),
            phase=_PHASES[phase.phase.item()],
            phase_start=phase.start.item(),
            lr_jumped=phase.jumped.item(),
            grad_norm=norm,
            grad_z=grad_z,
            grad_median=math.exp(grad_median),
            grad_start=start_norm,
            grad_cosine=averages[3],
            update_cosine=averages[4],
            ratio=_latest(view, "update/ratio", old.ratio),
            ratio_start=ratio if math.isnan(old.ratio_start) and ratio > 0 else old.ratio_start,
            ratio_peak=_largest(old.ratio_peak, ratio),
            travelled=_sum(old.travelled, _latest(view, "update/ratio", old.ratio)),
            is_upset=disturbance.is_there,
            is_moved=old.is_moved or (rises and not disturbance.is_there),
            clip_share=averages[1],
            clip_factor=averages[2],
            val_loss=val if "val/loss" in view else old.val_loss,
            val_first=old.val_first if math.isfinite(old.val_first) else val,
            val_best=-_largest(-old.val_best, -val),
            num_evaluations=old.num_evaluations + ("val/loss" in view),
            accumulation=_latest(view, "loss/num_micro", old.accumulation),
            batch=_latest(view, "batch/size", old.batch),
            weight_decay=_of_groups(view, "optimizer/weight_decay", old.weight_decay),
            beta2=_of_groups(view, "optimizer/beta2", old.beta2),
            is_alone=old.is_alone and view.layers("grad/norm_applied") is None and not _is_said(view, "other-player"),
            acts=old.acts or _is_said(view, "acts"),
            fresh=fresh_share(view) if math.isnan(old.fresh) else old.fresh,
            width=old.width if view.kinds.model is None else view.kinds.model.width,
            losses=old.losses.extended(loss),
            descent=old.descent.after(num_losses, smooth_loss),
            evaluations=old.evaluations.noted(view),
            epochs=old.epochs.noted(view),
            first_epoch=old.first_epoch.after(view),
        )
        new = RunSummaryState(
            run,
            first_losses,
            first_norms,
            scores_state,
            followed,
            plateau_state,
            phase_state,
            first_hundred,
            disturbance,
            targets,
        )
        return new, run


def _guess(view: StepView) -> float:
    """What the best constant answer would cost in the units of the loss; NaN where that was not measured."""
    share = view.value("loss/relative")
    return view.value("loss") / share if share > 0 else math.nan


def _is_said(view: StepView, check: str) -> bool:
    return any(fact.kind == "preflight" and fact.data.get("check") == check for fact in view.facts)


def _most_fall(means: tuple[float, ...]) -> float:
    """The fall of the line through some blocks, where it falls, and two standard errors; NaN below 16 blocks."""
    if len(means) < _LEAST_BLOCKS:
        return math.nan
    slope, error = line_through(means)
    return (max(-slope, 0.0) + 2 * error) * len(means)


def _first(seen: tuple[float, ...], value: float) -> tuple[float, ...]:
    return (*seen, value) if len(seen) < _FIRST and math.isfinite(value) else seen


def _largest(old: float, new: float) -> float:
    """The larger one, or the one that is not NaN."""
    return new if new > old or math.isnan(old) else old


def _sum(old: float, new: float) -> float:
    """Of two numbers, of which either may not be known."""
    return old if math.isnan(new) else new if math.isnan(old) else old + new


def _latest(view: StepView, tag: str, old: float) -> float:
    return view.value(tag) if tag in view else old


def _of_groups(view: StepView, path: str, old: float) -> float:
    groups = view.layers(path)
    return old if groups is None else float(groups.values.max())


def _median(values: tuple[float, ...]) -> float:
    return statistics.median(values) if values else float("nan")
