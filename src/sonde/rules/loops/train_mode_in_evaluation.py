"""LOP006 train-mode-in-evaluation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sonde.core.quantities import count
from sonde.rules.rule import Against, Cause, Claims, For, Look, Severity, Sighting
from sonde.rules.sticky_fact import StickyFact, kept


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainModeInEvaluation:
    """The model is evaluated in train mode.

    What it detects:
        Between a step and an evaluation that was reported, either of these:
        - Every call of the model without gradients had dropout or batch norm in train mode.
        - A batch norm updated its statistics.

    Why it matters:
        Dropout makes the evaluation worse than the model is. Batch norm makes it depend on which examples are in a
        batch, and validation data leak into its statistics.

    Evidence:
        The fact `train-mode-in-evaluation`, with the modules and the line of the model's call.

    What to do:
        Call `model.eval()` before the evaluation and `model.train()` after it.

    When it is wrong:
        - Evaluations with dropout on purpose (Monte Carlo dropout).
        - Batch-norm statistics that are estimated anew by a pass in train mode, without any evaluation after it.

    References:
        PyTorch documentation, `Module.eval`. Gal and Ghahramani, Dropout as a Bayesian approximation, ICML 2016 (on
        purpose).
    """

    code: ClassVar[str] = "LOP006"
    name: ClassVar[str] = "train-mode-in-evaluation"
    needs: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[str, ...]] = ()
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.TRAIN_MODE_IN_EVALUATION: For("the model was in train mode at its calls in evaluation"),
        Cause.TRAIN_EVAL_MISMATCH: Against("the mode of the model was wrong"),
    }
    quiet_steps: ClassVar[int] = 100
    guide: ClassVar[str] = "validation-rising"

    def init(self) -> StickyFact:
        """Before the first step."""
        return StickyFact()

    def step(self, state: StickyFact, look: Look) -> tuple[StickyFact, Sequence[Sighting]]:
        """Look at the facts of one more step."""
        state = kept(state, look, "train-mode-in-evaluation")
        if state.since < 0:
            return state, ()
        modules = count(state.value, "dropout or batch-norm module")
        message = f"the model is evaluated in train mode, which affects {modules}{state.at}"
        return state, (Sighting(Severity.WARNING, message, state.where, since=state.since),)
