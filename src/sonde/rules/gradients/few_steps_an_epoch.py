"""GRD015 few-steps-an-epoch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import count
from sonde.rules.rule import Against, Cause, Claims, For, Look, Severity, Sighting


class FewStepsAnEpochState(NamedTuple):
    """The latest size of a batch, and epochs in a row that took few steps."""

    size: float = float("nan")
    num_epochs: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class FewStepsAnEpoch:
    """Each step sees a large part of all data, so that an epoch brings few updates.

    What it detects:
        - Each of the last `num_epochs` epochs had at most `steps` steps.
        - Batches hold `size` examples or more.
        - It is always information; if the training is slow as well, the batch may be the reason.

    Why it matters:
        The gradient of so many examples is more exact than a step needs. For the price of one such step, smaller
        batches would bring several updates.

    Evidence:
        `epoch/steps`, `batch/samples`.

    What to do:
        Use a smaller batch. Or raise the learning rate by the factor by which the batch is larger than usual, after a
        warmup.

    When it is wrong:
        - Small data sets that are trained in full batches on purpose.
        - Optimisers made for full batches, such as L-BFGS.

    References:
        McCandlish et al., An empirical model of large-batch training, 2018. Goyal et al., Accurate, large minibatch
        SGD, 2017 (the learning rate grows with the batch).
    """

    code: ClassVar[str] = "GRD015"
    name: ClassVar[str] = "few-steps-an-epoch"
    needs: ClassVar[tuple[str, ...]] = ("epoch/steps",)
    reads: ClassVar[tuple[str, ...]] = ("batch/samples", "batch/size", "epoch/steps")
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.BATCH_TOO_LARGE: For("an epoch has only a handful of steps"),
        Cause.UNDERFITTING: Against("there were too few steps to tell"),
        Cause.INSUFFICIENT_CAPACITY: Against("there were too few steps to tell"),
    }
    quiet_steps: ClassVar[int] = 1_000

    steps: int = 10
    size: int = 128
    num_epochs: int = 3

    def init(self) -> FewStepsAnEpochState:
        """Before the first step."""
        return FewStepsAnEpochState()

    def step(self, state: FewStepsAnEpochState, look: Look) -> tuple[FewStepsAnEpochState, Sequence[Sighting]]:
        """Look at the size of the batch, and at the epoch where one ends."""
        view = look.view
        size = view.value("batch/samples" if "batch/samples" in view else "batch/size")
        if math.isfinite(size) and size != state.size:
            state = state._replace(size=size)
        steps = view.value("epoch/steps")
        if not steps > 0:
            return state, ()
        few = steps <= self.steps and state.size >= self.size
        state = state._replace(num_epochs=state.num_epochs + 1 if few else 0)
        if state.num_epochs < self.num_epochs:
            return state, ()
        message = f"an epoch has only {count(int(steps), 'step')}, each of {count(int(state.size), 'example')}"
        return state, (Sighting(Severity.INFO, message, evidence=(look.evidence("epoch/steps", steps),)),)
