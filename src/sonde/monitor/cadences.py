"""How often each family is measured."""

from dataclasses import dataclass

from sonde.core.cadences import Every, every


@dataclass(frozen=True, slots=True, kw_only=True)
class Cadences:
    """When what is measured. The loss, the learning rate and global norms are measured at every step.

    Args:
        layers: Statistics of every gradient and weight.
        rotating: True updates and percentiles: each tensor once an interval, spread evenly over its steps.
    """

    layers: Every
    rotating: Every


ON_GPU = Cadences(layers=every(1), rotating=every(8))
ON_CPU = Cadences(layers=every(10), rotating=every(10))
