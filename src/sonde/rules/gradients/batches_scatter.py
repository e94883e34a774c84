"""GRD016 batches-scatter."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.rules.levels import has_level
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Severity, Sighting


class BatchesScatterState(NamedTuple):
    """The latest size of a batch, micro-steps taken together."""

    size: float = float("nan")


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchesScatter:
    """Batches of a few examples, whose losses differ by as much as the loss itself.

    What it detects:
        Steps of at most `size` examples (accumulated ones count together) whose losses scatter by `scatter` of their
        median or more (robust deviation over the last 128), asked at every 50th loss from the 100th on. Always
        information: small batches learn well as long as the loss falls.

    Why it matters:
        The gradient of a step is then mostly that of its few examples. At a rate that larger batches bear it throws
        weights about: spikes, dead units and a floor far above the minimum follow.

    Evidence:
        `loss`: its deviation against its median; `batch/samples`.

    What to do:
        A larger batch or accumulated gradients, or a rate as much lower.

    When it is wrong:
        Losses that are nearly gone scatter by their own size. Long sequences make batches of few examples large; their
        losses do not scatter.

    References:
        McCandlish et al., An empirical model of large-batch training, 2018.
    """

    code: ClassVar[str] = "GRD016"
    name: ClassVar[str] = "batches-scatter"
    needs: ClassVar[tuple[str, ...]] = ("loss",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.BATCH_TOO_SMALL: For("steps of a few examples that differ as much as the loss is large"),
        Cause.LR_TOO_HIGH: Against("gradients of a few examples explain wild steps"),
        Cause.WEIGHT_NORM_JUMP: Against("steps of a few examples throw weights about"),
        Cause.BAD_BATCH: Against("no batch is like the others"),
        Cause.DEAD_UNITS: Against("steps of a few examples throw units about"),
    }
    quiet_steps: ClassVar[int] = 100

    size: int = 4
    scatter: float = 0.5

    def init(self) -> BatchesScatterState:
        """Before the first step."""
        return BatchesScatterState()

    def step(self, state: BatchesScatterState, look: Look) -> tuple[BatchesScatterState, Sequence[Sighting]]:
        """Look at one more loss, and at the batch where it was measured."""
        picture = look.picture
        size = look.scene.value("batch/samples" if "batch/samples" in look.scene else "batch/size")
        if math.isfinite(size) and size != state.size:
            state = BatchesScatterState(size)
        if picture.num_losses < 100 or picture.num_losses % 50 or "loss" not in look.scene:
            return state, ()
        few = 0 < state.size * max(picture.accumulation, 1.0) <= self.size
        scatter = picture.loss_scale / picture.loss_median if picture.loss_median > 0 else math.nan
        if not (few and scatter > self.scatter and has_level(look)) or picture.is_solved:
            return state, ()
        message = f"losses of batches of {state.size:.0f} scatter by {scatter:.0%} of their median"
        evidence = Evidence(tag="loss", step=picture.step, value=picture.loss_scale, expected=picture.loss_median)
        return state, (Sighting(Severity.INFO, message, evidence=(evidence,)),)
