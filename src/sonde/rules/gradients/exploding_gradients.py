"""GRD001 exploding-gradients."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import amount, count
from sonde.rules.history.progress import is_hurt, is_lost
from sonde.rules.history.run_summary import RunSummary
from sonde.rules.layer_depth import latest_matrices, matrices, slope
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Severity, Sighting, When
from sonde.signals.growth import Growth, GrowthState


class ExplodingGradientsState(NamedTuple):
    """The norm's growth, its last values, and the spikes that the loss followed."""

    growth: GrowthState
    recent: tuple[float, ...] = ()
    first_largest: float = float("nan")
    spike_step: int = -1
    is_high: bool = False
    """Whether the last norm was a spike, or on its way back from one."""
    followed: tuple[int, ...] = ()
    num_deep: int = 0
    thrown: str = ""
    """A matrix that one of the first steps moved by its own norm, by a gradient far above the last matrix'."""
    thrown_by: float = float("nan")


@dataclass(frozen=True, kw_only=True, slots=True)
class ExplodingGradients:
    """The gradient's norm grows without bound, from step to step or from layer to layer.

    What it detects:
        Any of these, of the norm before clipping:
        - Steady growth: the logarithm of the norm rises along a line over the last 64 steps (R² of 0.8 or more), the
          norm is more than `growth` times its start and above `large`. And the training is stuck, or the loss is far
          above its start, or the line reaches the limit of float32 within `horizon` steps.
        - A burst: each of the last three norms is at least twice the one before, and the last one is `growth` times the
          usual norm and six deviations of its logarithm above it. And the loss is above its usual band, or far above
          its start.
        - Growth with depth: RMS gradients rise geometrically towards the input, and the first weight matrix gets more
          than 100 times the gradient of the last one. It is information, and a warning if the training is stuck or the
          loss is far above its start.
        - Repeated spikes: `pairs` spikes of the norm within 256 steps, each followed within five steps by a jump of the
          loss that undoes most of what was learned. A swell that lasts several steps counts as one spike.
        - A first step far beyond the later ones: one of the first five norms was `growth` times the norm that became
          usual. It is information, and a warning if the training is stuck or the loss is far above its start.
        - A first step that throws the weights away: one of the first ten steps changed a matrix by its own norm or
          more; the RMS gradient of that matrix was more than ten times that of the last matrix; and after 40 losses the
          usual norm is below a tenth of the largest of the first five.

    Why it matters:
        A gradient that grows tenfold in ten steps soon makes a step that throws the weights away, and then NaN. The
        gradient shows it a few steps before the loss does.

    Evidence:
        `grad/norm` against its own past; `grad/rms@…` by depth; `loss`.

    What to do:
        - Clip the gradient norm at its usual value.
        - If the learning rate has just risen, divide it by 10.
        - If gradients grow with depth or with the length of sequences: change the initialisation, add residual
          connections and normalisation.

    When it is wrong:
        - A healthy training that leaves a plateau has gradients that grow exponentially for a while. That is why only
          growth beyond `growth` times the start counts.
        - Losses that are sums have large norms. That is why no absolute size counts by itself.

    References:
        Pascanu, Mikolov and Bengio, On the difficulty of training recurrent neural networks, ICML 2013.
    """

    code: ClassVar[str] = "GRD001"
    name: ClassVar[str] = "exploding-gradients"
    needs: ClassVar[tuple[str, ...]] = ("grad/norm",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.EXPLODING_GRADIENTS: (
            For("the gradient grows without bound"),
            For("the gradient grew before steps became too large", when=When.FIRST),
            For(when=When.ALARM),
            For("gradients grow with depth, or in one matrix far beyond the others", when=When.PLACED),
        ),
        Cause.MISSING_CLIPPING: For("single gradients are huge"),
        Cause.LONG_SEQUENCE: For(),
        Cause.MISSING_ZERO_GRAD: For(),
        Cause.GAIN_DRIFT: For(),
        Cause.LR_TOO_HIGH: Against(when=When.FIRST),
        Cause.PRECISION_OVERFLOW: Against(),
        Cause.NONFINITE_INPUT: Against("gradients had exploded before", when=When.ALARM, weight=-2.0),
    }
    quiet_steps: ClassVar[int] = 100
    guide: ClassVar[str] = "explosion"

    growth: float = 100.0
    large: float = 100.0
    horizon: int = 500
    pairs: int = 3

    def init(self) -> ExplodingGradientsState:
        """Before the first step."""
        return ExplodingGradientsState(_GROWTH.init(1))

    def step(self, state: ExplodingGradientsState, look: Look) -> tuple[ExplodingGradientsState, Sequence[Sighting]]:
        """Look at one more norm, and at the layers where they were measured."""
        run, seen = look.run, []
        norm = run.grad_norm
        if math.isfinite(norm):
            growth = _GROWTH.take(state.growth, np.array([norm]), look.view.step)
            first = state.first_largest
            if run.num_losses <= 5:
                first = float(np.fmax(first, norm))
            state = state._replace(growth=growth, recent=(*state.recent, norm)[-4:], first_largest=first)
            past = run.grad_start
            if norm > self.growth * past and norm > self.large and self._grows_steadily(growth, run):
                severity = Severity.CRITICAL if norm > 1000 * past and is_lost(run) else Severity.WARNING
                seen.append(self._say(run, severity, f"is {amount(norm / past)} times its start and growing", past))
            seen += self._burst(state, run)
            state, pairs = self._tails(state, run)
            seen += pairs
            seen += self._beginning(state, run)
        state, thrown = self._thrown(state, look)
        state, deep = self._depth(state, look)
        return state, (*seen, *thrown, *deep)

    def _grows_steadily(self, state: GrowthState, run: RunSummary) -> bool:
        growth = _GROWTH.judge(state)
        soon = is_hurt(run) or growth.earliest[0] < self.horizon
        return bool(growth.r_squared[0] >= 0.8 and growth.rate[0] > 0 and soon)

    def _say(self, run: RunSummary, severity: Severity, text: str, expected: float) -> Sighting:
        evidence = Evidence(tag="grad/norm", step=run.step, value=run.grad_norm, expected=expected)
        return Sighting(severity, f"the gradient norm, now {amount(run.grad_norm)}, {text}", evidence=(evidence,))

    def _burst(self, state: ExplodingGradientsState, run: RunSummary) -> list[Sighting]:
        norms = state.recent
        usual = run.grad_median if math.isfinite(run.grad_median) else run.grad_start
        doubled = all(later >= 2 * earlier for earlier, later in itertools.pairwise(norms))
        if len(norms) < 4 or not doubled or not norms[-1] > self.growth * usual:
            return []
        level = run.loss_median if math.isfinite(run.loss_median) else run.loss_start
        # The norms of small batches that are all but learned lie decades apart.
        stands_out = not run.grad_z < 6
        if not ((run.loss > 1.2 * abs(level) and stands_out) or is_lost(run)):
            return []
        severity = Severity.CRITICAL if norms[-1] > 100 * self.growth * usual else Severity.WARNING
        return [self._say(run, severity, "has at least doubled at each of the last three steps", usual)]

    def _tails(self, state: ExplodingGradientsState, run: RunSummary) -> tuple[ExplodingGradientsState, list[Sighting]]:
        is_high = run.grad_z > 6 and run.grad_norm > 3 * run.grad_median
        spike = run.step if is_high and not state.is_high else state.spike_step
        followed = tuple(step for step in state.followed if run.step - step < 256) if state.followed else ()
        jumped = run.loss_z > 5 and run.loss > 0.7 * run.loss_start > 0 and not run.is_falling
        jumped = jumped and run.is_measure
        if spike >= 0 and jumped and run.step - spike <= 5:
            followed, spike = (*followed, spike)[-16:], -1
        new_pair = followed != state.followed and len(followed) >= self.pairs
        if (spike, is_high, followed) != (state.spike_step, state.is_high, state.followed):
            state = state._replace(spike_step=spike, is_high=bool(is_high), followed=followed)
        if not new_pair:
            return state, []
        text = f"spiked {count(len(followed), 'time')} within 256 steps, each time followed by a jump of the loss"
        return state, [self._say(run, Severity.WARNING, text, run.grad_median)._replace(since=followed[0])]

    def _beginning(self, state: ExplodingGradientsState, run: RunSummary) -> list[Sighting]:
        if run.num_losses != 150 or run.is_solved or not state.first_largest > self.growth * run.grad_median:
            return []
        times = state.first_largest / run.grad_median
        severity = Severity.WARNING if is_hurt(run) else Severity.INFO
        text = f"was {amount(times)} times as large in one of the first five steps, which threw the weights far"
        return [self._say(run, severity, text, state.first_largest)._replace(since=1)]

    def _thrown(self, state: ExplodingGradientsState, look: Look) -> tuple[ExplodingGradientsState, list[Sighting]]:
        run = look.run
        if run.num_losses <= 10 and not state.thrown:
            ratios, sizes = look.view.layers("update/ratio"), latest_matrices(look.views, "grad/rms")
            if ratios is not None and sizes is not None and len(sizes.names) > 1:
                size = dict(zip(*sizes[:2], strict=True))
                for name, ratio in zip(*ratios[:2], strict=True):
                    if 1 <= ratio < np.inf and size.get(name, 0.0) > 10 * sizes.values[-1]:
                        state = state._replace(thrown=name, thrown_by=float(ratio))
        falls = 10 * run.grad_median < state.first_largest
        if not state.thrown or run.num_losses != 40 or run.is_solved or not falls:
            return state, []
        text = f"was {amount(state.first_largest)} in the first five steps, which changed `{state.thrown}` by "
        text += f"{amount(state.thrown_by)} times its own norm"
        sighting = self._say(run, Severity.WARNING, text, state.first_largest)
        return state, [sighting._replace(where=(state.thrown,), since=1)]

    def _depth(self, state: ExplodingGradientsState, look: Look) -> tuple[ExplodingGradientsState, list[Sighting]]:
        layers = look.view.layers("grad/rms")
        if layers is None:
            return state, []
        deep = matrices(layers, look.views)
        line = slope(deep.values)
        found = line is not None and line.per_layer < 0 and line.r_squared > 0.6 and line.first > 100 * line.last
        state = state._replace(num_deep=state.num_deep + 1 if found else 0)
        if line is None or state.num_deep < 2:
            return state, []
        message = (
            f"gradients grow by a factor of {amount(np.exp(-line.per_layer))} a layer towards the input: RMS "
            f"{amount(line.first)} at the first weight matrix, {amount(line.last)} at the last"
        )
        evidence = look.evidence(f"grad/rms@{deep.names[0]}", line.first, line.last)
        severity = Severity.WARNING if is_hurt(look.run) else Severity.INFO
        return state, [Sighting(severity, message, where=deep.names[:3], evidence=(evidence,))]


_GROWTH = Growth(min_values=20)
