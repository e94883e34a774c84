from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from sonde.rules.rule import Cause, Claims, For, Look, Severity, Sighting


@dataclass(frozen=True, kw_only=True)
class AccuracyFalls:
    """The validation accuracy falls far below its best.

    What it detects:
        `val/accuracy` below `share` of its best, at `patience` evaluations in a row.
    Why it matters:
        The model has lost what it had learned: its newest checkpoint is not its best.
    Evidence:
        `val/accuracy` against its best.
    What to do:
        Go back to the best checkpoint, and lower the learning rate.
    When it is wrong:
        The accuracy on few examples goes up and down by chance: raise `patience`.
    References:
        Prechelt, Early Stopping - But When?, 1998.
    """

    code: ClassVar[str] = "ACC001"
    name: ClassVar[str] = "accuracy-falls"
    needs: ClassVar[tuple[str, ...]] = ("val/accuracy",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {Cause.LR_TOO_HIGH: For("what was learned is lost")}
    quiet_steps: ClassVar[int] = 500
    share: float = 0.8
    patience: int = 3

    def init(self) -> tuple[float, int]:
        return 0.0, 0  # the best accuracy, and how many evaluations in a row were far below it

    def step(self, state: tuple[float, int], look: Look) -> tuple[tuple[float, int], tuple[Sighting, ...]]:
        accuracy, (best, num) = look.view.value("val/accuracy"), state
        if not accuracy >= 0:  # NaN where it was not measured at this step
            return state, ()
        best, num = max(best, accuracy), num + 1 if accuracy < self.share * best else 0
        message = f"validation accuracy fell to {accuracy:.3g}, far below its best of {best:.3g}"
        seen = Sighting(Severity.WARNING, message, evidence=(look.evidence("val/accuracy", expected=best),))
        return (best, num), (seen,) if num >= self.patience else ()
