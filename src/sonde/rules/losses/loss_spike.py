"""LOS002 loss-spike."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.causes import Cause
from sonde.core.findings import Evidence, Severity
from sonde.rules.rule import Look, Sighting


class LossSpikeState(NamedTuple):
    """The spike under way: when it began, and what was usual before it."""

    since: int = -1
    usual: float = float("nan")
    scale: float = float("nan")


@dataclass(frozen=True, kw_only=True, slots=True)
class LossSpike:
    """The loss jumps far above its own past.

    What it detects:
        A loss more than `warning` robust standard deviations above the median of the last 128 steps, and at least
        `least_rise` of that median away: z = (L − median)/(1.4826·MAD). Past `critical`, or where it has not come back
        after `patience` steps, it is critical.

    Why it matters:
        A spike throws away what the last hundreds of steps have learned; one that does not come back is a divergence.

    Evidence:
        `loss` against its median; the robust score.

    What to do:
        Look at what moved first: the batch (`batch/absmax@…`), the learning rate (`lr`), the gradient (`grad/norm`).
        Skip the batch, smooth the schedule, or clip the gradient.

    When it is wrong:
        Losses that are spiky by nature (reinforcement learning, adversarial training, tiny batches of very unequal
        examples) have heavy tails: their own history widens the band, but the first spikes of a run may still be
        reported. A curriculum that becomes harder in one step is a spike by this definition.

    References:
        OLMo team, 2 OLMo 2 Furious, 2025 (spike score). Chowdhery et al., PaLM, 2022, section 5.1.
    """

    code: ClassVar[str] = "LOS002"
    name: ClassVar[str] = "loss-spike"
    needs: ClassVar[tuple[str, ...]] = ("loss",)
    causes: ClassVar[tuple[Cause, ...]] = (
        Cause.LR_SPIKE,
        Cause.BAD_BATCH,
        Cause.LR_TOO_HIGH,
        Cause.MISSING_CLIPPING,
        Cause.EXPLODING_GRADIENTS,
    )
    quiet_steps: ClassVar[int] = 50

    warning: float = 6.0
    critical: float = 12.0
    least_rise: float = 0.2
    patience: int = 20

    def init(self) -> LossSpikeState:
        """Before the first step."""
        return LossSpikeState()

    def step(self, state: LossSpikeState, look: Look) -> tuple[LossSpikeState, Sequence[Sighting]]:
        """Look at one more loss."""
        picture = look.picture
        if state.since >= 0:
            above = (picture.loss_smooth - state.usual) / state.scale
            if above < self.warning / 2:
                return LossSpikeState(), ()
        else:
            rise = picture.loss - picture.loss_median
            if not (picture.loss_z > self.warning and rise > self.least_rise * abs(picture.loss_median)):
                return state, ()
            state = LossSpikeState(picture.step, picture.loss_median, picture.loss_scale)
        score = (picture.loss - state.usual) / state.scale
        lasting = picture.step - state.since >= self.patience
        severity = Severity.CRITICAL if lasting or score > self.critical else Severity.WARNING
        message = f"loss {picture.loss:.4g}, {score:.0f} robust deviations above its last 128 steps ({state.usual:.4g})"
        evidence = Evidence(tag="loss", step=picture.step, value=picture.loss, expected=state.usual)
        return state, (Sighting(severity, message, evidence=(evidence,), since=state.since),)
