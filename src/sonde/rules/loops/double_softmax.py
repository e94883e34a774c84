"""LOP007 double-softmax."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sonde.rules.rule import Cause, Claims, For, Look, Severity, Sighting
from sonde.rules.sticky_fact import StickyFact, kept


@dataclass(frozen=True, kw_only=True, slots=True)
class DoubleSoftmax:
    """Probabilities go into a loss that expects logits.

    What it detects:
        One of these, two steps in a row:
        - The rows of the model's output are probabilities, and the gradient that comes back is that of a cross-entropy
          of logits.
        - The graph of the loss has a softmax before a cross-entropy or an NLL loss, or a sigmoid before a binary
          cross-entropy of logits.

    Why it matters:
        The second softmax sees only numbers between 0 and 1. The loss cannot fall below ln(e + C − 1) − 1 for C
        classes, and gradients are small.

    Evidence:
        The fact `double-softmax`, with the line of the backward pass.

    What to do:
        Give logits to the loss: take the softmax out of the model. Or use `log_softmax` with `nll_loss`.

    When it is wrong:
        - The output is meant as logits and happens to be normalised, as in distillation into probabilities by a
          cross-entropy of its own.

    References:
        Islam et al., A comprehensive study on deep learning bug characteristics, ESEC/FSE 2019. Schoop, Huang and
        Hartmann, UMLAUT: Debugging deep learning programs using program structure and model behavior, CHI 2021.
    """

    code: ClassVar[str] = "LOP007"
    name: ClassVar[str] = "double-softmax"
    needs: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[str, ...]] = ()
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.DOUBLE_SOFTMAX: For("the loss was given probabilities"),
    }
    quiet_steps: ClassVar[int] = 100

    def init(self) -> StickyFact:
        """Before the first step."""
        return StickyFact()

    def step(self, state: StickyFact, look: Look) -> tuple[StickyFact, Sequence[Sighting]]:
        """Look at the facts of one more step."""
        state = kept(state, look, "double-softmax")
        if state.since < 0:
            return state, ()
        message = f"the loss applies a softmax (or sigmoid) to outputs that already are probabilities{state.at}"
        return state, (Sighting(Severity.WARNING, message, state.where, since=state.since),)
