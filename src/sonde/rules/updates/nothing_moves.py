"""UPD006 nothing-moves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import amount, count
from sonde.rules.rule import Against, Cause, Claims, For, Look, Severity, Sighting


class NothingMovesState(NamedTuple):
    """Steps in a row in which nothing can have moved, whether anything ever did, and whether the rate was above 0."""

    num_steps: int = 0
    since: int = -1
    moved: bool = False
    had_rate: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class NothingMoves:
    """The optimiser steps, but no weight changes.

    What it detects:
        One of these, for `patience` steps in a row, while nothing has ever moved:
        - The optimiser got a gradient of exactly zero, before clipping as well (a network of dead units) or only after
          it.
        - The optimiser finds no gradient at all, and every update that was measured is exactly zero.
        - The learning rate is 0 in every group, and was never above 0.
        - There are gradients and a learning rate, and the latest update of every tensor is exactly zero. This needs a
          measurement of all tensors.

        It is critical: nothing is learned, whatever the loss looks like. Steps that a gradient scaler skips do not
        count.

    Why it matters:
        The run is lost from its first step, and nothing crashes.

    Evidence:
        `update/norm@…` of 0; `grad/norm` that is missing or 0; `lr`.

    What to do:
        - Call `zero_grad()` before `backward()`, not between `backward()` and `step()`.
        - Build the optimiser from the parameters that the model has now.
        - Check that the learning rate is not 0.

    When it is wrong:
        - A loop that calls the optimiser before its first backward pass, for more than `patience` steps.

    References:
        Jiang et al., TrainCheck, OSDI 2025 (silent errors).
    """

    code: ClassVar[str] = "UPD006"
    name: ClassVar[str] = "nothing-moves"
    needs: ClassVar[tuple[str, ...]] = ("update/norm@",)
    reads: ClassVar[tuple[str, ...]] = ()
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.ZERO_GRAD_MISPLACED: For("no weight changes though the optimiser steps"),
        Cause.DEAD_UNITS: For(),
        Cause.MISSING_LOSS_SCALING: For("every gradient is exactly zero"),
        Cause.LR_TOO_LOW: Against(),
        Cause.NO_LEARNABLE_SIGNAL: Against(),
    }
    quiet_steps: ClassVar[int] = 100

    patience: int = 4

    def init(self) -> NothingMovesState:
        """Before the first step."""
        return NothingMovesState()

    def waits(self, state: NothingMovesState) -> bool:
        """Whether no weight has changed so far."""
        return not state.moved

    def step(self, state: NothingMovesState, look: Look) -> tuple[NothingMovesState, Sequence[Sighting]]:
        """Look at one more step."""
        view = look.view
        rates, updates = view.layers("lr"), view.layers("update/norm")
        if "lr" not in view and rates is None:
            return state, ()
        allowed = view.value("lr") > 0 or (rates is not None and bool(np.any(rates.values > 0)))
        moved = state.moved or (updates is not None and bool(np.any(updates.values > 0)))
        state = state._replace(moved=moved, had_rate=state.had_rate or allowed)
        reason = "" if moved else self._reason(look, allowed=allowed)
        if not reason or (state.had_rate and not allowed):
            return state._replace(num_steps=0, since=-1), ()
        since = state.since if state.num_steps else view.step
        state = state._replace(num_steps=state.num_steps + 1, since=since)
        if state.num_steps < self.patience:
            return state, ()
        tag = next((tag for tag in ("grad/norm_applied", "grad/norm") if tag in view), "lr")
        evidence = [look.evidence(tag, view.value(tag))]
        if updates is not None:
            evidence.append(look.evidence(f"update/norm@{updates.names[0]}", 0.0))
        message = f"no weight has changed in {count(state.num_steps, 'step')}: {reason}"
        return state, (Sighting(Severity.CRITICAL, message, evidence=tuple(evidence), since=since),)

    def _reason(self, look: Look, *, allowed: bool) -> str:
        """Why nothing can have moved at this step; empty where something may have."""
        view = look.view
        if not allowed:
            return "the learning rate is 0"
        if "loss" not in view:
            return ""
        updates, weights = look.views.latest("update/norm"), look.views.latest("weight/norm")
        still = updates is not None and bool(np.all(updates.values == 0))
        if view.value("grad/norm_applied") == 0:
            norm = view.value("grad/norm")
            return (
                f"the gradient ({amount(norm)}) is gone when the optimiser steps" if norm > 0 else "the gradient is 0"
            )
        gradients = look.views.latest("grad/norm")
        if "grad/norm" not in view and gradients is None:
            return "the optimiser finds no gradient" if still else ""
        if updates is None or weights is None or not still:
            return ""
        return "" if set(weights.names) - set(updates.names) else "all updates are exactly zero"
