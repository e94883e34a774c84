"""WGT006 weights-swell."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import amount, count
from sonde.rules.history.progress import is_hurt
from sonde.rules.layer_depth import matrices
from sonde.rules.rule import Against, Cause, Claims, For, Look, Onset, Severity, Sighting, When
from sonde.signals.medians import middle


class WeightsSwellState(NamedTuple):
    """The first RMS of each matrix (once they have swollen, of the one that grew most), and when that was."""

    first: tuple[tuple[str, float], ...] = ()
    start: int = -1
    since: int = -1
    times: float = 1.0
    has_jumped: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightsSwell:
    """Most weight matrices become several times as large within the first steps.

    What it detects:
        - The median over weight matrices of the RMS, relative to the first measurement, reaches `growth` within `early`
          steps.
        - It does so over several measurements: a jump from one to the next is reported by WGT002.
        - Matrices that begin below `started` of the median RMS do not count: they start at zero.
        - Models of a single matrix are not judged.
        - It is information, and a warning if the training is stuck, if the loss is far above its start, or if the loss
          has stopped falling with more than half of it left.

    Why it matters:
        A training refines its weights; it does not replace them within a few dozen steps. If it does, steps are as
        large as the weights, and the benefit of the initialisation is lost. Update ratios hide this: they fall as the
        weights grow, while the steps stay as long.

    Evidence:
        `weight/rms@…` at the first measurement and now.

    What to do:
        Divide the learning rate by 10 or more, or warm it up.

    When it is wrong:
        - Small recurrent networks, and networks that start near zero, grow as much in healthy trainings: then the loss
          falls, and the finding is information.

    References:
        Wortsman et al., Small-scale proxies for large-scale transformer training instabilities, ICLR 2024 (what grows
        with the learning rate).
    """

    code: ClassVar[str] = "WGT006"
    name: ClassVar[str] = "weights-swell"
    onset: ClassVar[Onset] = Onset.BACKDATED
    needs: ClassVar[tuple[str, ...]] = ("weight/rms@",)
    reads: ClassVar[tuple[str, ...]] = needs
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.LR_TOO_HIGH: (
            For("weights are replaced, not refined"),
            For("weights are replaced, and the training suffers from it", when=When.ALARM),
        ),
        Cause.OUTPUT_LOGIT_DRIFT: Against("all weights grew, and the logits with them"),
        Cause.GAIN_DRIFT: Against("all weights grew at once, which is no drift"),
        Cause.EMBEDDING_NORM_GROWTH: Against("all weights grew, not embeddings alone"),
        Cause.ATTENTION_LOGIT_GROWTH: Against("all weights grew, not those of attention alone"),
        Cause.ATTENTION_ENTROPY_COLLAPSE: Against("all weights grew, not those of attention alone"),
    }
    quiet_steps: ClassVar[int] = 400

    growth: float = 3.0
    early: int = 60
    started: float = 0.1

    def init(self) -> WeightsSwellState:
        """Before the first step."""
        return WeightsSwellState()

    def step(self, state: WeightsSwellState, look: Look) -> tuple[WeightsSwellState, Sequence[Sighting]]:
        """Look at the weights where they were measured."""
        late = state.since < 0 and look.view.step > state.start + self.early
        if state.has_jumped or (state.start >= 0 and late):
            return state, ()
        layers = look.view.layers("weight/rms")
        if layers is None:
            return state, ()
        if state.since < 0:
            deep = matrices(layers, look.views)
            pairs = zip(deep.names, deep.values.tolist(), strict=True)
            now = {name: value for name, value in pairs if math.isfinite(value) and value > 0}
            first = {**now, **dict(state.first)}
            state = state._replace(first=tuple(first.items()), start=look.view.step if state.start < 0 else state.start)
            # Those that start at zero, as bias tables and adapters do, can only grow.
            sizes = sorted(first.values())
            least = self.started * sizes[len(sizes) // 2] if sizes else 0.0
            times = {name: now[name] / first[name] for name in now if first[name] > least}
            # By logarithms: of an even number half may be tables that start near zero.
            typical = math.exp(middle([math.log(value) for value in times.values()])) if times else math.nan
            state = state._replace(has_jumped=typical > self.growth * state.times, times=typical)
            if len(times) < 2 or state.has_jumped or not typical >= self.growth:
                return state, ()
            widest = max(times, key=lambda name: times[name])
            state = state._replace(since=look.view.step, first=((widest, first[widest]),))
        ((name, at_first),) = state.first
        message = (
            f"weight matrices grew to {amount(state.times)} times their first size (median) within "
            f"{count(state.since - state.start, 'step')}"
        )
        value = float(layers.values[layers.names.index(name)]) if name in layers.names else math.nan
        evidence = look.evidence(f"weight/rms@{name}", value, at_first)
        run = look.run
        stalled = run.num_losses >= 100 and run.is_alone and not run.is_falling and run.progress < 0.5
        severity = Severity.WARNING if stalled or is_hurt(run) else Severity.INFO
        return state, (Sighting(severity, message, where=(name,), evidence=(evidence,), since=state.start),)
