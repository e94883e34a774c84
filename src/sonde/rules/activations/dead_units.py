"""ACT001 dead-units."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import share as percent
from sonde.rules.history.progress import is_hurt
from sonde.rules.layer_depth import matrices
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Severity, Sighting, When
from sonde.rules.step_view import Layers

_NEARLY_ALL = 0.9


class DeadUnitsState(NamedTuple):
    """Of gradients: looks in a row with mostly exact zeros, by parameter, and the shares of the first look."""

    names: tuple[str, ...] = ()
    num_looks: tuple[int, ...] = ()
    first: tuple[float, ...] = ()
    constant: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadUnits:
    """Many units of a layer never fire, and so get no gradient.

    What it detects:
        - More than `share` of a layer's units are silent for all examples of the measured batches (`act/dead`).
        - More than `share` of an activation function's units give one and the same value for every example of the
          batch, at two measurements in a row (`act/constant`).
        - More than `share` of a weight matrix' gradient is exactly zero at `num_looks` measurements in a row
          (`grad/zeros`). A silent unit leaves one row of zeros.
        - Warning: the gradients of all weight matrices are exactly zero.
        - Warning: the loss is stuck (from 40 losses on if more than 90% of the units are silent, otherwise from 100
          on), or it has risen far above its start.
        - Warning: more than 90% of a gradient is zero, that share has grown by half since the first measurement, and
          the loss no longer falls although it is not nearly gone.
        - Information: all other cases.

    Why it matters:
        No gradient reaches a dead ReLU, so it stays dead. The width of the layer is lost; if all units of a layer die,
        the training is over.

    Evidence:
        `act/dead@…`, `act/constant@…`, `grad/zeros@…`.

    What to do:
        - Lower the learning rate, and start again from a checkpoint from before the units died; the finding names the
          step.
        - Use He initialisation with small biases.
        - Use leaky ReLU or GELU.
        - Lengthen the warmup.

    When it is wrong:
        - Half of a ReLU's outputs are zero in a healthy training. This rule counts units, not outputs.
        - Sparse inputs leave columns of the first matrix without gradients, and rare classes leave rows of the last one
          without gradients. The loss falls then, and the finding is information.

    References:
        Lu et al., Dying ReLU and initialization, 2019.
    """

    code: ClassVar[str] = "ACT001"
    name: ClassVar[str] = "dead-units"
    needs: ClassVar[tuple[str, ...]] = ("act/dead@", "grad/zeros@")
    reads: ClassVar[tuple[str, ...]] = ("act/dead@", "act/constant@", "grad/zeros@")
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.DEAD_UNITS: (
            For("silent units get a gradient of exactly zero"),
            For(when=When.ALARM),
            For(when=When.FIRST),
        ),
        Cause.LR_TOO_HIGH: For(),
        Cause.LR_SPIKE: For(),
        Cause.BATCH_TOO_SMALL: For(),
        Cause.MISSING_LOSS_SCALING: For("gradients are exactly zero"),
        Cause.LR_TOO_LOW: Against("units get no gradient", when=When.ALARM),
        Cause.PLATEAU: Against("units are dead"),
        Cause.NO_LEARNABLE_SIGNAL: Against(),
    }
    quiet_steps: ClassVar[int] = 300
    guide: ClassVar[str] = "layer-not-learning"

    share: float = 0.5
    num_looks: int = 3

    def init(self) -> DeadUnitsState:
        """Before the first step."""
        return DeadUnitsState()

    def step(self, state: DeadUnitsState, look: Look) -> tuple[DeadUnitsState, Sequence[Sighting]]:
        """Look at the modules and parameters that were measured."""
        state, from_modules = self._modules(state, look)
        state, from_gradients = self._gradients(state, look)
        found = from_modules + from_gradients
        return state, found

    def _modules(self, state: DeadUnitsState, look: Look) -> tuple[DeadUnitsState, list[Sighting]]:
        dead, constant = look.view.layers("act/dead"), look.view.layers("act/constant")
        found: dict[str, tuple[str, float]] = {}
        if dead is not None:
            found.update({n: ("act/dead", v) for n, v in zip(*dead[:2], strict=True) if v > self.share})
        functions = look.view.layers("act/positive")
        if constant is not None and functions is not None:
            counts = dict(state.constant)
            for name, value in zip(*constant[:2], strict=True):
                if name in functions.names:
                    counts[name] = counts.get(name, 0) + 1 if value > self.share else 0
                    if counts[name] >= 2:
                        found.setdefault(name, ("act/constant", value))
            state = state._replace(constant=tuple(counts.items()))
        if not found:
            return state, []
        name, (tag, value) = max(found.items(), key=lambda item: item[1][1])
        silent = "give the same value for every example" if tag == "act/constant" else "are silent"
        message = f"{percent(value)} of the units of {look.view.kinds.module(name)} {silent}"
        evidence = Evidence(tag=f"{tag}@{name}", step=look.view.step, value=float(value), expected=0.0)
        severity = Severity.WARNING if is_hurt(look.run, soon=value > _NEARLY_ALL) else Severity.INFO
        return state, [Sighting(severity, message, where=tuple(found), evidence=(evidence,))]

    def _gradients(self, state: DeadUnitsState, look: Look) -> tuple[DeadUnitsState, list[Sighting]]:
        run, layers = look.run, look.view.layers("grad/zeros")
        if layers is None:
            return state, []
        known = dict(zip(state.names, zip(state.num_looks, state.first, strict=True), strict=True))
        zeros = matrices(Layers(layers.names, layers.values), look.views)
        for name, value in zip(zeros.names, zeros.values.tolist(), strict=True):
            count, first = known.get(name, (0, value))
            known[name] = (count + 1 if value > self.share else 0), first
        state = state._replace(
            names=tuple(known),
            num_looks=tuple(count for count, _ in known.values()),
            first=tuple(first for _, first in known.values()),
        )
        found = [n for n in zeros.names if known[n][0] >= self.num_looks]
        whole = len(zeros.names) >= 2 and bool(np.all(zeros.values == 1)) and known[zeros.names[0]][0] >= 2
        if not found and not whole:
            return state, []
        values = dict(zip(zeros.names, zeros.values.tolist(), strict=True))
        name = max(found or zeros.names, key=lambda name: values[name])
        grown = (
            values[name] > _NEARLY_ALL
            and values[name] - known[name][1] > 0.5
            and run.num_losses >= 100
            and not run.is_falling
        )
        # Who has learned most of it, and keeps it, did not need those units.
        well = run.is_solved or (run.is_thriving and run.progress > 0.7)
        grown = grown and run.is_measure and not well
        alarm = whole or grown or is_hurt(run, soon=values[name] > _NEARLY_ALL)
        before = (
            f", up from {percent(known[name][1])} when it was first measured" if known[name][1] < values[name] else ""
        )
        message = f"{percent(values[name])} of the gradient of `{name}` is exactly zero{before}"
        evidence = Evidence(tag=f"grad/zeros@{name}", step=look.view.step, value=values[name], expected=known[name][1])
        severity = Severity.WARNING if alarm else Severity.INFO
        where = tuple(found) or zeros.names
        return state, [Sighting(severity, message, where=where, evidence=(evidence,))]
