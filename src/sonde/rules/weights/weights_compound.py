"""WGT007 weights-compound."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import share
from sonde.rules.history.level import has_level
from sonde.rules.layer_depth import matrices
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Onset, Severity, Sighting, When
from sonde.signals.phases import Phase

_MOST = 64


class WeightsCompoundState(NamedTuple):
    """The RMS of each weight matrix at the first look, and the growth since then at up to 64 looks."""

    names: tuple[str, ...] = ()
    first: tuple[float, ...] = ()
    steps: tuple[int, ...] = ()
    growths: tuple[float, ...] = ()
    """Logarithms, medians over matrices."""
    since: int = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightsCompound:
    """Weight matrices grow by the same percentage step after step, like money at compound interest.

    What it detects:
        G is the median over weight matrices of ln(RMS / RMS at the first measurement).
        - G reaches `growth` over at least `least_steps` steps and `least_looks` measurements.
        - G rises along a line: its rise over each quarter of that time is within a third of their mean, and the newer
          half rises at least 97% as much as the older half.
        - It starts again when the learning rate changes.
        - It is information. It is a warning once the loss no longer falls and had its best value at least 30 steps ago,
          unless the loss is nearly gone or does not measure progress.

    Why it matters:
        Steps of an optimiser lengthen weights at most in proportion to the number of steps, and more slowly in relation
        to the weights themselves. Growth by a constant percentage feeds on itself: a penalty of the wrong sign, or a
        loss that rewards large weights. With every layer it multiplies gains and gradients.

    Evidence:
        `weight/rms@…` at the first measurement and now.

    What to do:
        Check the signs of penalties and of the weight decay. Add weight decay or normalisation if there is none.

    When it is wrong:
        - Growth by a few per cent cannot be told from growth by steps of one length: at `growth`, the newer half of
          that is 0.86 of the older half.
        - Models of a single matrix are not judged.

    References:
        Loshchilov and Hutter, Decoupled weight decay regularization, ICLR 2019 (the factor 1 − ηλ a step; here the
        factor is above 1).
    """

    code: ClassVar[str] = "WGT007"
    name: ClassVar[str] = "weights-compound"
    onset: ClassVar[Onset] = Onset.BACKDATED
    needs: ClassVar[tuple[str, ...]] = ("weight/rms@",)
    reads: ClassVar[tuple[str, ...]] = needs
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.GAIN_DRIFT: (
            For("weights grow by a constant percentage a step"),
            For("weights keep growing and the loss no longer falls", when=When.ALARM),
        ),
        Cause.MISSING_LR_DECAY: Against("the weights grow, not the noise", when=When.ALARM),
    }
    quiet_steps: ClassVar[int] = 400

    growth: float = 0.3
    least_steps: int = 100
    least_looks: int = 8

    def init(self) -> WeightsCompoundState:
        """Before the first step."""
        return WeightsCompoundState()

    def waits(self, state: WeightsCompoundState) -> bool:
        """Whether the loss is looked at in between."""
        return state.since >= 0

    def step(self, state: WeightsCompoundState, look: Look) -> tuple[WeightsCompoundState, Sequence[Sighting]]:
        """Look at the weights where they were measured, and at the loss in between."""
        run, layers = look.run, look.view.layers("weight/rms")
        if layers is None and state.since < 0:
            return state, ()
        if run.phase in (Phase.WARMUP, Phase.DECAY) or run.lr_jumped:
            return WeightsCompoundState(), ()  # another rate, another percentage
        if layers is not None:
            deep = matrices(layers, look.views)
            if not state.names:
                usable = len(deep.names) > 1 and bool(np.all(deep.values > 0))
                names, first = (deep.names, tuple(deep.values.tolist())) if usable else ((), ())
                return WeightsCompoundState(names, first, (look.view.step,), (0.0,)), ()
            if deep.names == state.names and bool(np.all(deep.values > 0)):
                growth = float(np.median(np.log(deep.values / np.array(state.first))))
                state = self._taken(state, look.view.step, growth)
        if state.since < 0:
            return state, ()
        grown = math.expm1(state.growths[-1])
        message = (
            f"weight matrices have grown by {share(grown)} in {state.steps[-1] - state.steps[0]:,} steps (median), by "
            "a constant percentage a step"
        )
        stands = not run.is_falling and run.step - run.best_step >= 30
        bad = stands and run.num_losses >= 100 and has_level(look) and not run.is_solved
        if layers is None and not bad:
            return state, ()
        name, at_first = state.names[0], state.first[0]
        latest = look.views.latest("weight/rms")
        value = math.nan if latest is None else float(latest.values[latest.names.index(name)])
        evidence = Evidence(tag=f"weight/rms@{name}", step=state.steps[-1], value=value, expected=at_first)
        severity = Severity.WARNING if bad else Severity.INFO
        return state, (Sighting(severity, message, where=state.names[:3], evidence=(evidence,), since=state.steps[0]),)

    def _taken(self, state: WeightsCompoundState, step: int, growth: float) -> WeightsCompoundState:
        steps, growths = (*state.steps, step), (*state.growths, growth)
        if len(steps) > _MOST:
            steps, growths = steps[::2], growths[::2]
        long = len(steps) >= self.least_looks and steps[-1] - steps[0] >= self.least_steps and growth >= self.growth
        since = (state.since if state.since >= 0 else step) if long and _keeps_pace(steps, growths) else -1
        return state._replace(steps=steps, growths=growths, since=since)


def _keeps_pace(steps: tuple[int, ...], growths: tuple[float, ...]) -> bool:
    """Whether growth went along a line that does not bend down."""
    quarters = np.diff(np.interp(np.linspace(steps[0], steps[-1], 5), steps, growths))
    even = np.abs(quarters - quarters.mean()).max() < quarters.mean() / 3
    return bool(even and quarters[2:].sum() > 0.97 * quarters[:2].sum())
