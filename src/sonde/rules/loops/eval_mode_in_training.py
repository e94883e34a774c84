"""LOP005 eval-mode-in-training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sonde.rules.rule import Against, Cause, Claims, For, Look, Severity, Sighting
from sonde.rules.standing import Standing, stand


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalModeInTraining:
    """The model is trained in eval mode.

    What it detects:
        A model with dropout or batch norm was called for training with itself and all of these modules in eval mode,
        two steps in a row.

    Why it matters:
        Dropout does not regularise, and batch norm neither normalises by the batch nor learns its statistics. Mostly an
        evaluation did not switch back.

    Evidence:
        The fact `eval-mode-in-training` with the modules and the line of the model's call.

    What to do:
        Call `model.train()` at the beginning of each epoch, or right after each evaluation.

    When it is wrong:
        Fine-tuning of a whole model in eval mode on purpose. Where only batch norms are in eval mode nothing is said.

    References:
        PyTorch documentation, `Module.eval`. Humbatova et al., Taxonomy of real faults in deep learning systems, ICSE
        2020.
    """

    code: ClassVar[str] = "LOP005"
    name: ClassVar[str] = "eval-mode-in-training"
    needs: ClassVar[tuple[str, ...]] = ()
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.EVAL_MODE_IN_TRAINING: For("modes were seen at the model's calls"),
        Cause.TRAIN_EVAL_MISMATCH: Against("the mode was wrong"),
    }
    quiet_steps: ClassVar[int] = 100
    guide: ClassVar[str] = "validation-rising"

    def init(self) -> Standing:
        """Before the first step."""
        return Standing()

    def step(self, state: Standing, look: Look) -> tuple[Standing, Sequence[Sighting]]:
        """Look at the facts of one more step."""
        state = stand(state, look, "eval-mode-in-training")
        if state.since < 0:
            return state, ()
        message = f"the model is in eval mode in training, which {state.value:.0f} of its modules heed{state.at}"
        return state, (Sighting(Severity.WARNING, message, state.where, since=state.since),)
