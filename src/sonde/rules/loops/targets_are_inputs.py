"""LOP014 targets-are-inputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sonde.core.quantities import share
from sonde.rules.rule import Cause, Claims, For, Look, Severity, Sighting
from sonde.rules.sticky_fact import StickyFact, kept


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetsAreInputs:
    """The model is asked for the very tokens that it is given.

    What it detects:
        - In three steps in a row, the targets of a cross-entropy are the model's only integer input, token by token.
        - It is a warning once `gone` of the loss of an untrained model is gone: the model copies. Until then it is
          information.

    Why it matters:
        A language model learns by foretelling the next token. One that sees its own target has only to copy it: the
        loss falls to nothing within some hundred steps, and the model has learned nothing of the language.

    Evidence:
        The fact `targets-are-inputs`, with the line of the backward pass, and `loss`.

    What to do:
        - Shift the targets by one: compare `logits[:, :-1]` with `tokens[:, 1:]`.
        - Check whether the library shifts by itself, as `labels=` of Hugging Face's models does, and is not used.

    When it is wrong:
        - An autoencoder of tokens gives back what it was given, through something narrow.

    References:
        Radford et al., Improving language understanding by generative pre-training, 2018 (the objective).
    """

    code: ClassVar[str] = "LOP014"
    name: ClassVar[str] = "targets-are-inputs"
    needs: ClassVar[tuple[str, ...]] = ("loss",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.TARGETS_NOT_SHIFTED: For("the targets are the tokens that the model is given"),
    }
    quiet_steps: ClassVar[int] = 100

    gone: float = 0.5

    def init(self) -> StickyFact:
        """Before the first step."""
        return StickyFact()

    def step(self, state: StickyFact, look: Look) -> tuple[StickyFact, Sequence[Sighting]]:
        """Look at the facts and the loss of one more step."""
        state = kept(state, look, "targets-are-inputs")
        if state.since < 0:
            return state, ()
        copies = look.run.progress > self.gone
        message = (
            f"{share(state.value)} of the targets are the tokens that the model is given at the same place{state.at}"
        )
        evidence = (look.evidence("loss", expected=look.run.loss_start),) if copies else ()
        severity = Severity.WARNING if copies else Severity.INFO
        return state, (Sighting(severity, message, state.where, evidence, since=state.since),)
