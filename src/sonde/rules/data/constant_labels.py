"""DAT005 constant-labels."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import amount
from sonde.rules.history.level import has_level
from sonde.rules.rule import Against, Cause, Claims, For, Look, Severity, Sighting, When
from sonde.rules.sticky_fact import StickyFact, kept


class ConstantLabelsState(NamedTuple):
    """What was said of integers in the batches, and of what is known to be targets."""

    given: StickyFact = StickyFact()
    used: StickyFact = StickyFact()
    costs: tuple[float, ...] = ()
    """What guessing has cost at the looks at the loss, none of them more than next to nothing."""
    zeros: float = math.nan
    """What answers of zero cost at the last look."""
    is_varied: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ConstantLabels:
    """All targets are the same.

    What it detects:
        - The targets of the first batches (at least four batches and 32 examples) are the same for all examples.
        - Or the loss's own graph shows that one constant answer costs nothing: `loss/trivial` is below `nothing` of
          `loss/zeros` at `looks` measurements.
        - Warning: the gradient of a cross-entropy, which is negative at the target only, shows that the targets are
          constant.
        - Warning: the batches show it, the targets are not integers, and more than `gone` of the loss is gone. A model
          that always gives the same answer is perfect then.
        - Warning: the loss's graph shows it, more than `gone` of the loss is gone, and validation is still above
          `unlearned` of its first value or of the first training loss; or nothing was validated, and the constant is
          not zero.
        - Information: all other cases. A loss may compare with zeros on purpose, and a loader may give targets that no
          loss looks at.

    Why it matters:
        A model that always gives the same answer is perfect on such targets: the loss falls to zero, and nothing is
        learned.

    Evidence:
        The facts `constant-labels` and `constant-targets` with the value of the targets; `loss/trivial`;
        `label/num_distinct` of 1.

    What to do:
        - Look at where targets are read and put together into batches: a wrong index or a wrong column.
        - Shuffle data that are sorted by class.

    When it is wrong:
        - The players of a game get constant targets for each kind of example (first all real, then all made up).
        - Data that are sorted by class have constant targets in the first batches only. This finding is meant: such
          data should be shuffled.

    References:
        Humbatova et al., DeepCrime, ISSTA 2021 (mutations of labels).
    """

    code: ClassVar[str] = "DAT005"
    name: ClassVar[str] = "constant-labels"
    needs: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[str, ...]] = ("loss/trivial",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.NO_LEARNABLE_SIGNAL: (For("all targets are alike", when=When.ALARM), For("all targets are alike")),
        Cause.DATA_NOT_SHUFFLED: For("the targets of the first batches are all alike", when=When.ALARM),
        Cause.TRAIN_EVAL_MISMATCH: Against("constant targets in training explain the difference"),
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
        given, used = kept(state.given, look, "constant-targets"), kept(state.used, look, "constant-labels")
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
        cost = look.view.value("loss/trivial")
        if state.is_varied or not math.isfinite(cost) or not look.run.loss_start > 0:
            return state
        zeros = look.view.value("loss/zeros")
        if cost > self.nothing * (zeros if math.isfinite(zeros) else look.run.loss_start):
            return state._replace(is_varied=True, costs=())
        return state._replace(costs=(*state.costs, cost)[-self.looks :], zeros=zeros)

    def _by_costs(self, state: ConstantLabelsState, look: Look) -> Sequence[Sighting]:
        run = look.run
        if len(state.costs) < self.looks or not run.is_alone:
            return ()
        message = (
            f"one constant answer to all examples has a loss of {amount(state.costs[-1])}: "
            "all targets that the loss compares with are the same"
        )
        is_unlearned = run.val_best > self.unlearned * min(run.loss_start, run.val_first)
        is_unlearned |= not run.num_evaluations and state.zeros > self.nothing * run.loss_start
        severity = Severity.WARNING if self._is_perfect(look) and is_unlearned else Severity.INFO
        return (Sighting(severity, message, since=0),)

    def _is_perfect(self, look: Look) -> bool:
        return has_level(look) and look.run.progress > self.gone
