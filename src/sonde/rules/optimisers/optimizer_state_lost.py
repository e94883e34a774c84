"""OPT004 optimizer-state-lost."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import amount
from sonde.core.quantities import share as percent
from sonde.rules.history.tracking import spread
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Severity, Sighting, When
from sonde.rules.step_view import Fact

_RESUMES = frozenset({"resumed", "branch", "restored"})

_HAS_STATE = re.compile("adam|lion|rms|adagrad|lamb|adafactor|rprop|sophia|shampoo|muon", re.IGNORECASE)


class OptimizerStateLostState(NamedTuple):
    """What Adam's untouched shares and the schedule were before, and the moment under suspicion."""

    shares: tuple[tuple[str, float], ...] = ()
    first_lr: float = float("nan")
    lr: float = float("nan")
    changed: bool = False
    jump_step: int = -1
    usual_loss: float = float("nan")
    num_constant: int = 0
    resumed_step: int = -1
    ratios: tuple[tuple[str, float], ...] = ()
    """Of each tensor before the run was resumed …"""
    leaps: tuple[tuple[str, float], ...] = ()
    """… and how many times as large it is since."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerStateLost:
    """The optimiser begins anew in the middle of a training.

    What it detects:
        - Second moments: the share of a tensor's second moments that are exactly zero rises by more than `share`. In a
          training that goes on it can only fall.
        - Schedule: after a schedule had brought it to less than half, the learning rate jumps back to exactly its first
          value and stays there for `patience` steps, and the smoothed loss rises by more than a fifth. The scheduler
          was lost as well then.
        - Update ratio: within 20 steps after the run was resumed, the median of the measured tensors (at least half of
          all) moves by more than `jump` times what it moved before.
        - Event: the run was resumed, and the state of an optimiser that keeps one was empty.
        - Always a warning.

    Why it matters:
        Adam's first steps after that have full size in every direction, and undo what the last steps had refined.

    Evidence:
        `adam/zero_share@…`, `lr`, `update/ratio@…`, `loss`.

    What to do:
        - Save and load `optimizer.state_dict()` with the model, and those of the scheduler and of the scaler.
        - Go back to the checkpoint.
        - Without a checkpoint, warm the learning rate up again over a few hundred steps.

    When it is wrong:
        - A cosine schedule with restarts jumps back to its first rate too, but goes on to fall.
        - A second stage of training may begin with a new optimiser on purpose.

    References:
        PyTorch tutorials, Saving and loading a general checkpoint in PyTorch (the state of the optimiser belongs to
        it).
    """

    code: ClassVar[str] = "OPT004"
    name: ClassVar[str] = "optimizer-state-lost"
    needs: ClassVar[tuple[str, ...]] = ("lr", "adam/zero_share@")
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.OPTIMIZER_STATE_LOST: (For("the optimiser or its schedule began anew"), For(when=When.ALARM)),
        Cause.LR_SPIKE: Against("the rate went back to its first value and stayed there"),
        Cause.BAD_BATCH: Against("the optimiser began anew"),
    }
    quiet_steps: ClassVar[int] = 500

    share: float = 0.05
    patience: int = 20
    jump: float = 5.0

    def init(self) -> OptimizerStateLostState:
        """Before the first step."""
        return OptimizerStateLostState()

    def step(self, state: OptimizerStateLostState, look: Look) -> tuple[OptimizerStateLostState, Sequence[Sighting]]:
        """Look at one more step."""
        seen: list[Sighting] = []
        state = self._moments(state, look, seen)
        state = self._schedule(state, look, seen)
        state = self._ratios(state, look, seen)
        seen += [sighting for fact in look.view.facts if (sighting := _empty(fact, look.view.step))]
        return state, seen

    def _moments(self, state: OptimizerStateLostState, look: Look, seen: list[Sighting]) -> OptimizerStateLostState:
        layers = look.view.layers("adam/zero_share")
        if layers is None:
            return state
        known = dict(state.shares)
        for name, value in zip(layers.names, layers.values.tolist(), strict=True):
            before = known.get(name, value)
            if value > before + self.share:
                message = (
                    f"{percent(value)} of the second moments of `{name}` are zero, up from {percent(before)}: "
                    "the optimiser began anew"
                )
                evidence = Evidence(tag=f"adam/zero_share@{name}", step=look.view.step, value=value, expected=before)
                since = state.jump_step if state.jump_step >= 0 else None
                seen.append(Sighting(Severity.WARNING, message, where=(name,), evidence=(evidence,), since=since))
            known[name] = value
        return state._replace(shares=tuple(known.items()))

    def _schedule(self, state: OptimizerStateLostState, look: Look, seen: list[Sighting]) -> OptimizerStateLostState:
        run, lr = look.run, look.view.value("lr")
        if not lr > 0:
            return state
        if not state.first_lr > 0:
            return state._replace(first_lr=lr, lr=lr)
        back = abs(lr - state.first_lr) < 1e-6 * lr and state.lr < 0.5 * state.first_lr
        if back:
            state = state._replace(jump_step=run.step, usual_loss=run.loss_smooth, num_constant=0)
        elif state.jump_step >= 0:
            still = abs(lr - state.lr) < 1e-6 * lr
            state = state._replace(num_constant=state.num_constant + 1) if still else state._replace(jump_step=-1)
        if lr != state.lr:
            state = state._replace(lr=lr)
        worse = run.loss_smooth > 1.2 * state.usual_loss > 0
        if state.jump_step >= 0 and state.num_constant == self.patience and worse:
            message = (
                f"the learning rate jumped back to its first value of {amount(lr)} and stays there, and the loss rose "
                f"from {amount(state.usual_loss)} to {amount(run.loss_smooth)}"
            )
            evidence = Evidence(tag="lr", step=state.jump_step, value=lr)
            seen.append(Sighting(Severity.WARNING, message, evidence=(evidence,), since=state.jump_step))
        return state

    def _ratios(self, state: OptimizerStateLostState, look: Look, seen: list[Sighting]) -> OptimizerStateLostState:
        if any(fact.kind in _RESUMES for fact in look.view.facts):
            latest = look.views.latest("update/ratio")
            known = () if latest is None else tuple(zip(latest.names, latest.values.tolist(), strict=True))
            state = state._replace(resumed_step=look.view.step, ratios=known, leaps=())
        layers = look.view.layers("update/ratio")
        if layers is None or state.resumed_step < 0 or look.view.step - state.resumed_step > 20:
            return state
        before, leaps = dict(state.ratios), dict(state.leaps)
        for name, value in zip(before, spread(layers, tuple(before)).tolist(), strict=True):
            if math.isfinite(value) and before[name] > 0:
                leaps[name] = value / before[name]
        state = state._replace(leaps=tuple(leaps.items()))
        if 2 * len(leaps) < len(before) or not leaps:
            return state
        names = sorted(leaps, key=lambda name: -leaps[name])
        name = names[len(names) // 2]
        if leaps[name] > self.jump:
            value = leaps[name] * before[name]
            message = (
                f"since the run was resumed, a step changes `{name}` by {percent(value)} of its norm; before, it was "
                f"{percent(before[name])}"
            )
            evidence = Evidence(tag=f"update/ratio@{name}", step=look.view.step, value=value, expected=before[name])
            where = tuple(name for name in names if leaps[name] > self.jump)
            seen.append(
                Sighting(Severity.WARNING, message, where=where, evidence=(evidence,), since=state.resumed_step)
            )
        return state


def _empty(fact: Fact, step: int) -> Sighting | None:
    """What an event says of an optimiser that has a state at every other time."""
    if fact.kind == "restored" and fact.data.get("num_with_state") == 0 and fact.data.get("num_before", 0) > 0:
        lost = [fact.data]
    elif fact.kind == "resumed":
        optimizers = fact.data.get("optimizers", ())
        lost = [one for one in optimizers if one.get("num_with_state") == 0 and _HAS_STATE.search(one["optimizer"])]
    else:
        lost = []
    if not lost:
        return None
    return Sighting(
        Severity.WARNING, f"the training was resumed, and the state of {lost[0]['optimizer']} was empty", since=step
    )
