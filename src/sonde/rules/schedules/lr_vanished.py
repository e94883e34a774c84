"""SCH002 lr-vanished."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import amount, share
from sonde.rules.history.block_means import BlockMeans
from sonde.rules.history.level import has_level, left
from sonde.rules.history.most_fall import most_fall
from sonde.rules.rule import Against, Cause, Claims, For, Look, Severity, Sighting, When

_MOST_MARKS = 24
_NOTHING = 1e-6  # of the peak


class LrVanishedState(NamedTuple):
    """The sum of rates so far, the loss at marks of it, and when the rate was gone."""

    travelled: float = 0.0
    marks: tuple[tuple[float, float], ...] = ()
    """(sum of rates, smoothed loss), each sum at least a tenth above the one before."""
    gone: int = -1
    falling: float = float("nan")
    """The relative fall of the loss over the last third of the way, when the rate was gone."""
    share: float = float("nan")
    """What was left of the loss then."""
    lr: float = float("nan")
    """The rate of the step before."""
    base: float = 0.0
    """The rate before it last leapt up: to fall back to it is no decay."""
    since: BlockMeans = BlockMeans(width=2)
    """The losses since the rate was gone."""
    num_zero: int = 0
    """Steps in a row at a rate of nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LrVanished:
    """The learning rate is almost zero while there was still much to learn.

    What it detects:
        - The learning rate is below `gone` of its peak.
        - The loss was still falling well then: over the last third of the sum of learning rates so far, it fell by
          `least_fall` of what was left. The sum is the measure, since a lower learning rate moves less a step. This is
          information.
        - It is a warning if three things come together: more than `high` of the loss is left; the loss has not fallen
          since by two standard errors, and cannot have fallen by a tenth within them; and training goes on for longer
          than an ordinary schedule does at its end, which is 30 steps and an eighth of the steps before.
        - Ten steps and that eighth are enough if the learning rate is below a millionth of its peak: such steps move
          nothing.
        - It is also a warning, whatever the loss is, if the learning rate has been below a millionth of its peak for
          as many steps as there were before, and at least 30.
        - A learning rate that falls back to where it was before a jump does not count.

    Why it matters:
        All further steps change almost nothing.

    Evidence:
        `lr` against its peak; how the loss fell before the decay.

    What to do:
        Stretch the schedule to the length of the run, or end it at a tenth of the peak. Check whether the scheduler is
        stepped per batch or per epoch.

    When it is wrong:
        - A learning rate of zero on purpose (frozen phases, runs that only evaluate).
        - A run that stops soon after its schedule's end: then the finding is information.

    References:
        Loshchilov and Hutter, SGDR, ICLR 2017. Hoffmann et al., Training compute-optimal large language models, 2022
        (a schedule must be as long as the run).
    """

    code: ClassVar[str] = "SCH002"
    name: ClassVar[str] = "lr-vanished"
    needs: ClassVar[tuple[str, ...]] = ("lr", "loss")
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.SCHEDULE_DECAYS_TOO_FAST: For(
            "the learning rate was almost zero while the loss still fell", when=When.ALARM
        ),
        Cause.SCHEDULE_MISAPPLIED: For("the learning rate is almost zero", when=When.ALARM),
        Cause.PLATEAU: Against("the loss stands because the learning rate is almost zero", when=When.ALARM),
        Cause.NO_LEARNABLE_SIGNAL: Against("the learning rate is almost zero"),
        Cause.LR_TOO_LOW: Against("the learning rate is low only since it decayed", when=When.ALARM),
    }
    quiet_steps: ClassVar[int] = 50

    gone: float = 0.01
    least_fall: float = 0.05
    high: float = 0.25

    def init(self) -> LrVanishedState:
        """Before the first step."""
        return LrVanishedState()

    def step(self, state: LrVanishedState, look: Look) -> tuple[LrVanishedState, Sequence[Sighting]]:
        """Look at one more rate."""
        run = look.run
        if "lr" not in look.view or not run.lr_peak > 0:
            return state, ()
        travelled = state.travelled + run.lr
        leapt = run.lr_jumped and run.lr > 2 * state.lr
        num_zero = state.num_zero + 1 if run.lr < _NOTHING * run.lr_peak else 0
        base, marks = state.lr if leapt else state.base, state.marks
        if run.lr >= self.gone * run.lr_peak or 0 < 0.5 * base <= run.lr:
            if math.isfinite(run.loss_smooth) and (not marks or travelled > 1.1 * marks[-1][0]):
                marks = (*marks, (travelled, run.loss_smooth))[-_MOST_MARKS:]
            old = state.falling, state.share
            return LrVanishedState(travelled, marks, -1, *old, run.lr, base, num_zero=num_zero), ()
        state = state._replace(travelled=travelled, lr=run.lr, base=base, num_zero=num_zero)
        rose = run.num_losses > 1 and state.marks  # a warmup that starts at zero has no peak yet
        if not rose:
            return state, ()
        if state.gone < 0:
            state = state._replace(gone=run.step, falling=self._fall(state, look), share=left(run))
        evidence = look.evidence("lr", run.lr, run.lr_peak), look.evidence("loss", run.loss_smooth)
        since = (
            f"the learning rate has been below {share(self.gone)} of its peak ({amount(run.lr_peak)}) since step "
            f"{state.gone:,}"
        )
        if num_zero > max(30, state.gone) and not (has_level(look) and run.is_solved):
            message = f"{since} and is {amount(run.lr)} now: nothing has been learned since then"
            return state, (Sighting(Severity.WARNING, message, evidence=evidence, since=state.gone),)
        if not has_level(look):
            return state, ()
        state = state._replace(since=state.since.extended(run.loss))
        if not state.falling > self.least_fall:
            return state, ()
        idle = run.step - state.gone
        # At a rate of nothing no loss can fall; elsewhere the last 100 losses would mix in those of the descent.
        trend = state.since.trend()
        still = trend is not None and trend.t > -2 and most_fall(state.since) < 0.1 * run.loss_smooth
        over = idle > max(30, state.gone / 8) and still
        over = over or state.num_zero > max(10, state.gone / 8)
        lasting = over and state.share > self.high
        message = f"{since}, where the loss was still falling; it is {amount(run.lr)} now"
        severity = Severity.WARNING if lasting else Severity.INFO
        return state, (Sighting(severity, message, evidence=evidence, since=state.gone),)

    def _fall(self, state: LrVanishedState, look: Look) -> float:
        """How much the loss fell over the last third of the way, relative to what is left of it."""
        before = [loss for way, loss in state.marks if way <= 2 / 3 * state.travelled]
        now = look.run.loss_smooth
        return (before[-1] - now) / now if before and now > 0 else float("nan")
