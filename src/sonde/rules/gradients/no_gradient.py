"""GRD014 no-gradient."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import count
from sonde.rules.history.progress import is_hurt
from sonde.rules.rule import Against, Cause, Claims, For, Look, Severity, Sighting


class NoGradientState(NamedTuple):
    """Parameters that never had a gradient, those whose gradient was always zero, and what is frozen."""

    absent: tuple[str, ...] = ()
    zero: tuple[str, ...] = ()
    alive: frozenset[str] = frozenset()
    num_looks: int = 0
    still: frozenset[str] = frozenset()
    frozen: frozenset[str] = frozenset()
    frozen_others: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class NoGradient:
    """A parameter that the optimiser holds gets no gradient, while others do.

    What it detects:
        Either of these:
        - A parameter has a `weight/norm@…` but never a `grad/norm@…`: its gradient is None at every step that was
          measured. A second measurement confirms it, or an update of exactly zero after `first_steps` steps.
        - The gradient of a parameter is exactly zero at every one of at least `num_looks` measurements.

        Parameters that are known to be frozen do not count. It is information, and a warning if the training is stuck
        or the loss is far above its start. From the series alone, a parameter that is frozen on purpose cannot be told
        from one that the loss does not reach; dead units give exact zeros as well.

    Why it matters:
        The loss does not depend on the parameter: the parameter is detached or unused, or its output is thrown away. It
        stays at its random start.

    Evidence:
        `grad/norm@…` that is missing or 0; `update/norm@…` that is 0.

    What to do:
        - Look for `detach`, `torch.no_grad`, `.data`, `.item()`, argmax and numpy between the layer and the loss.
        - Look for modules that `forward` never calls.
        - If the parameter is meant to be frozen, call `requires_grad_(False)` on it and do not give it to the
          optimiser.

    When it is wrong:
        - Experts and branches that only some batches use.
        - Heads of tasks that come later.
        - Frozen parameters that the optimiser holds, in a run that does not say that they are frozen.

    References:
        Jiang et al., TrainCheck, OSDI 2025 (silent errors).
    """

    code: ClassVar[str] = "GRD014"
    name: ClassVar[str] = "no-gradient"
    needs: ClassVar[tuple[str, ...]] = ("grad/norm@", "weight/norm@")
    reads: ClassVar[tuple[str, ...]] = ("grad/norm@", "weight/norm@", "update/norm@")
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.DISCONNECTED_LAYER: For("a parameter never had a gradient"),
        Cause.DEAD_UNITS: For(),
        Cause.FROZEN_LAYER: For(),
        Cause.LR_TOO_LOW: Against(),
        Cause.NO_LEARNABLE_SIGNAL: Against("parameters get no gradient"),
    }
    quiet_steps: ClassVar[int] = 200
    guide: ClassVar[str] = "layer-not-learning"

    num_looks: int = 3
    first_steps: int = 3

    def init(self) -> NoGradientState:
        """Before the first step."""
        return NoGradientState()

    def step(self, state: NoGradientState, look: Look) -> tuple[NoGradientState, Sequence[Sighting]]:
        """Look at the layers where they were measured."""
        view = look.view
        for fact in view.facts:
            if fact.kind == "preflight" and fact.data.get("check") == "frozen-parameter":
                names = frozenset(map(str, fact.data.get("where") or ()))
                many = int(fact.data.get("num") or 0) > len(names)
                state = state._replace(frozen=state.frozen | names, frozen_others=state.frozen_others or many)
        updates = view.layers("update/norm")
        if updates is not None:
            still = {name for name, norm in zip(updates.names, updates.values, strict=True) if norm == 0}
            state = state._replace(still=(state.still | still) - (set(updates.names) - still))
        gradients, weights = view.layers("grad/norm"), view.layers("weight/norm")
        if gradients is not None and weights is not None:
            given = dict(zip(gradients.names, gradients.values.tolist(), strict=True))
            alive = state.alive | {name for name, norm in given.items() if norm != 0}
            state = state._replace(
                alive=alive,
                absent=tuple(name for name in weights.names if name not in given and name not in alive),
                zero=tuple(name for name in weights.names if given.get(name) == 0 and name not in alive),
                num_looks=state.num_looks + 1,
            )
        elif updates is None:
            return state, ()
        if not state.alive or not state.num_looks:
            return state, ()
        absent = () if state.frozen_others else tuple(name for name in state.absent if name not in state.frozen)
        sure = state.num_looks > 1 or (view.step >= self.first_steps and state.still & set(absent))
        if absent and sure:
            severity = Severity.WARNING if is_hurt(look.run) else Severity.INFO
            said = f"{_named(absent)} never had a gradient"
            evidence = look.evidence(f"weight/norm@{absent[0]}", _weight(look, absent[0]))
            return state, (Sighting(severity, said, where=absent, evidence=(evidence,), since=1),)
        if state.zero and state.num_looks >= self.num_looks:
            severity = Severity.WARNING if is_hurt(look.run) else Severity.INFO
            said = f"{_named(state.zero)} always had a gradient of exactly zero"
            evidence = look.evidence(f"grad/norm@{state.zero[0]}", 0.0)
            return state, (Sighting(severity, said, where=state.zero, evidence=(evidence,), since=1),)
        return state, ()


def _named(names: tuple[str, ...]) -> str:
    others = f" and {count(len(names) - 1, 'other')}" if len(names) > 1 else ""
    return f"{'parameters' if others else 'parameter'} `{names[0]}`{others}"


def _weight(look: Look, name: str) -> float:
    latest = look.views.latest("weight/norm")
    return float("nan") if latest is None else float(latest.values[latest.names.index(name)])
