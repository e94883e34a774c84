"""UPD001 updates-too-large."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import amount, share
from sonde.rules.history.new_weights import LATEST
from sonde.rules.history.progress import is_lost, is_stuck
from sonde.rules.history.run_summary import RunSummary
from sonde.rules.layer_depth import latest_matrices, latest_typical
from sonde.rules.rule import Against, Cause, Claims, For, Look, Severity, Sighting, When


class UpdatesTooLargeState(NamedTuple):
    """The largest typical ratio so far, when, and measurements in a row above the limit."""

    peak: float = 0.0
    peak_step: int = -1
    num_looks: int = 0
    since: int = -1
    begun: int = -1
    """The first step, as long as no measured one was small and the learning rate is what it was then; else −1."""
    rate: float = float("nan")
    """Then."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdatesTooLarge:
    """Steps change the weights by far more than a step should, in most layers.

    What it detects:
        - The median over weight matrices of ‖Δθ‖/‖θ‖ is above `limit`, or above ten times the usual maximum at that
          age, at `num_looks` measurements in a row. The usual maximum is 1e-2 in the first 1,000 steps, 1e-3 up to
          10,000 and 1e-4 later, in proportion to the learning rate over its peak. This is information.
        - So it is if, in the first three steps of a training with one optimiser, Adam's learning rate is above half of
          the median RMS of the weight matrices.
        - It is a warning if the loss is far above its start and updates were above half of `limit` (above `limit` if
          the loss was ever below zero).
        - It is a warning if updates were above `limit` in the last 200 steps, and the loss is stuck or clearly rises.
          That can be said after 100 losses, or after 40 if updates were above twice `limit`.
        - Updates that the loss has survived do not count: if the loss finds a new best, a tenth below its start, more
          than `survived` steps later, they are forgotten.
        - It began with the run if no measured update was small and the learning rate is what it was at first.

    Why it matters:
        A step of a tenth of the weights is not small: the gradient does not hold that far, and the loss jumps.

    Evidence:
        `update/ratio@…` and its median over weight matrices; `lr`.

    What to do:
        Divide the learning rate by 5, or by 10 if the loss has exploded. If it happened in the first steps, lengthen
        the warmup.

    When it is wrong:
        - Weights that start at or near zero have large ratios at first.
        - Adam's first steps are large in small models. Neither is more than information as long as the loss falls.

    References:
        Karpathy, A recipe for training neural networks, 2019 (ratios about 1e-3).
    """

    code: ClassVar[str] = "UPD001"
    name: ClassVar[str] = "updates-too-large"
    needs: ClassVar[tuple[str, ...]] = ("update/ratio@",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.LR_TOO_HIGH: (
            For("steps change most layers by far too much"),
            For("steps were too large before the loss climbed", when=When.FIRST),
            For(when=When.ALARM),
        ),
        Cause.WARMUP_TOO_SHORT: For(),
        Cause.EXPLODING_GRADIENTS: (For(), Against("steps were too large before the gradient grew", when=When.FIRST)),
        Cause.WRONG_LOSS_REDUCTION: For(),
        Cause.BATCH_TOO_SMALL: For(),
        Cause.ATTENTION_LOGIT_GROWTH: (
            Against("too large steps explain it", when=When.ALARM),
            Against("steps are too large in most layers: that explains it"),
            Against("steps were too large in most layers before", when=When.FIRST),
        ),
        Cause.BAD_INITIALISATION: Against(when=When.FIRST),
        Cause.ACTIVATION_EXPLOSION: (Against("too large steps made activations grow", when=When.FIRST), Against()),
        Cause.GAIN_DRIFT: Against(when=When.ALARM),
        Cause.MISSING_CLIPPING: Against("steps were too large before", when=When.FIRST),
        Cause.NO_LEARNABLE_SIGNAL: Against("steps are too large to learn"),
        Cause.OUTPUT_LOGIT_DRIFT: Against("too large steps explain it", when=When.ALARM),
        Cause.PRECISION_OVERFLOW: Against("too large steps explain it"),
        Cause.ATTENTION_ENTROPY_COLLAPSE: Against("steps are too large in most layers: that explains it"),
        Cause.WEIGHT_NORM_JUMP: Against("steps were too large in most layers"),
        Cause.DEAD_UNITS: Against("too large steps killed units", when=When.ALARM),
        Cause.EMBEDDING_NORM_GROWTH: Against("too large steps explain it", when=When.ALARM),
        Cause.CLIP_TOO_AGGRESSIVE: Against(),
        Cause.LR_TOO_LOW: Against(),
    }
    quiet_steps: ClassVar[int] = 200
    guide: ClassVar[str] = "explosion"

    limit: float = 0.1
    num_looks: int = 3
    survived: int = 20

    def init(self) -> UpdatesTooLargeState:
        """Before the first step."""
        return UpdatesTooLargeState()

    def step(self, state: UpdatesTooLargeState, look: Look) -> tuple[UpdatesTooLargeState, Sequence[Sighting]]:
        """Look at the tensors whose turn it is, and at the loss at every step."""
        run = look.run
        if math.isnan(state.rate) and math.isfinite(run.lr):
            state = state._replace(begun=look.view.step, rate=run.lr)
        if run.lr != state.rate:
            state = state._replace(begun=-1)
        layers = latest_matrices(look.views, "update/ratio")
        if layers is None or not layers.names:
            return state, self._by_rate(look)
        ratio = latest_typical(look.views, "update/ratio")
        survived = run.best_step > state.peak_step + self.survived and run.loss_best < 0.9 * run.loss_start
        if state.peak and survived:
            state = state._replace(peak=0.0)
        if math.isfinite(ratio) and look.view.layers("update/ratio") is not None:
            high = ratio > min(self.limit, 10 * phase_ceiling(run))
            state = UpdatesTooLargeState(
                max(state.peak, ratio),
                look.view.step if ratio > state.peak else state.peak_step,
                state.num_looks + 1 if high else 0,
                (state.since if state.num_looks else look.view.step) if high else state.since,
                state.begun if high else -1,
                state.rate,
            )
        # Half is enough where the loss itself has gone: small models take their largest steps between two looks.
        # Not so of one that was ever below zero, as those of policies are.
        enough = self.limit if run.loss_low < 0 else self.limit / 2
        hurt = (is_lost(run) and state.peak > enough) or (
            state.peak > self.limit
            and look.view.step - state.peak_step <= 200
            and (is_stuck(run, soon=state.peak > 2 * self.limit) or (run.is_alone and run.improvement_z < -3))
        )
        if not hurt and state.num_looks < self.num_looks:
            return state, ()
        severity = Severity.WARNING if hurt else Severity.INFO
        size = f"{share(state.peak)} of" if state.peak < 1 else f"{amount(state.peak)} times"
        message = f"a step changed weight matrices by up to {size} their norm (median)"
        if math.isfinite(run.lr):
            message += f", at a learning rate of {amount(run.lr)}"
        if hurt:
            message += f"; the loss is {amount(run.loss_smooth)} and began at {amount(run.loss_first)}"
        place = int(np.nanargmax(layers.values)) if math.isfinite(ratio) else 0
        name, value = layers.names[place], float(layers.values[place])
        evidence = look.evidence(f"update/ratio@{name}", value, 1e-3)
        since = state.begun if state.begun >= 0 else state.peak_step if hurt else state.since
        return state, (Sighting(severity, message, where=(name,), evidence=(evidence,), since=since),)

    def _by_rate(self, look: Look) -> Sequence[Sighting]:
        """Before any update was measured: Adam's first step moves each weight by about the learning rate."""
        if look.view.step > LATEST or not (look.run.beta2 > 0 and look.run.is_alone):
            return ()
        rate, typical = look.run.lr, latest_typical(look.views, "weight/rms")
        if not rate > 0.5 * typical > 0:
            return ()
        message = (
            f"the learning rate of {amount(rate)} moves each weight by about as much in the first step, "
            f"and weight matrices have an RMS of {amount(typical)} (median) after it"
        )
        return (Sighting(Severity.INFO, message, evidence=(look.evidence("lr", rate, 0.1 * typical),)),)


def phase_ceiling(run: RunSummary) -> float:
    """The upper end of healthy ratios by the number of steps, times η/η_peak [D6]."""
    ceiling = 1e-2 if run.step <= 1_000 else 1e-3 if run.step <= 10_000 else 1e-4
    scale = run.lr / run.lr_peak if run.lr_peak > 0 and math.isfinite(run.lr) else 1.0
    return ceiling * float(np.clip(scale, 0.01, 1.0))
