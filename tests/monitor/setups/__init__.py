"""More than a hundred kinds of training: models, loops, optimisers, evaluations, copies and compiled parts."""

from tests.monitor.setups import compiled, copies, evaluations, iterations, models, optimizers
from tests.monitor.setups.setup import SETUPS

__all__ = ["SETUPS", "compiled", "copies", "evaluations", "iterations", "models", "optimizers"]
