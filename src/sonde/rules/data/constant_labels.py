"""DAT005 constant-labels."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.rules.levels import has_level
from sonde.rules.rule import Against, Cause, Claims, For, Look, Severity, Sighting, When
from sonde.rules.standing import Standing, stand


class ConstantLabelsState(NamedTuple):
    """What was said of integers in the batches, and of what is known to be targets."""

    given: Standing = Standing()
    used: Standing = Standing()
    costs: tuple[float, ...] = ()
    """What guessing has cost at the looks at the loss, none of them more than next to nothing."""
    is_varied: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ConstantLabels:
    """All targets are the same.

    What it detects:
        - The targets of the first batches, four of them and 32 examples at least, were the same of all examples.
        - A warning where the gradient of a cross-entropy shows it, which is negative at the target only.
        - Also a warning where the batches show it, the targets are no integers, and more than `gone` of the loss is
          gone: a model that always says the same is then perfect.
        - Information where the loss's own graph shows it (`loss/trivial` is below `nothing` of `loss/zeros` at each of
          `looks` looks): zeros may be meant, as residuals of an equation are compared with. A warning once `gone` of
          the loss is gone and validation is still above `unlearned` of its first value, or of the first training loss.
        - Else information: a loader gives targets that no loss looks at (pictures of one folder for a generator,
          lengths, masks, zeros for a player that finds its rewards itself).

    Why it matters:
        A model that always says the same is perfect: the loss falls to zero, and nothing is learned.

    Evidence:
        The facts `constant-labels` and `constant-targets` with the value of the targets; `label/num_distinct` of 1.

    What to do:
        Look at where targets are read and put together into batches: a wrong index or column, a forgotten shuffle of
        sorted data.

    When it is wrong:
        Players of a game get constant targets for each kind of example (all real, then all made up): where their
        batches come apart, the first ones are seen together with the others. Data sorted by class that are not shuffled
        are meant to be found.

    References:
        Humbatova et al., DeepCrime, ISSTA 2021 (mutations of labels).
    """

    code: ClassVar[str] = "DAT005"
    name: ClassVar[str] = "constant-labels"
    needs: ClassVar[tuple[str, ...]] = ()
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.NO_LEARNABLE_SIGNAL: (For("all targets are alike", when=When.ALARM), For("all targets are alike")),
        Cause.DATA_NOT_SHUFFLED: For("the first batches are all alike", when=When.ALARM),
        Cause.TRAIN_EVAL_MISMATCH: Against("constant targets in training explain it"),
    }
    quiet_steps: ClassVar[int] = 100

    gone: float = 0.95
    nothing: float = 1e-5
    looks: int = 3
    unlearned: float = 0.5

    def init(self) -> ConstantLabelsState:
        """Before the first step."""
        return ConstantLabelsState()

    def step(self, state: ConstantLabelsState, look: Look) -> tuple[ConstantLabelsState, Sequence[Sighting]]:
        """Look at the facts of one more step."""
        given, used = stand(state.given, look, "constant-targets"), stand(state.used, look, "constant-labels")
        state = self._after_cost(state._replace(given=given, used=used), look)
        known = used if used.since >= 0 else given
        if known.since < 0:
            return state, self._by_costs(state, look)
        what = "the same" if math.isnan(known.value) else f"{known.value:g}"
        message = f"all targets of the first batches are {what}{known.at}"
        matters = used.since >= 0 or (not given.get("is_integer") and self._is_perfect(look))
        severity = Severity.WARNING if matters else Severity.INFO
        return state, (Sighting(severity, message, since=known.since),)

    def _after_cost(self, state: ConstantLabelsState, look: Look) -> ConstantLabelsState:
        cost = look.scene.value("loss/trivial")
        if state.is_varied or not math.isfinite(cost) or not look.picture.loss_start > 0:
            return state
        zeros = look.scene.value("loss/zeros")
        if cost > self.nothing * (zeros if math.isfinite(zeros) else look.picture.loss_start):
            return state._replace(is_varied=True, costs=())
        return state._replace(costs=(*state.costs, cost)[-self.looks :])

    def _by_costs(self, state: ConstantLabelsState, look: Look) -> Sequence[Sighting]:
        picture = look.picture
        if len(state.costs) < self.looks or not picture.is_alone:
            return ()
        message = f"guessing always the same costs {state.costs[-1]:.3g} on the targets that the loss gets"
        is_unlearned = picture.val_best > self.unlearned * min(picture.loss_start, picture.val_first)
        severity = Severity.WARNING if self._is_perfect(look) and is_unlearned else Severity.INFO
        return (Sighting(severity, message, since=0),)

    def _is_perfect(self, look: Look) -> bool:
        return has_level(look) and look.picture.progress > self.gone
