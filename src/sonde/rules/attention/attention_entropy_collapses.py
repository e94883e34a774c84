"""ATT002 attention-entropy-collapses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import amount
from sonde.rules.history.progress import is_hurt
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Severity, Sighting, When


class AttentionEntropyCollapsesState(NamedTuple):
    """The first value of each module, looks in a row at which it was collapsed, and the step of the first of these."""

    seen: tuple[tuple[str, float, int, int], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionEntropyCollapses:
    """Attention heads look at a single position only.

    What it detects:
        - The relative entropy of a module's attention (1: all keys alike, 0: one key only) is below `low` at two
          measurements in a row.
        - Warning: the loss is stuck or has risen far above its start.
        - Warning: the loss has stopped falling with more than half of it left.
        - Information: all other cases.

    Why it matters:
        A softmax that selects one position passes no gradient to queries and keys: such heads cannot change any more.

    Evidence:
        `attn/entropy_relative@…`, `attn/entropy_min@…`.

    What to do:
        - Normalise queries and keys (qk-norm), or reparameterise their weights (σReparam).
        - Lower the learning rate, or lengthen the warmup.
        - Make the initial weights of queries and keys smaller.

    When it is wrong:
        - Heads that copy the previous token are sharp and healthy. The mean over a module's heads stays above the limit
          then, unless all heads are of that kind.

    References:
        Zhai et al., Stabilizing transformer training by preventing attention entropy collapse, ICML 2023.
    """

    code: ClassVar[str] = "ATT002"
    name: ClassVar[str] = "attention-entropy-collapses"
    needs: ClassVar[tuple[str, ...]] = ("attn/entropy_relative@",)
    reads: ClassVar[tuple[str, ...]] = needs
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
        layers = look.view.layers("attn/entropy_relative")
        if layers is None:
            return state, ()
        known = {name: (first, count, since) for name, first, count, since in state.seen}
        values = dict(zip(layers.names, layers.values.tolist(), strict=True))
        for name, value in values.items():
            first, count, since = known.get(name, (value, 0, -1))
            known[name] = (first, count + 1, since if count else look.view.step) if value < self.low else (first, 0, -1)
        state = AttentionEntropyCollapsesState(tuple((name, *rest) for name, rest in known.items()))
        found = sorted((name for name in values if known[name][1] >= 2), key=lambda name: values[name])
        if not found:
            return state, ()
        run, name = look.run, found[0]
        stalled = run.num_losses >= 100 and not run.is_falling and run.progress < 0.5
        severity = Severity.WARNING if is_hurt(run) or stalled else Severity.INFO
        first = known[name][0]
        how = f"fell from {amount(first)} to" if first > values[name] else "is"
        message = (
            f"the relative attention entropy of {look.view.kinds.module(name)} {how} {amount(values[name])}: "
            "nearly all attention goes to one position"
        )
        evidence = Evidence(
            tag=f"attn/entropy_relative@{name}", step=look.view.step, value=values[name], expected=first
        )
        began = min(known[name][2] for name in found)
        return state, (Sighting(severity, message, where=tuple(found), evidence=(evidence,), since=began),)
