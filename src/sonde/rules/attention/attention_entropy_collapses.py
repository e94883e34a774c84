"""ATT002 attention-entropy-collapses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.rules.progress import is_hurt
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Severity, Sighting, When


class AttentionEntropyCollapsesState(NamedTuple):
    """The first value of each module, looks in a row at which it was collapsed, and the step of the first of these."""

    seen: tuple[tuple[str, float, int, int], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionEntropyCollapses:
    """Attention heads look at a single position only.

    What it detects:
        The relative entropy of a module (1 looks at all keys alike, 0 at one) below `low` at two looks in a row, from
        above three times that at its first look or low from the start. Information; a warning while training is hurt,
        or where the loss has stopped falling with more than half of it left.

    Why it matters:
        A one-hot softmax passes no gradient to queries and keys: such heads cannot change any more.

    Evidence:
        `attn/entropy_relative@…`, `attn/entropy_min@…`.

    What to do:
        qk-norm or σReparam, a lower learning rate, a longer warmup; smaller initial query and key weights.

    When it is wrong:
        Heads that copy the previous token are sharp and healthy; a module's mean over heads then stays above the limit
        unless all of them are.

    References:
        Zhai et al., Stabilizing transformer training by preventing attention entropy collapse, ICML 2023.
    """

    code: ClassVar[str] = "ATT002"
    name: ClassVar[str] = "attention-entropy-collapses"
    needs: ClassVar[tuple[str, ...]] = ("attn/entropy_relative@",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.ATTENTION_ENTROPY_COLLAPSE: (For("heads look at one position"), For(when=When.ALARM)),
        Cause.ATTENTION_LOGIT_GROWTH: Against(),
    }
    quiet_steps: ClassVar[int] = 400

    low: float = 0.1

    def init(self) -> AttentionEntropyCollapsesState:
        """Before the first step."""
        return AttentionEntropyCollapsesState()

    def step(
        self, state: AttentionEntropyCollapsesState, look: Look
    ) -> tuple[AttentionEntropyCollapsesState, Sequence[Sighting]]:
        """Look at the modules whose turn it is."""
        layers = look.scene.layers("attn/entropy_relative")
        if layers is None:
            return state, ()
        known = {name: (first, count, since) for name, first, count, since in state.seen}
        values = dict(zip(layers.names, layers.values.tolist(), strict=True))
        for name, value in values.items():
            first, count, since = known.get(name, (value, 0, -1))
            known[name] = (
                (first, count + 1, since if count else look.scene.step) if value < self.low else (first, 0, -1)
            )
        state = AttentionEntropyCollapsesState(tuple((name, *rest) for name, rest in known.items()))
        found = sorted((name for name in values if known[name][1] >= 2), key=lambda name: values[name])
        if not found:
            return state, ()
        picture, name = look.picture, found[0]
        stalled = picture.num_losses >= 100 and not picture.is_falling and picture.progress < 0.5
        severity = Severity.WARNING if is_hurt(picture) or stalled else Severity.INFO
        message = f"relative attention entropy of {name} is {values[name]:.2g}, at first {known[name][0]:.2g}"
        evidence = Evidence(
            tag=f"attn/entropy_relative@{name}", step=look.scene.step, value=values[name], expected=known[name][0]
        )
        began = min(known[name][2] for name in found)
        return state, (Sighting(severity, message, where=tuple(found), evidence=(evidence,), since=began),)
