"""SCH004 trouble-in-warmup."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import amount, share
from sonde.rules.history.level import has_level
from sonde.rules.rule import Cause, Claims, Evidence, For, Look, Severity, Sighting, When


class TroubleInWarmupState(NamedTuple):
    """The peak of the rate, the largest update ratio, and the trouble with its step."""

    full_at: int = -1
    """The step at which the rate came to its peak so far."""
    peak: float = float("nan")
    ratio: float = float("nan")
    trouble: int = -1
    what: str = ""
    climbs: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class TroubleInWarmup:
    """The run goes wrong in its first steps, at the full learning rate.

    What it detects:
        - The learning rate reached its peak within `short` steps.
        - In the first `early` steps, updates of the whole model were above `ratio` of the weights; or the smoothed loss
          rose above its start, by 20% above its best, and by two deviations if its noise is known. This is information.
        - It is a warning after `early` steps if less than 40% of the first loss is gone and the loss does not fall, the
          optimiser keeps second moments as Adam does, and one of two things is so: the model has attention; or the loss
          is above its start by a deviation of its noise, and the optimiser's steps raised it.
        - It is never a warning if all updates were below 0.1% of the weights.

    Why it matters:
        At first, Adam's second moments are estimates from a handful of gradients. Full steps by such estimates can
        throw a model, attention first, into a region that it does not leave again.

    Evidence:
        `lr` in the first steps, `update/ratio`, `loss`.

    What to do:
        Warm the learning rate up over some hundreds of steps (2/(1 − β₂) is a rule for Adam), or lower its peak.

    When it is wrong:
        - Trouble from the start has other causes too, such as initialisation and data.
        - With plain SGD a warmup matters less.

    References:
        Liu et al., On the variance of the adaptive learning rate and beyond, ICLR 2020. Ma and Yarats, On the adequacy
        of untuned warmup for adaptive optimization, AAAI 2021 (2/(1 − β₂)).
    """

    code: ClassVar[str] = "SCH004"
    name: ClassVar[str] = "trouble-in-warmup"
    needs: ClassVar[tuple[str, ...]] = ("lr", "loss")
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.WARMUP_TOO_SHORT: (For("the first steps at the full learning rate went wrong"), For(when=When.ALARM)),
        Cause.LR_TOO_HIGH: For(),
    }
    quiet_steps: ClassVar[int] = 100
    guide: ClassVar[str] = "loss-spike"

    short: int = 20
    early: int = 100
    ratio: float = 0.05

    def init(self) -> TroubleInWarmupState:
        """Before the first step."""
        return TroubleInWarmupState()

    def step(self, state: TroubleInWarmupState, look: Look) -> tuple[TroubleInWarmupState, Sequence[Sighting]]:
        """Look at one more step."""
        run = look.run
        if "lr" not in look.view or not math.isfinite(run.loss):
            return state, ()
        if not run.lr <= 1.001 * state.peak:
            state = state._replace(full_at=run.num_losses)
        if run.lr > state.peak or math.isnan(state.peak):
            state = state._replace(peak=run.lr)
        if run.num_losses > self.early and state.trouble < 0:
            return state, ()
        if run.num_losses <= self.early:
            state = self._watched(state, look)
        # Only then is it known that the rate does not rise any more.
        early = run.num_losses < 2 * self.short
        if early or state.trouble < 0 or state.full_at > self.short or not has_level(look):
            return state, ()
        stays = run.num_losses > self.early and run.is_impaired and run.progress < 0.4
        adaptive = look.views.latest("adam/v_ratio") is not None
        # Large first steps are usual in small nets under Adam; it is attention that does not recover from them.
        # Heavy tails move means, not medians; and five losses are a start only up to their noise.
        above = state.climbs and run.is_upset and run.loss_median > run.loss_start + run.loss_scale
        telling = above or look.views.latest("attn/entropy") is not None
        harmless = state.ratio < 1e-3  # such steps throw no model anywhere
        severity = Severity.WARNING if stays and adaptive and telling and not harmless else Severity.INFO
        message = (
            f"{state.what} at step {state.trouble}, with the learning rate at its peak "
            f"({amount(state.peak)}) since step {state.full_at}"
        )
        evidence = [look.evidence("lr", run.lr)]
        if math.isfinite(state.ratio):
            evidence.append(Evidence(tag="update/ratio", step=state.trouble, value=state.ratio, expected=1e-2))
        evidence.append(look.evidence("loss", run.loss_smooth, run.loss_start))
        if severity is Severity.INFO and run.num_losses > self.early:
            return state, ()
        return state, (Sighting(severity, message, evidence=tuple(evidence), since=state.trouble),)

    def _watched(self, state: TroubleInWarmupState, look: Look) -> TroubleInWarmupState:
        run = look.run
        ratio = look.view.value("update/ratio")
        state = state._replace(ratio=float(np.fmax(state.ratio, ratio)))
        if state.trouble >= 0:
            return state
        # The scale of so few losses, which fall, is that of the fall: a wide band, as it should be in the beginning.
        rise = run.loss_smooth - run.loss_best
        climbs = (
            run.num_losses > 10
            and run.loss_smooth > run.loss_start
            and rise > max(0.2 * abs(run.loss_best), 0.0 if math.isnan(run.loss_scale) else 2 * run.loss_scale)
        )
        if ratio > self.ratio:
            return state._replace(trouble=run.step, what=f"weights changed by {share(ratio)} of their norm")
        if climbs:
            what = f"the loss rose to {amount(run.loss_smooth)}"
            return state._replace(trouble=run.step, what=what, climbs=True)
        return state
