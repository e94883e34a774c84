"""What the steps of one optimiser were like so far: what its numbers are measured against."""

from collections.abc import Mapping
from typing import Any, final

import numpy as np

from sonde.core.frames import MISSING, Float32
from sonde.core.records import Float64
from sonde.kernels import sketches
from sonde.probes.lookup import Lookup
from sonde.signals.clipping import Clipping
from sonde.signals.ema import Ema, EmaState
from sonde.signals.since_first import SinceFirst, SinceFirstState
from sonde.signals.states import dump, load
from sonde.signals.trajectory import Trajectory


@final
class OptimizerHistory:
    """Follows the gradient's norm and direction, the clips and the norms of weights, in the order of steps."""

    def __init__(self) -> None:
        self._ema, self._clipping, self._since, self._trajectory = Ema(), Clipping(), SinceFirst(), Trajectory()
        self._clips = self._clipping.init(1)
        self._norms: tuple[float, int] = 0.0, 0
        """As `EmaState` has them, of one tag."""
        self._is_clipped = False
        self._names: tuple[str, ...] = ()
        self._weights = self._since.init(0)
        """Of these parameters."""
        self._directions = self._trajectory.init(sketches.SIZE)
        self._lookup = Lookup()

    def gradient_norm(self, norm: float) -> Mapping[str, float]:
        """The moving average of the norm, and the norm over the average before it, by their tags."""
        raw, num = self._norms
        before = raw / (1 - self._ema.decay**num) if num else 0.0
        raw, num, smooth = self._ema.one(norm, raw, num)
        self._norms = raw, num
        ratio = {"grad/norm_ratio": norm / before} if before > 0 else {}
        return {"grad/norm_ema": smooth, **ratio}

    def clip(self, factor: float | None) -> Mapping[str, float]:
        """How often and how hard clips acted lately, by their tags; nothing as long as there was none.

        Args:
            factor: By which this step's gradients were shortened, 1 where no clip acted, NaN where that is not known;
                None where there was no clip.
        """
        self._is_clipped |= factor is not None
        if not self._is_clipped:
            return {}
        self._clips, (rate, strength) = self._clipping.step(self._clips, np.array([1.0 if factor is None else factor]))
        found = {"clip/rate": rate.item(), "clip/strength": strength.item()}
        return {tag: value for tag, value in found.items() if not np.isnan(value)}

    def growth(self, names: tuple[str, ...], norms: Float64) -> tuple[Float32, float]:
        """The norms of weights over the first of each that was above 0, and that of all over what that was."""
        known = self._names
        if names != known:
            before = set(known)
            self._names += tuple(name for name in names if name not in before)
            new = self._since.init(len(self._names) - len(known))
            self._weights = SinceFirstState(np.concatenate([self._weights.first, new.first]))
        places = slice(None) if names == self._names else self._lookup(names, self._names)
        values = np.full(len(self._names), np.nan)
        values[places] = norms
        self._weights, ratios = self._since.step(self._weights, values)
        first = self._weights.first[places]
        start = float(np.linalg.norm(np.nan_to_num(first)))
        whole = float(np.linalg.norm(norms)) / start if start > 0 else float(MISSING)
        return np.where(np.isnan(first), MISSING, ratios[places]).astype(np.float32), whole

    def direction(self, sketch: Float64) -> Mapping[str, float]:
        """How many directions the last gradients span, by its tags; nothing where this one tells nothing."""
        last = self._directions
        self._directions, out = self._trajectory.step(last, sketch)
        if self._directions is last or not np.isfinite(out.dimension):
            return {}
        return {"grad/trajectory_dimension": float(out.dimension), "grad/trajectory_share": float(out.share)}

    def state_dict(self) -> dict[str, Any]:
        """All that is remembered."""
        return {
            "norms": dump(EmaState(*(np.array([number]) for number in self._norms))),
            "clips": dump(self._clips) if self._is_clipped else None,
            "names": list(self._names),
            "weights": dump(self._weights),
            "directions": dump(self._directions),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another session stopped."""
        norms = load(state["norms"], self._ema.init(1))
        self._norms = norms.raw.item(), norms.num_values.item()
        self._is_clipped = state["clips"] is not None
        self._clips = load(state["clips"], self._clipping.init(1)) if self._is_clipped else self._clipping.init(1)
        self._names = tuple(state["names"])
        self._weights = load(state["weights"], self._since.init(0))
        self._directions = load(state["directions"], self._trajectory.init(sketches.SIZE))
