"""UPD003 layer-not-learning."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.rules.depth import latest_matrices
from sonde.rules.progress import is_hurt
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Severity, Sighting
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
    """A layer gets gradients but its weights do not change, or far less than its peers'.

    What it detects:
        A true update of exactly zero of a parameter that has never moved, by its updates and the norm of its weights,
        while its gradient is not zero and others move: two such looks at a parameter, each after another look at its
        gradient; or, where a group has a rate of 0, one look each at two parameters after `first_steps` steps. A
        warning at once: nothing healthy does that, but for a group whose rate is 0. A gradient below `rounding` of the
        median RMS gradient of all parameters counts as zero. Apart from that, a weight matrix whose ‖Δθ‖/‖θ‖ is below a
        thousandth of its peers' median and 10 robust deviations (of the logarithm) below it, at three looks:
        information, a warning while training is hurt.

    Why it matters:
        The layer stays random; the model works around it, if it can.

    Evidence:
        `update/norm@…` of 0 beside `grad/norm@…` above 0; `update/ratio@…` against its peers; `lr@…`.

    What to do:
        Check the learning rate of its parameter group, and that the optimiser was built from the parameters that the
        model now has. In bf16 the update may be rounded away (UPD005).

    When it is wrong:
        A group frozen by a rate of 0 on purpose, or thawed later. Rounding in low precision is reported here too. What
        a loss does not depend on, such as a bias in front of a batch normalisation, has a gradient of rounding errors
        only, which moves nothing: that is why tiny gradients do not count. An expert that gets no tokens has no
        gradient at most steps: that is why a gradient counts once.

    References:
        Jiang et al., TrainCheck, OSDI 2025 (silent errors).
    """

    code: ClassVar[str] = "UPD003"
    name: ClassVar[str] = "layer-not-learning"
    needs: ClassVar[tuple[str, ...]] = ("update/norm@", "grad/norm@")
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
        updates, gradients = look.scene.layers("update/norm"), look.scenes.latest("grad/norm")
        if updates is None or gradients is None:
            return state, ()
        gradient = dict(zip(gradients.names, gradients.values.tolist(), strict=True))
        steps = {} if gradients.steps is None else dict(zip(gradients.names, gradients.steps.tolist(), strict=True))
        weights = look.scenes.latest("weight/norm")
        weight = {} if weights is None else dict(zip(*weights[:2], strict=True))
        zero = dict(zip(state.names, state.num_zero, strict=True))
        counted = dict(zip(state.names, state.pulled, strict=True))
        norms = dict(zip(state.names, state.norms, strict=True))
        low = dict(zip(state.names, state.num_low, strict=True))
        far = self._far_below(look)
        # At a rate of 0 for all (the first step of a warmup, the end of a schedule) nothing is meant to move.
        resting = look.scene.value("lr") == 0 and "lr@0" not in look.scene
        rates = look.scene.layers("lr")
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
        if sure and look.scene.step >= self.first_steps:
            name = max(still_names, key=lambda name: zero[name])
            message = f"{name} has a gradient ({gradient[name]:.3g}) but does not move"
            message += f", nor do {len(still_names) - 1} others" if len(still_names) > 1 else ""
            evidence = Evidence(tag=f"update/norm@{name}", step=look.scene.step, value=0.0)
            seen.append(Sighting(Severity.WARNING, message, where=still_names, evidence=(evidence,)))
        slow = tuple(name for name, count in low.items() if count >= self.num_looks)
        if slow:
            severity = Severity.WARNING if is_hurt(look.picture) else Severity.INFO
            message = f"{slow[0]} changes by {far.get(slow[0], float('nan')):.2g} a step, far below its peers"
            value = far.get(slow[0], float("nan"))
            evidence = Evidence(tag=f"update/ratio@{slow[0]}", step=look.scene.step, value=value)
            seen.append(Sighting(severity, message, where=slow, evidence=(evidence,)))
        return state, seen

    def _negligible(self, look: Look) -> frozenset[str]:
        """Parameters whose gradient is rounding beside what others get."""

        def compute() -> frozenset[str]:
            sizes = look.scenes.latest("grad/rms") or look.scenes.latest("grad/norm")
            if sizes is None or not (sizes.values > 0).any():
                return frozenset()
            least = self.rounding * float(np.median(sizes.values[sizes.values > 0]))
            return frozenset(name for name, value in zip(*sizes[:2], strict=True) if value < least)

        return look.scenes.derived(f"gradients below {self.rounding}", ("grad/rms", "grad/norm"), compute)

    def _far_below(self, look: Look) -> dict[str, float]:
        """The weight matrices far below their peers, and their ratios."""
        layers = latest_matrices(look.scenes, "update/ratio")
        if layers is None:
            return {}
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(layers.values)
        peers = against_peers(logs, floor=0.3)
        low = (peers.z < -10) & (logs < peers.median + np.log(1e-3))
        return {name: float(value) for name, value, is_low in zip(*layers[:2], low, strict=True) if is_low}
