"""UPD003 layer-not-learning."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import amount, count
from sonde.rules.history.progress import is_hurt
from sonde.rules.layer_depth import latest_matrices
from sonde.rules.rule import Against, Cause, Claims, For, Look, Severity, Sighting
from sonde.signals.peers import against_peers


class LayerNotLearningState(NamedTuple):
    """Per parameter: how many times in a row its update was zero, and far below its peers; and which ever moved."""

    names: tuple[str, ...] = ()
    num_zero: tuple[int, ...] = ()
    num_low: tuple[int, ...] = ()
    pulled: tuple[int, ...] = ()
    """The step of the gradient at the last look that counted, 0 where none did."""
    norms: tuple[float, ...] = ()
    """The weights' norm at the first look that counted."""
    moved: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerNotLearning:
    """A layer gets gradients, but its weights do not change, or far less than those of its peers.

    What it detects:
        - A parameter that has never moved gets an update of exactly zero, while its gradient is not zero and other
          parameters move. Two such measurements, each after another measurement of the gradient, make it a warning.
        - If a group has a learning rate of 0, one measurement each of two parameters is enough, after `first_steps`
          steps.
        - A gradient below `rounding` of the median RMS gradient of all parameters counts as zero.
        - Apart from that: the updates of a weight matrix, relative to its norm, are below a thousandth of the median of
          all matrices and 10 robust deviations (of the logarithm) below it, at `num_looks` measurements in a row. This
          is information, and a warning if the training is stuck or the loss is far above its start.

    Why it matters:
        The layer stays random. The model works around it, if it can.

    Evidence:
        `update/norm@…` of 0 while `grad/norm@…` is above 0; `update/ratio@…` against its peers; `lr@…`.

    What to do:
        Check the learning rate of the parameter's group. Check that the optimiser was built from the parameters that
        the model has now. In bfloat16 the update may be rounded away (UPD005).

    When it is wrong:
        - A group that a learning rate of 0 freezes on purpose, or that is thawed later.
        - Rounding in low precision is reported here too.
        - A parameter that the loss does not depend on, such as a bias before a batch norm, has a gradient of rounding
          errors only, which moves nothing. That is why tiny gradients do not count.
        - An expert that gets no tokens has no gradient at most steps. That is why each gradient counts once.

    References:
        Jiang et al., TrainCheck, OSDI 2025 (silent errors).
    """

    code: ClassVar[str] = "UPD003"
    name: ClassVar[str] = "layer-not-learning"
    needs: ClassVar[tuple[str, ...]] = ("update/norm@", "grad/norm@")
    reads: ClassVar[tuple[str, ...]] = ("update/norm@",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.FROZEN_LAYER: For("a parameter has gradients and never moves"),
        Cause.PRECISION_UNDERFLOW: For(),
        Cause.PARAMETER_NOT_IN_OPTIMIZER: For(),
        Cause.DISCONNECTED_LAYER: Against(),
    }
    quiet_steps: ClassVar[int] = 200
    guide: ClassVar[str] = "layer-not-learning"

    first_steps: int = 3
    num_looks: int = 3
    rounding: float = 1e-5

    def init(self) -> LayerNotLearningState:
        """Before the first step."""
        return LayerNotLearningState()

    def step(self, state: LayerNotLearningState, look: Look) -> tuple[LayerNotLearningState, Sequence[Sighting]]:
        """Look at the tensors whose turn it is."""
        updates, gradients = look.view.layers("update/norm"), look.views.latest("grad/norm")
        if updates is None or gradients is None:
            return state, ()
        gradient = dict(zip(gradients.names, gradients.values.tolist(), strict=True))
        steps = {} if gradients.steps is None else dict(zip(gradients.names, gradients.steps.tolist(), strict=True))
        weights = look.views.latest("weight/norm")
        weight = {} if weights is None else dict(zip(*weights[:2], strict=True))
        zero = dict(zip(state.names, state.num_zero, strict=True))
        counted = dict(zip(state.names, state.pulled, strict=True))
        norms = dict(zip(state.names, state.norms, strict=True))
        low = dict(zip(state.names, state.num_low, strict=True))
        far = self._far_below(look)
        # At a rate of 0 for all (the first step of a warmup, the end of a schedule) nothing is meant to move.
        resting = look.view.value("lr") == 0 and "lr@0" not in look.view
        rates = look.view.layers("lr")
        if rates is not None:
            resting = bool(np.all(rates.values == 0))
        moved, negligible = state.moved, self._negligible(look)
        changed = {name for name, norm in norms.items() if not math.isnan(norm) and weight.get(name, norm) != norm}
        new = {name for name, norm in zip(updates.names, updates.values.tolist(), strict=True) if norm > 0} | changed
        if new := new - moved:
            moved = moved | new
        for name, norm in zip(updates.names, updates.values.tolist(), strict=True):
            pulled = gradient.get(name, 0.0) > 0 and name not in negligible
            still = norm == 0 and pulled and name not in moved and not resting
            fresh = steps.get(name, 0) > counted.get(name, 0) or not zero.get(name, 0)
            zero[name] = zero.get(name, 0) + fresh if still else 0
            counted[name] = steps.get(name, 0) if still else counted.get(name, 0)
            norms[name] = norms.get(name, math.nan) if zero[name] != 1 else float(weight.get(name, math.nan))
            low[name] = low.get(name, 0) + 1 if name in far else 0
        state = LayerNotLearningState(
            tuple(zero),
            tuple(zero.values()),
            tuple(low[name] for name in zero),
            tuple(counted[name] for name in zero),
            tuple(norms[name] for name in zero),
            moved,
        )
        if not moved:
            return state, ()
        seen = []
        still_names = tuple(name for name, count in zero.items() if count)
        stopped = rates is not None and bool((rates.values == 0).any())
        sure = any(count > 1 for count in zero.values()) or (stopped and len(still_names) > 1)
        if sure and look.view.step >= self.first_steps:
            name = max(still_names, key=lambda name: zero[name])
            message = f"parameter `{name}` has a gradient (norm {amount(gradient[name])}) but does not move"
            message += f", like {count(len(still_names) - 1, 'other parameter')}" if len(still_names) > 1 else ""
            evidence = look.evidence(f"update/norm@{name}", 0.0)
            seen.append(Sighting(Severity.WARNING, message, where=still_names, evidence=(evidence,)))
        slow = tuple(name for name, count in low.items() if count >= self.num_looks)
        if slow:
            severity = Severity.WARNING if is_hurt(look.run) else Severity.INFO
            value = far.get(slow[0], float("nan"))
            message = f"a step changes `{slow[0]}` by {amount(value)} of its norm, far less than other weight matrices"
            evidence = look.evidence(f"update/ratio@{slow[0]}", value)
            seen.append(Sighting(severity, message, where=slow, evidence=(evidence,)))
        return state, seen

    def _negligible(self, look: Look) -> frozenset[str]:
        """Parameters whose gradient is rounding beside what others get."""

        def compute() -> frozenset[str]:
            sizes = look.views.latest("grad/rms") or look.views.latest("grad/norm")
            if sizes is None or not (sizes.values > 0).any():
                return frozenset()
            least = self.rounding * float(np.median(sizes.values[sizes.values > 0]))
            return frozenset(name for name, value in zip(*sizes[:2], strict=True) if value < least)

        return look.views.derived(f"gradients below {self.rounding}", ("grad/rms", "grad/norm"), compute)

    def _far_below(self, look: Look) -> dict[str, float]:
        """The weight matrices far below their peers, and their ratios."""
        layers = latest_matrices(look.views, "update/ratio")
        if layers is None:
            return {}
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(layers.values)
        peers = against_peers(logs, floor=0.3)
        low = (peers.z < -10) & (logs < peers.median + np.log(1e-3))
        return {name: float(value) for name, value, is_low in zip(*layers[:2], low, strict=True) if is_low}
