"""Where the loss is going: a learning curve fitted within the present phase of the learning-rate schedule."""

from dataclasses import dataclass

import numpy as np

from sonde.core.quantities import share
from sonde.core.records import Float64
from sonde.signals.learning_curve import Interval, LearningCurve, NoCurve, fit_learning_curve
from sonde.signals.phases import Phase, Phases

_WORTHWHILE, _LITTLE = 0.05, 0.01  # SPEC D13: above 5% is good progress, below 1% poor


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """A fitted learning curve and what it says."""

    curve: LearningCurve
    since: int
    """First step of the phase that it was fitted on."""
    now: Interval
    doubled: Interval
    """The loss after as many steps again."""
    limit: Interval

    @property
    def gain(self) -> float:
        """The share of the present loss that as many steps again would take away."""
        return (self.now.best - self.doubled.best) / abs(self.now.best) if self.now.best else 0.0

    @property
    def advice(self) -> str:
        """Whether going on is worthwhile, in one sentence."""
        gain = share(max(self.gain, 0.0))
        if self.gain > _WORTHWHILE:
            return f"Going on is worthwhile: as many steps again should lower the loss by about {gain}."
        if self.gain > _LITTLE:
            return f"Going on helps a little: as many steps again should lower the loss by about {gain}."
        return (
            f"Going on at this learning rate is hardly worthwhile: as many steps again lower the loss by about {gain}."
        )


def outlook(steps: Float64, losses: Float64, rate_steps: Float64, rates: Float64) -> Outlook | NoCurve:
    """The forecast of a loss, or the reason why there is none.

    The law L(t) = a + b·t^(−c) holds while the learning rate is constant; a rate that rises or falls bends the curve by
    itself. So only losses since the last change of the rate count, and none are forecast while it changes.

    Args:
        steps: Of the losses; steps of 0 or below do not count.
        losses: NaN where they were not finite.
        rate_steps: Of the rates.
        rates: The learning rate, thinned out or not.

    Example:
        >>> steps = np.arange(1.0, 2001.0)
        >>> losses = 1.5 + 4.0 * steps**-0.5 + 0.02 * np.sin(1.7 * steps)
        >>> ahead = outlook(steps, losses, steps, np.full(2000, 0.1))
        >>> round(ahead.limit.best, 1), ahead.advice
        (1.5, 'Going on helps a little: as many steps again should lower the loss by about 1.6%.')
        >>> print(outlook(steps, losses, steps, np.linspace(0.1, 0.0, 2000)))
        no forecast: the learning rate is falling by its schedule, and the law holds at a constant rate only
    """
    if not len(losses):
        return NoCurve("no loss was recorded")
    if not len(rates):
        return NoCurve("the learning rate was not recorded, so it is not known whether it was constant")
    phases = Phases()
    state = phases.init(1)
    for step, rate in zip(rate_steps.tolist(), rates.tolist(), strict=True):
        state, out = phases.step(state, np.array([rate]), int(step))
    match Phase(int(out.phase[0])):
        case Phase.WARMUP:
            return NoCurve("the learning rate is rising (warmup), and the law holds at a constant rate only")
        case Phase.DECAY:
            return NoCurve("the learning rate is falling by its schedule, and the law holds at a constant rate only")
        case Phase.UNKNOWN:
            return NoCurve("the learning rate was recorded too few times to know whether it is constant")
    since = int(out.start[0])
    counted = steps >= since
    if not np.isfinite(losses[counted]).all():
        return NoCurve("losses of this phase of the schedule are NaN or infinite")
    lowest = float(losses[counted].min()) if counted.any() else 0.0
    found = fit_learning_curve(steps[counted], losses[counted], floor=0.0 if lowest >= 0 else -np.inf)
    if isinstance(found, NoCurve):
        return found
    last = found.last_step
    return Outlook(
        curve=found, since=since, now=found.loss_at(last), doubled=found.loss_at(2 * last), limit=found.limit()
    )
