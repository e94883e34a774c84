"""The mean gain of the blocks as series of its own: each check, its moving average and its drift."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from sonde.rules.gradients.gain_drift import GainDrift
from sonde.rules.step_view import StepView
from sonde.signals.drift import DriftState


@dataclass(frozen=True, kw_only=True, slots=True)
class GainMonitor:
    """Gives the series `gradient_monitor/*` that the rule `gain-drift` judges by.

    - `gradient_monitor/mean_gain`: geometric mean of the blocks' gains ‖∂L/∂input‖/‖∂L/∂output‖ at a check;
    - `gradient_monitor/mean_gain_ma`: mean of the last checks, as many as the rule's window;
    - `gradient_monitor/mean_gain_drift`: the last check over the first of that window, less 1; from the third check on.

    A check is a step at which `gain/mean` was measured as a finite number above 0; other steps give nothing.

    Args:
        rule: Whose window and history are used, so that what is drawn is what is judged.

    Example:
        >>> monitor = GainMonitor()
        >>> state = monitor.init()
        >>> for step, gain in enumerate((1.0, 1.02, 1.08, 1.15)):
        ...     state, values = monitor.step(state, StepView(step, {"gain/mean": gain}, {}, ()))
        >>> {tag.partition("/")[2]: round(value, 4) for tag, value in values.items()}
        {'mean_gain': 1.15, 'mean_gain_ma': 1.0625, 'mean_gain_drift': 0.15}
    """

    rule: GainDrift = field(default_factory=GainDrift)

    def init(self) -> DriftState:
        """Before the first check."""
        return self.rule.init().up

    def step(self, state: DriftState, view: StepView) -> tuple[DriftState, Mapping[str, float]]:
        """What is to be stored at this step; nothing where there was no check."""
        state, checked = self.rule.checked(state, view.value("gain/mean"))
        if checked is None:
            return state, {}
        numbers = self.rule.numbers(state)
        values = {
            "gradient_monitor/mean_gain": numbers.mean_gain,
            "gradient_monitor/mean_gain_ma": numbers.moving_average,
            "gradient_monitor/mean_gain_drift": numbers.drift,
        }
        return state, {tag: value for tag, value in values.items() if math.isfinite(value)}
