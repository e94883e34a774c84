"""ATT004 embedding-norm-grows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.parameter_kinds import Kind
from sonde.core.quantities import amount
from sonde.rules.history.progress import is_hurt
from sonde.rules.rule import Cause, Claims, Evidence, For, Look, Severity, Sighting
from sonde.signals.medians import middle


class EmbeddingNormGrowsState(NamedTuple):
    """The first and the latest RMS of each parameter, and rises in a row of each embedding."""

    first: tuple[tuple[str, float], ...] = ()
    rises: tuple[tuple[str, int], ...] = ()
    latest: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbeddingNormGrows:
    """An embedding becomes many times as large while the rest of the weights keeps its size.

    What it detects:
        - The RMS of an embedding is more than `growth` times its first value. A first value below `least_start`, the
          usual one, counts as `least_start`.
        - That growth is more than `relative` times the median growth of all other weights.
        - The RMS has risen at two measurements in a row.
        - A parameter is an embedding by the class of its module, or by its name if the run has no model table.
        - Warning: the growth is above ten times `growth`.
        - Warning: the growth came within 50 steps, the first value was at least `least_start`, and the training does
          not thrive.
        - Warning: the loss is stuck or has risen far above its start.
        - Information: all other cases.

    Why it matters:
        The residual stream begins with the embedding. A huge embedding drowns what the blocks add to the stream, and
        makes the logits and the gradients behind it huge as well.

    Evidence:
        `weight/rms@…` of the embedding against its first value.

    What to do:
        - Use a lower learning rate for embeddings.
        - Use weight decay on embeddings.
        - Normalise after the embedding.

    When it is wrong:
        - Embeddings that start small may become several times as large in a healthy training.

    References:
        Takase et al., Spike no more: stabilizing the pre-training of large language models, 2023.
    """

    code: ClassVar[str] = "ATT004"
    name: ClassVar[str] = "embedding-norm-grows"
    needs: ClassVar[tuple[str, ...]] = ("weight/rms@",)
    reads: ClassVar[tuple[str, ...]] = needs
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.EMBEDDING_NORM_GROWTH: For("an embedding grew far more than the other weights"),
    }
    quiet_steps: ClassVar[int] = 400

    growth: float = 5.0
    relative: float = 3.0
    least_start: float = 0.02

    def init(self) -> EmbeddingNormGrowsState:
        """Before the first step."""
        return EmbeddingNormGrowsState()

    def step(self, state: EmbeddingNormGrowsState, look: Look) -> tuple[EmbeddingNormGrowsState, Sequence[Sighting]]:
        """Look at the weights where they were measured."""
        layers = look.view.layers("weight/rms")
        if layers is None:
            return state, ()
        now = {n: v for n, v in zip(layers.names, layers.values.tolist(), strict=True) if math.isfinite(v)}
        first, latest, rises = {**now, **dict(state.first)}, dict(state.latest), dict(state.rises)
        kinds = look.view.kinds
        embeddings = [n for n in now if kinds.of(n) is Kind.EMBEDDING]
        others = [now[n] / first[n] for n in now.keys() - set(embeddings) if first[n] > 0]
        usual = middle(others) if others else 1.0
        found = []
        for name in embeddings:
            rises[name] = rises.get(name, 0) + 1 if now[name] > latest.get(name, now[name]) else 0
            times = now[name] / max(first[name], self.least_start)
            if times > self.growth and times > self.relative * usual and rises[name] >= 2:
                found.append((times, name))
        state = EmbeddingNormGrowsState(tuple(first.items()), tuple(rises.items()), tuple(now.items()))
        if not found:
            return state, ()
        times, name = max(found)
        # From nothing, any step is a large one.
        fast = look.view.step <= 50 and first[name] >= self.least_start and not look.run.is_thriving
        alarm = times > 10 * self.growth or fast or is_hurt(look.run)
        message = (
            f"the RMS of embedding `{name}` rose from {amount(first[name])} to {amount(now[name])}; other weights are "
            f"{amount(usual)} times as large as at the start"
        )
        evidence = Evidence(tag=f"weight/rms@{name}", step=look.view.step, value=now[name], expected=first[name])
        severity = Severity.WARNING if alarm else Severity.INFO
        return state, (Sighting(severity, message, where=tuple(n for _, n in found), evidence=(evidence,)),)
