"""SCH004 trouble-in-warmup."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.rules.levels import has_level
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
    """The run goes wrong in its first steps, at a rate that was full at once.

    What it detects:
        The rate reached its peak within `short` steps, and in the first `early` steps either the whole model's update
        ratio was above `ratio` (steps of several percent of the weights), or the smoothed loss climbed above its start
        and 20% above its best, and two deviations where they are known. Information at once; a warning after `early`
        steps if the run has not got away since (impaired, with less than 40% of the starting loss gone), its optimiser
        keeps second moments as Adam does, and the loss is still above its start by a deviation of its noise, raised by
        its steps (`Picture.is_upset`), or the model has attention. Never where all update ratios were below 1e-3.

    Why it matters:
        Adam's second moments are estimates from a handful of gradients in the beginning; full steps by such estimates
        can throw a model, attention first, into a region that it does not leave again.

    Evidence:
        `lr` in the first steps, `update/ratio`, `loss`.

    What to do:
        Warm the rate up over some hundreds of steps (2/(1 − β₂) is a rule for Adam), or lower its peak.

    When it is wrong:
        Trouble from the start has other causes too (initialisation, data). With plain SGD a warmup matters less.

    References:
        Liu et al., On the variance of the adaptive learning rate and beyond, ICLR 2020. Ma and Yarats, On the adequacy
        of untuned warmup for adaptive optimization, AAAI 2021 (2/(1 − β₂)).
    """

    code: ClassVar[str] = "SCH004"
    name: ClassVar[str] = "trouble-in-warmup"
    needs: ClassVar[tuple[str, ...]] = ("lr", "loss")
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.WARMUP_TOO_SHORT: (For("it went wrong in the first steps at the full rate"), For(when=When.ALARM)),
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
        picture = look.picture
        if "lr" not in look.scene or not math.isfinite(picture.loss):
            return state, ()
        if not picture.lr <= 1.001 * state.peak:
            state = state._replace(full_at=picture.num_losses)
        state = state._replace(peak=float(np.fmax(state.peak, picture.lr)))
        if picture.num_losses > self.early and state.trouble < 0:
            return state, ()
        if picture.num_losses <= self.early:
            state = self._watched(state, look)
        # Only then is it known that the rate does not rise any more.
        early = picture.num_losses < 2 * self.short
        if early or state.trouble < 0 or state.full_at > self.short or not has_level(look):
            return state, ()
        stays = picture.num_losses > self.early and picture.is_impaired and picture.progress < 0.4
        adaptive = look.scenes.latest("adam/v_ratio") is not None
        # Large first steps are usual in small nets under Adam; it is attention that does not recover from them.
        # Heavy tails move means, not medians; and five losses are a start only up to their noise.
        above = state.climbs and picture.is_upset and picture.loss_median > picture.loss_start + picture.loss_scale
        telling = above or look.scenes.latest("attn/entropy") is not None
        harmless = state.ratio < 1e-3  # such steps throw no model anywhere
        severity = Severity.WARNING if stays and adaptive and telling and not harmless else Severity.INFO
        message = (
            f"{state.what} at step {state.trouble}, with the learning rate at its peak {state.peak:.3g} "
            f"since step {state.full_at}"
        )
        evidence = [Evidence(tag="lr", step=picture.step, value=picture.lr)]
        if math.isfinite(state.ratio):
            evidence.append(Evidence(tag="update/ratio", step=state.trouble, value=state.ratio, expected=1e-2))
        evidence.append(Evidence(tag="loss", step=picture.step, value=picture.loss_smooth, expected=picture.loss_start))
        if severity is Severity.INFO and picture.num_losses > self.early:
            return state, ()
        return state, (Sighting(severity, message, evidence=tuple(evidence), since=state.trouble),)

    def _watched(self, state: TroubleInWarmupState, look: Look) -> TroubleInWarmupState:
        picture = look.picture
        ratio = look.scene.value("update/ratio")
        state = state._replace(ratio=float(np.fmax(state.ratio, ratio)))
        if state.trouble >= 0:
            return state
        # The scale of so few losses, which fall, is that of the fall: a wide band, as it should be in the beginning.
        rise = picture.loss_smooth - picture.loss_best
        climbs = (
            picture.num_losses > 10
            and picture.loss_smooth > picture.loss_start
            and rise
            > max(0.2 * abs(picture.loss_best), 0.0 if math.isnan(picture.loss_scale) else 2 * picture.loss_scale)
        )
        if ratio > self.ratio:
            return state._replace(trouble=picture.step, what=f"update ratio {ratio:.2g}")
        if climbs:
            return state._replace(trouble=picture.step, what=f"loss climbs to {picture.loss_smooth:.4g}", climbs=True)
        return state
