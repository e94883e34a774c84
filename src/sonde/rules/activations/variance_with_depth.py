"""ACT005 variance-with-depth."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.parameter_kinds import Kind
from sonde.core.quantities import amount
from sonde.rules.history.progress import is_hurt
from sonde.rules.layer_depth import kind_of, slope
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Severity, Sighting, When
from sonde.rules.step_view import Layers

_FIRST = 20
_SIZES = ("batch/size", "batch/samples", "batch/tokens")


class VarianceWithDepthState(NamedTuple):
    """When it was first seen; the first losses; looks at bias gradients, until one does not grow towards the input."""

    since: int = -1
    losses: tuple[float, ...] = ()
    sizes: tuple[float, ...] = ()
    """Numbers of examples and tokens in a batch: multiples of guessing that a sum would start at."""
    num_looks: int = 0
    is_even: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class VarianceWithDepth:
    """Activations grow or fade geometrically from layer to layer.

    What it detects:
        - Activations: the RMS of the outputs of modules of one kind (the same name except for numbers) grows or fades
          with depth. Its logarithm is a line (R² ≥ 0.8 over at least four modules; over three modules all factors are
          above three and point one way), and the ends are more than `spread` times apart.
        - Modules are measured at different steps. Nothing is said if the weights may have moved by more than `moved` of
          their norm between these steps.
        - Gradients: the RMS gradients of biases of one kind grow towards the input in the same way (R² ≥ 0.9), from the
          first measurement on and at two measurements at least. The gradient of a bias is the gradient that passes its
          layer, so this growth is the gain of the layers.
        - Warning: the loss is stuck (from 40 losses on if the ends are more than `spread`² times apart, otherwise from
          100 on), or it has risen far above its start.
        - Warning: the signal grows, and the first loss was more than `drop` times the median of losses 11 to 20.
        - Warning: the signal grows, and the median of losses 11 to 20 is more than twice the cost of guessing. A loss
          that is summed over the batch does not count.
        - Information: all other cases.

    Why it matters:
        Activations that grow forwards make gradients explode backwards; activations that fade make gradients vanish. At
        the start of a training the cause is the initialisation.

    Evidence:
        `act/rms@…` of the first and the last module; `grad/rms@…` of the first and the last bias; the first values of
        `loss`.

    What to do:
        - Use He initialisation for ReLU and its relatives, Xavier for tanh, or LSUV.
        - Put a normalisation layer into each block.
        - Scale residual branches by 1/√(2·depth).

    When it is wrong:
        - In pre-norm residual networks the residual stream grows by design, but like the square root of depth and not
          geometrically.
        - The gradient of a bias also grows with the number of positions that it is summed over, as in early
          convolutions.

    References:
        He et al., Delving deep into rectifiers, ICCV 2015. Mishkin and Matas, All you need is a good init, ICLR 2016.
    """

    code: ClassVar[str] = "ACT005"
    name: ClassVar[str] = "variance-with-depth"
    needs: ClassVar[tuple[str, ...]] = ("act/rms@", "grad/rms@")
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.BAD_INITIALISATION: (
            For("activations grow or fade with depth from the start on"),
            For("the training suffers from their scale", when=When.ALARM),
        ),
        Cause.ACTIVATION_EXPLOSION: (
            For(),
            For("activations grow with depth, and the training suffers", when=When.ALARM),
        ),
        Cause.DEAD_UNITS: Against("the initialisation made the units silent"),
        Cause.VANISHING_GRADIENTS: Against(),
        Cause.LR_TOO_HIGH: Against("activations were out of scale from the start"),
        Cause.NO_LEARNABLE_SIGNAL: Against("signals fade or grow with depth"),
        Cause.PLATEAU: Against(),
    }
    quiet_steps: ClassVar[int] = 1_000
    guide: ClassVar[str] = "vanishing"

    spread: float = 30.0
    drop: float = 4.0
    moved: float = 0.1

    def init(self) -> VarianceWithDepthState:
        """Before the first step."""
        return VarianceWithDepthState()

    def step(self, state: VarianceWithDepthState, look: Look) -> tuple[VarianceWithDepthState, Sequence[Sighting]]:
        """Look at the modules and biases whose turn it is, and again when progress can be judged."""
        sizes = [look.view.value(tag) for tag in _SIZES if tag in look.view]
        if sizes:
            state = state._replace(sizes=tuple(sizes))
        if len(state.losses) < _FIRST and math.isfinite(look.run.loss):
            state = state._replace(losses=(*state.losses, look.run.loss))
        state, backward = self._backward(state, look)
        if backward is not None:
            return self._see(state, look, "grad/rms", backward)
        latest = look.views.latest("act/rms")
        looked = look.view.layers("act/rms") is not None
        if latest is None or not (looked or look.run.num_losses in (44, 100)):
            return state, ()
        forward = self._chain(latest, fit=0.8)
        if forward is None or self._may_be_time(forward, look):
            return state, ()
        return self._see(state, look, "act/rms", forward)

    def _may_be_time(self, found: Layers, look: Look) -> bool:
        """Whether weights moved so much between the looks that what differs may be the time, not the depth."""
        span = 0 if found.steps is None else int(np.ptp(found.steps))
        return look.run.ratio * span > self.moved

    def _see(
        self, state: VarianceWithDepthState, look: Look, path: str, found: Layers
    ) -> tuple[VarianceWithDepthState, Sequence[Sighting]]:
        state = state._replace(since=state.since if state.since >= 0 else look.view.step)
        first, last = float(found.values[0]), float(found.values[-1])
        ends = found.names[:1] + found.names[-1:]
        if path == "act/rms":
            here, there = map(look.view.kinds.module, ends)
            what = f"activations {'fade' if last < first else 'grow'} from layer to layer"
        else:
            (here, there), what = (f"`{name}`" for name in ends), "gradients of biases grow towards the input"
        message = f"{what}: their RMS is {amount(first)} at {here} and {amount(last)} at {there}"
        evidence = Evidence(tag=f"{path}@{found.names[-1]}", step=look.view.step, value=last, expected=first)
        explodes = (last > first) == (path == "act/rms")
        beyond = max(last / first, first / last) > self.spread**2
        alarm = is_hurt(look.run, soon=beyond) or (explodes and self._begins_badly(state, look))
        severity = Severity.WARNING if alarm else Severity.INFO
        return state, (Sighting(severity, message, where=ends, evidence=(evidence,), since=state.since),)

    def _backward(self, state: VarianceWithDepthState, look: Look) -> tuple[VarianceWithDepthState, Layers | None]:
        """The biases along which gradients have grown towards the input ever since the first look."""
        layers = look.view.layers("grad/rms")
        if layers is None or state.is_even:
            return state, None
        places = np.flatnonzero(look.view.kinds.are(Kind.BIAS, layers.names))
        biases = Layers(tuple(layers.names[place] for place in places), layers.values[places])
        chain = self._chain(biases, fit=0.9)
        if chain is None or chain.values[-1] > chain.values[0]:
            return state._replace(is_even=True), None
        state = state._replace(num_looks=state.num_looks + 1)
        return state, chain if state.num_looks > 1 else None

    def _begins_badly(self, state: VarianceWithDepthState, look: Look) -> bool:
        """Whether the first losses show outputs that are far too large."""
        if len(state.losses) < _FIRST or not state.losses[0] > 0 or not look.run.is_alone:
            return False
        later, trivial = float(np.median(state.losses[_FIRST // 2 :])), look.run.trivial
        if 0 < self.drop * later < state.losses[0]:
            return True
        if not (later > 2 * trivial > 0 and state.sizes):
            return False
        return not any(0.5 * size < state.losses[0] / trivial < 2 * size for size in state.sizes)

    def _chain(self, layers: Layers, *, fit: float) -> Layers | None:
        kinds: dict[str, list[int]] = {}
        for place in sorted(range(len(layers.names)), key=lambda place: _numbers(layers.names[place])):
            if math.isfinite(layers.values[place]) and layers.values[place] > 0:
                kinds.setdefault(kind_of(layers.names[place]), []).append(place)
        for places in kinds.values():
            values = layers.values[places]
            if len(places) < 3 or not max(values[-1] / values[0], values[0] / values[-1]) > self.spread:
                continue
            ratios = values[1:] / values[:-1]
            line = slope(values)
            steep = bool(np.all(ratios > 3) or np.all(ratios < 1 / 3))
            if steep or (line is not None and line.r_squared > fit):
                steps = None if layers.steps is None else layers.steps[places]
                return Layers(tuple(layers.names[place] for place in places), values, steps)
        return None


def _numbers(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in name.split(".") if part.isdigit())
