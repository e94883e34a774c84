"""GRD015 few-steps-an-epoch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Severity, Sighting


class FewStepsAnEpochState(NamedTuple):
    """The latest size of a batch, and epochs in a row that took few steps."""

    size: float = float("nan")
    num_epochs: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class FewStepsAnEpoch:
    """Each step sees a good part of all data, so that a pass over them brings few updates.

    What it detects:
        At most `steps` steps in each of `num_epochs` epochs in a row, of batches of `size` examples or more. Always
        information: where the training is slow besides, the batch is a reason.

    Why it matters:
        Gradients of so many examples are surer than a step needs: what is paid for one of them would have bought
        several updates.

    Evidence:
        `epoch/steps`, `batch/samples`.

    What to do:
        A smaller batch, or a learning rate raised with the batch (by its factor, after a warmup).

    When it is wrong:
        Few data trained in full batches on purpose, and optimisers made for that (L-BFGS).

    References:
        McCandlish et al., An empirical model of large-batch training, 2018. Goyal et al., Accurate, large minibatch
        SGD, 2017 (the rate grows with the batch).
    """

    code: ClassVar[str] = "GRD015"
    name: ClassVar[str] = "few-steps-an-epoch"
    needs: ClassVar[tuple[str, ...]] = ("epoch/steps",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.BATCH_TOO_LARGE: For("an epoch is a handful of steps"),
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
        scene = look.scene
        size = scene.value("batch/samples" if "batch/samples" in scene else "batch/size")
        if math.isfinite(size) and size != state.size:
            state = state._replace(size=size)
        steps = scene.value("epoch/steps")
        if not steps > 0:
            return state, ()
        few = steps <= self.steps and state.size >= self.size
        state = state._replace(num_epochs=state.num_epochs + 1 if few else 0)
        if state.num_epochs < self.num_epochs:
            return state, ()
        message = f"an epoch is {steps:.0f} steps of {state.size:.0f} examples"
        evidence = Evidence(tag="epoch/steps", step=scene.step, value=steps)
        return state, (Sighting(Severity.INFO, message, evidence=(evidence,)),)
