"""SCH007 rate-runs-away."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sonde.core.quantities import amount, share
from sonde.rules.layer_depth import latest_typical
from sonde.rules.rule import Cause, Claims, For, Look, Severity, Sighting, When

_LEAST_CHANGES = 16
_MOST_CHANGES = 64


class RateRunsAwayState(NamedTuple):
    """The rise of the rate that is under way, and measurements in a row at which it does harm."""

    rates: tuple[float, ...] = ()
    """Logarithms of the last different rates, each above the one before …"""
    first: float = float("nan")
    """… and of the one from which the rise began."""
    first_step: int = -1
    num_looks: int = 0
    looked: float = float("nan")
    """The logarithm of the rate when steps were last measured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RateRunsAway:
    """The learning rate grows by a factor a step, without end, and the loss has turned up.

    What it detects:
        - Since it last fell, the learning rate has grown `growth` times, in 16 changes or more.
        - Of its last 64 changes, the newer half has multiplied it by `half` or more, and by about as much as the older
          half or by more. That is exponential growth; a warmup adds instead. This is information.
        - It is a warning if, for `num_looks` steps, updates are above `ratio` of the weights, and the smoothed loss is
          above its best by half a deviation of a single loss. Updates are those last measured, times the growth of the
          learning rate since.

    Why it matters:
        It will reach a learning rate that is too high for this model; the only question is when.

    Evidence:
        `lr` now and where its rise began; `loss` against its best; `update/ratio@…`.

    What to do:
        Look at the schedule: a decay factor above 1, a wrong sign, a multiplication that was meant to happen once. Go
        back to the learning rate at which the loss was lowest.

    When it is wrong:
        - A range test of the learning rate does this on purpose.
        - Warmups that multiply are over before steps become large.

    References:
        Smith, Cyclical learning rates for training neural networks, WACV 2017 (learning-rate range test).
    """

    code: ClassVar[str] = "SCH007"
    name: ClassVar[str] = "rate-runs-away"
    needs: ClassVar[tuple[str, ...]] = ("lr",)
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.LR_TOO_HIGH: For("the learning rate grows without end", when=When.ALARM),
    }
    quiet_steps: ClassVar[int] = 50
    guide: ClassVar[str] = "explosion"

    growth: float = 10.0
    half: float = 1.5
    ratio: float = 0.05
    num_looks: int = 3

    def init(self) -> RateRunsAwayState:
        """Before the first step."""
        return RateRunsAwayState()

    def step(self, state: RateRunsAwayState, look: Look) -> tuple[RateRunsAwayState, Sequence[Sighting]]:
        """Look at one more rate and loss."""
        run, rate = look.run, look.view.value("lr")
        if not 0 < rate < math.inf:
            return state, ()
        log = math.log(rate)
        if not state.rates or log < state.rates[-1]:
            return RateRunsAwayState((log,), log, run.step), ()
        if log > state.rates[-1]:
            state = state._replace(rates=(*state.rates, log)[-_MOST_CHANGES - 1 :])
        if look.view.layers("update/ratio") is not None:
            state = state._replace(looked=log)
        if not self._runs_away(state):
            return state, ()
        # Steps grow as the rate does, whoever makes them: they need not be measured again for that.
        ratios = (latest_typical(look.views, "update/ratio"), run.ratio)
        ratio = max((known for known in ratios if math.isfinite(known)), default=math.nan)
        ratio *= math.exp(log - state.looked)
        is_above = run.loss_smooth - run.loss_best > 0.5 * run.loss_scale
        harms = run.is_alone and is_above and ratio > self.ratio
        state = state._replace(num_looks=state.num_looks + 1 if harms else 0)
        is_sure = state.num_looks >= self.num_looks
        times = math.exp(log - state.first)
        message = f"the learning rate has grown {amount(times)}-fold since step {state.first_step:,}, faster and faster"
        if is_sure:
            message += (
                f"; steps change weights by {share(ratio)} of their norm, and the loss rose from "
                f"{amount(run.loss_best)} to {amount(run.loss_smooth)}"
            )
        evidence = (
            look.evidence("lr", rate, math.exp(state.first)),
            look.evidence("loss", run.loss, run.loss_best),
        )
        severity = Severity.WARNING if is_sure else Severity.INFO
        return state, (Sighting(severity, message, evidence=evidence, since=state.first_step),)

    def _runs_away(self, state: RateRunsAwayState) -> bool:
        rates, num = state.rates, len(state.rates)
        if num <= _LEAST_CHANGES or rates[-1] - state.first < math.log(self.growth):
            return False
        middle = rates[num // 2]
        newer = rates[-1] - middle
        return newer > math.log(self.half) and newer > 0.85 * (middle - rates[0])
