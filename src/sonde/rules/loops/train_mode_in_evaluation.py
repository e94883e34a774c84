"""LOP006 train-mode-in-evaluation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sonde.rules.rule import Against, Cause, Claims, For, Look, Severity, Sighting
from sonde.rules.standing import Standing, stand


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainModeInEvaluation:
    """The model is evaluated in train mode.

    What it detects:
        Between a step and an evaluation that was reported, the model was called without gradients only ever with
        dropout or batch norm in train mode; or a batch norm took batches into its statistics in that time.

    Why it matters:
        Dropout makes the evaluation worse than the model is, batch norm makes it depend on who is in the batch, and the
        validation data leak into its statistics.

    Evidence:
        The fact `train-mode-in-evaluation` with the modules and the line of the model's call.

    What to do:
        Call `model.eval()` before the evaluation and `model.train()` after it.

    When it is wrong:
        Evaluations with dropout on purpose (Monte Carlo dropout), and batch-norm statistics that are estimated anew by
        a pass in train mode without any evaluation after it.

    References:
        PyTorch documentation, `Module.eval`. Gal and Ghahramani, Dropout as a Bayesian approximation, ICML 2016 (on
        purpose).
    """

    code: ClassVar[str] = "LOP006"
    name: ClassVar[str] = "train-mode-in-evaluation"
    needs: ClassVar[tuple[str, ...]] = ()
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.TRAIN_MODE_IN_EVALUATION: For("modes were seen at the model's calls"),
        Cause.TRAIN_EVAL_MISMATCH: Against("the mode was wrong"),
    }
    quiet_steps: ClassVar[int] = 100
    guide: ClassVar[str] = "validation-rising"

    def init(self) -> Standing:
        """Before the first step."""
        return Standing()

    def step(self, state: Standing, look: Look) -> tuple[Standing, Sequence[Sighting]]:
        """Look at the facts of one more step."""
        state = stand(state, look, "train-mode-in-evaluation")
        if state.since < 0:
            return state, ()
        message = f"the model is in train mode in evaluation, which {state.value:.0f} of its modules heed{state.at}"
        return state, (Sighting(Severity.WARNING, message, state.where, since=state.since),)
