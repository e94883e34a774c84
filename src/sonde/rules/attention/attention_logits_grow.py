"""ATT001 attention-logits-grow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import amount
from sonde.rules.history.progress import is_hurt
from sonde.rules.history.run_summary import RunSummary
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Severity, Sighting, When


class AttentionLogitsGrowState(NamedTuple):
    """The first and the last value of each module, and its rises in a row."""

    seen: tuple[tuple[str, float, float, int], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionLogitsGrow:
    """The largest attention logit grows without bound.

    What it detects:
        - The largest input to a module's softmax is above `high`.
        - Or it is above `limit`, and has risen at two measurements in a row.
        - Or it is above `limit`, and is more than `growth` times the first value of the module that was measured first.
          Modules are alike at the start, so this value is a baseline for all of them.
        - Warning: the loss is stuck or has risen far above its start, or it has stopped falling with more than half of
          it left.
        - Warning: the value is above `high` and still rises.
        - Warning, within the first 100 steps while more than half of the loss is left: the value has grown `growth`
          times, or all of several modules were above `high` when they were first measured.
        - Information: all other cases; heads may be sharp in a healthy training.

    Why it matters:
        With logits of some tens and more the softmax selects a single position. Its gradients vanish, and soon
        afterwards the loss diverges. The growth is seen long before the loss moves.

    Evidence:
        `attn/logit_max@…`, taken from a sample of the queries: the true maximum may be higher.

    What to do:
        - Normalise queries and keys (qk-norm).
        - Lower the learning rate.
        - Use weight decay on the projections of queries and keys.

    When it is wrong:
        - Some healthy heads look at one position with logits of 30 to 50 and stay there.

    References:
        Wortsman et al., Small-scale proxies for large-scale transformer training instabilities, ICLR 2024. Dehghani et
        al., Scaling vision transformers to 22 billion parameters, ICML 2023 (logits above 50,000).
    """

    code: ClassVar[str] = "ATT001"
    name: ClassVar[str] = "attention-logits-grow"
    needs: ClassVar[tuple[str, ...]] = ("attn/logit_max@",)
    reads: ClassVar[tuple[str, ...]] = needs
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.ATTENTION_LOGIT_GROWTH: (
            For("attention logits grow without bound"),
            For(when=When.ALARM),
            For("logits had grown before attention collapsed", when=When.FIRST),
        ),
        Cause.ATTENTION_ENTROPY_COLLAPSE: (
            For(),
            Against("logits had grown before the entropy collapsed", when=When.FIRST),
        ),
    }
    quiet_steps: ClassVar[int] = 400

    limit: float = 50.0
    high: float = 100.0
    growth: float = 10.0

    def init(self) -> AttentionLogitsGrowState:
        """Before the first step."""
        return AttentionLogitsGrowState()

    def step(self, state: AttentionLogitsGrowState, look: Look) -> tuple[AttentionLogitsGrowState, Sequence[Sighting]]:
        """Look at the modules whose turn it is."""
        layers = look.view.layers("attn/logit_max")
        if layers is None:
            return state, ()
        known = {name: (first, last, rises) for name, first, last, rises in state.seen}
        baseline = state.seen[0][1] if state.seen else float(layers.values[0])
        found = []
        for name, value in zip(layers.names, layers.values.tolist(), strict=True):
            first, last, rises = known.get(name, (value, value, 0))
            rises = rises + 1 if value > last else 0
            known[name] = (first, value, rises)
            if value > self.high or (value > self.limit and (rises >= 2 or value > self.growth * baseline)):
                found.append((value, name, rises))
        state = AttentionLogitsGrowState(tuple((name, *rest) for name, rest in known.items()))
        if not found:
            return state, ()
        value, name, rises = max(found)
        grows = value > self.high and rises >= 1
        born = len(known) > 1 and all(first > self.high for first, _, _ in known.values())
        early = look.view.step <= 100 and look.run.loss > 0.5 * look.run.loss_start > 0
        alarm = grows or (early and (born or value > self.growth * baseline))
        alarm = alarm or is_hurt(look.run) or is_stalled(look.run)
        severity = Severity.WARNING if alarm else Severity.INFO
        first = known[name][0]
        before = f", up from {amount(first)} when they were first measured" if value > first else ""
        message = f"the attention logits of {look.view.kinds.module(name)} reach {amount(value)}{before}"
        evidence = Evidence(tag=f"attn/logit_max@{name}", step=look.view.step, value=value, expected=first)
        return state, (Sighting(severity, message, where=tuple(n for _, n, _ in found), evidence=(evidence,)),)


def is_stalled(run: RunSummary) -> bool:
    """Whether the loss has stopped falling, or slowed to a crawl, with most of it still there."""
    return run.num_losses >= 100 and not run.is_falling and run.progress < 0.5
