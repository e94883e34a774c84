"""What to do about a cause, with values computed from the run."""

from collections.abc import Sequence

from sonde.core.causes import Cause
from sonde.core.remedies import Action, Remedy, Safety
from sonde.rules.rule import Look


def remedies_for(cause: Cause, look: Look) -> Sequence[Remedy]:
    """The remedies of a cause in order, the best first; none where there is none that Sonde knows."""
    make = _REMEDIES.get(cause)
    return () if make is None else make(look)


def _lower_lr(factor: float):  # type: ignore[no-untyped-def]
    def make(look: Look) -> Sequence[Remedy]:
        lr = look.picture.lr
        text = f"lower the learning rate {lr:.3g} → {lr * factor:.3g}"
        return (Remedy(action=Action.LOWER_LR, args={"factor": factor}, safety=Safety.OPT_IN, text=text),)

    return make


_REMEDIES = {Cause.LR_TOO_HIGH: _lower_lr(0.1)}
