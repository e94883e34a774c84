"""Every rule there is, a line each, in the order of their codes."""

from sonde.rules.losses.loss_spike import LossSpike
from sonde.rules.rule import Rule

RULES: tuple[type[Rule], ...] = (LossSpike,)
