"""ATT004 embedding-norm-grows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.parameter_kinds import Kind
from sonde.rules.progress import is_hurt
from sonde.rules.rule import Cause, Claims, Evidence, For, Look, Severity, Sighting
from sonde.signals.medians import middle


class EmbeddingNormGrowsState(NamedTuple):
    """The first and the latest RMS of each parameter, and rises in a row of each embedding."""

    first: tuple[tuple[str, float], ...] = ()
    rises: tuple[tuple[str, int], ...] = ()
    latest: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbeddingNormGrows:
    """An embedding grows many times over while the rest of the weights stays as it is.

    What it detects:
        The RMS of an embedding (by the class of its module; by its name where the run has no model table), `growth`
        times that of the first look (counted as `least_start`, the usual one, where it was less) and `relative` times the median growth of all other weights, risen at two looks in
        a row. Information while the loss falls; a warning past ten times `growth`, where it grew past `growth` within
        50 steps of a start that was no less than usual, or while training is hurt.

    Why it matters:
        The residual stream begins with the embedding: a huge one drowns what blocks add to it, and log Z and the
        gradient of everything behind it follow.

    Evidence:
        `weight/rms@…` of the embedding against its first value.

    What to do:
        A lower rate for embeddings; weight decay on them; normalise after the embedding.

    When it is wrong:
        Embeddings that start small may grow several times in healthy training.

    References:
        Takase et al., Spike no more: stabilizing the pre-training of large language models, 2023.
    """

    code: ClassVar[str] = "ATT004"
    name: ClassVar[str] = "embedding-norm-grows"
    needs: ClassVar[tuple[str, ...]] = ("weight/rms@",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.EMBEDDING_NORM_GROWTH: For("an embedding grew many times over"),
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
        layers = look.scene.layers("weight/rms")
        if layers is None:
            return state, ()
        now = {n: v for n, v in zip(layers.names, layers.values.tolist(), strict=True) if math.isfinite(v)}
        first, latest, rises = {**now, **dict(state.first)}, dict(state.latest), dict(state.rises)
        kinds = look.scene.kinds
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
        fast = look.scene.step <= 50 and first[name] >= self.least_start  # from nothing, any step is a large one
        alarm = times > 10 * self.growth or fast or is_hurt(look.picture)
        since = "at first" if first[name] >= self.least_start else f"the usual start of {self.least_start}"
        message = f"{name} is {times:.3g} times as large as {since}, other weights {usual:.2g} times"
        evidence = Evidence(tag=f"weight/rms@{name}", step=look.scene.step, value=now[name], expected=first[name])
        severity = Severity.WARNING if alarm else Severity.INFO
        return state, (Sighting(severity, message, where=tuple(n for _, n in found), evidence=(evidence,)),)
