"""LOP005 eval-mode-in-training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sonde.core.quantities import count
from sonde.rules.rule import Against, Cause, Claims, For, Look, Severity, Sighting
from sonde.rules.sticky_fact import StickyFact, kept


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalModeInTraining:
    """The model is trained in eval mode.

    What it detects:
        - A model with dropout or batch norm was called for training while the model and all of these modules were in
          eval mode, two steps in a row.

    Why it matters:
        Dropout does not regularise; batch norm neither normalises by the batch nor updates its statistics. Mostly an
        evaluation did not switch back to train mode.

    Evidence:
        The fact `eval-mode-in-training`, with the modules and the line of the model's call.

    What to do:
        Call `model.train()` at the beginning of each epoch, or right after each evaluation.

    When it is wrong:
        - A whole model is fine-tuned in eval mode on purpose. If only batch norms are in eval mode, nothing is
          reported.

    References:
        PyTorch documentation, `Module.eval`. Humbatova et al., Taxonomy of real faults in deep learning systems, ICSE
        2020.
    """

    code: ClassVar[str] = "LOP005"
    name: ClassVar[str] = "eval-mode-in-training"
    needs: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[str, ...]] = ()
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.EVAL_MODE_IN_TRAINING: For("the model was in eval mode at its calls in training"),
        Cause.TRAIN_EVAL_MISMATCH: Against("the mode of the model was wrong"),
    }
    quiet_steps: ClassVar[int] = 100
    guide: ClassVar[str] = "validation-rising"

    def init(self) -> StickyFact:
        """Before the first step."""
        return StickyFact()

    def step(self, state: StickyFact, look: Look) -> tuple[StickyFact, Sequence[Sighting]]:
        """Look at the facts of one more step."""
        state = kept(state, look, "eval-mode-in-training")
        if state.since < 0:
            return state, ()
        modules = count(state.value, "dropout or batch-norm module")
        message = f"the model trains in eval mode, which affects {modules}{state.at}"
        return state, (Sighting(Severity.WARNING, message, state.where, since=state.since),)
