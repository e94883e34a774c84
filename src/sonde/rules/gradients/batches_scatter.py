"""GRD016 batches-scatter."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import count, share
from sonde.rules.history.level import has_level
from sonde.rules.rule import Against, Cause, Claims, For, Look, Severity, Sighting


class BatchesScatterState(NamedTuple):
    """The latest size of a batch, micro-steps taken together."""

    size: float = float("nan")


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchesScatter:
    """Batches hold few examples, and their losses differ by as much as the loss itself.

    What it detects:
        - A step sees at most `size` examples; accumulated batches count together.
        - The losses scatter by `scatter` of their median or more (robust deviation over the last 128 losses).
        - It is asked at every 50th loss, from the 100th on.
        - It is always information: small batches learn well as long as the loss falls.

    Why it matters:
        The gradient of a step is then mostly that of its few examples. A learning rate that suits larger batches throws
        the weights about: spikes, dead units and a loss far above its minimum follow.

    Evidence:
        `loss`: its deviation against its median; `batch/samples`.

    What to do:
        Use a larger batch, accumulate gradients, or lower the learning rate.

    When it is wrong:
        - Losses that are nearly zero scatter by their own size.
        - Long sequences make batches of few examples large; but then losses do not scatter.

    References:
        McCandlish et al., An empirical model of large-batch training, 2018.
    """

    code: ClassVar[str] = "GRD016"
    name: ClassVar[str] = "batches-scatter"
    needs: ClassVar[tuple[str, ...]] = ("loss",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.BATCH_TOO_SMALL: For("each step sees few examples, and their losses differ a lot"),
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
        run = look.run
        size = look.view.value("batch/samples" if "batch/samples" in look.view else "batch/size")
        if math.isfinite(size) and size != state.size:
            state = BatchesScatterState(size)
        if run.num_losses < 100 or run.num_losses % 50 or "loss" not in look.view:
            return state, ()
        few = 0 < state.size * max(run.accumulation, 1.0) <= self.size
        scatter = run.loss_scale / run.loss_median if run.loss_median > 0 else math.nan
        if not (few and scatter > self.scatter and has_level(look)) or run.is_solved:
            return state, ()
        batch = count(int(state.size), "example")
        message = f"losses of batches of {batch} scatter by {share(scatter)} of their median"
        evidence = look.evidence("loss", run.loss_scale, run.loss_median)
        return state, (Sighting(Severity.INFO, message, evidence=(evidence,)),)
