"""What a loss is like, at the scale of steps, of epochs and of phases of the learning rate."""

import math
from collections.abc import Mapping
from typing import Any, final

from sonde.config.schema import LossConfig
from sonde.signals.ema import Ema
from sonde.signals.moments import Moments
from sonde.signals.phase_losses import PhaseLosses, PhaseOut
from sonde.signals.segments import Segment, SegmentMoments, moments, with_value
from sonde.signals.states import dump, load


@final
class LossSeries:
    """Follows the loss of a training, in the order of steps.

    Args:
        settings: How it is smoothed.
    """

    def __init__(self, settings: LossConfig) -> None:
        self._is_smoothed = settings.ema
        self._ema, self._moments, self._phases = Ema(decay=settings.decay), Moments(decay=settings.decay), PhaseLosses()
        self._smooth: tuple[float, int] = 0.0, 0
        self._spread: tuple[float, ...] = (0.0,) * 5 + (0,)
        """As `EmaState` and `MomentsState` have them, of one tag."""
        self._last = self._variance = math.nan
        """Of the last finite loss: itself, and the moving variance up to it."""
        self._epoch, self._phase = Segment(), self._phases.init()
        self._rate = ""
        """The tag of the learning rate that says the phase: the first that there was."""

    def step(self, loss: float) -> dict[str, float]:
        """Take the loss of a step; what is known of it, by tag."""
        # A variance that has this loss inside could never say that it is far off.
        is_judged = self._variance > 0
        score = {"loss/score": (loss - self._last) / math.sqrt(self._variance)} if is_judged else {}
        smooth: dict[str, float] = {}
        if self._is_smoothed:
            *state, smooth["loss/ema"] = self._ema.one(loss, *self._smooth)
            self._smooth = state[0], int(state[1])
        skewness, kurtosis = self._take(loss)
        if math.isfinite(loss):
            self._last = loss
        self._epoch = with_value(self._epoch, loss)
        return {
            "loss": loss,
            **smooth,
            "loss/variance": self._variance,
            "loss/skewness": skewness,
            "loss/kurtosis": kurtosis,
            **score,
        }

    def _take(self, loss: float) -> tuple[float, float]:
        """Take a loss into the moving moments; what is left of them beside the variance."""
        *state, _, self._variance, skewness, kurtosis = self._moments.one(loss, *self._spread)  # type: ignore[arg-type]
        self._spread = *state[:-1], int(state[-1])
        return skewness, kurtosis

    def phase(self, at: int, row: Mapping[str, float]) -> dict[str, float]:
        """Take a whole step; the row of the phase of the learning rate that is over with it, empty where none is."""
        if not self._rate:
            self._rate = next((tag for tag in row if tag == "lr" or tag.startswith("lr@")), "")
        if self._rate not in row:
            return {}
        self._phase, over = self._phases.step(self._phase, at, row[self._rate], row.get("loss", math.nan))
        return _phase_row(over)

    def phase_under_way(self) -> dict[str, float]:
        """The row of the phase as it is after the last step."""
        return _phase_row(self._phases.under_way(self._phase))

    def end_epoch(self) -> dict[str, float]:
        """The losses of the epoch that is over."""
        ended, self._epoch = self._epoch, Segment()
        return _named("epoch", moments(ended))

    def state_dict(self) -> dict[str, Any]:
        """All that is remembered."""
        return {
            "ema": [[number] for number in self._smooth],
            "decay": self._ema.decay,
            "moments": [[number] for number in self._spread],
            "loss": {"last": dump(self._last), "epoch": dump(self._epoch)},
            "phase": {"rate": self._rate, "state": dump(self._phase)},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another session stopped, also one that smoothed otherwise or knew less."""
        (raw,), (num,) = state["ema"]
        before = state.get("decay", self._ema.decay)
        # The average is raw/(1 − β^n): with another β it goes on at the same height.
        scale = (1 - self._ema.decay**num) / (1 - before**num) if num else 1.0
        self._smooth = raw * scale, num
        self._spread = tuple(number for (number,) in state["moments"])
        self._take(math.nan)  # which changes nothing but the variance
        known = state.get("loss", {})
        self._last = load(known["last"], math.nan) if known else math.nan
        self._epoch = load(known["epoch"], Segment()) if known else Segment()
        phase = state.get("phase", {})
        self._rate = phase.get("rate", "")
        self._phase = load(phase["state"], self._phases.init()) if phase else self._phases.init()


def _phase_row(out: PhaseOut | None) -> dict[str, float]:
    if out is None:
        return {}
    numbers = {"phase": out.phase, "phase/start": out.start, "phase/steps": out.num_steps}
    return {**{tag: float(number) for tag, number in numbers.items()}, **_named("phase", out.losses)}


def _named(scale: str, found: SegmentMoments) -> dict[str, float]:
    if math.isnan(found.mean):  # there was no loss
        return {}
    return {f"{scale}/loss_{name}": value for name, value in found._asdict().items()}
