"""Activation functions: which ones can go silent, and where the bounded ones are flat."""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn


class ActivationFunction(NamedTuple):
    """What is known of a class of activation functions."""

    rectifies: bool = False
    """It is above 0 exactly where its input is."""
    silences: bool = False
    """It is flat at about 0 where its input is far below 0: a unit that is never above 0 does not learn."""
    flat: Callable[[Any], tuple[float, float]] | None = None
    """For a module, the outputs up to which and from which on its slope is below 2% of the steepest."""


_RECTIFIER = ActivationFunction(rectifies=True)
_SILENCER = ActivationFunction(rectifies=True, silences=True)

# With the slope as a function of the output y: tanh 1 − y², sigmoid y(1 − y), softsign (1 − |y|)², the negative sides
# of ELU and its kin 1 + y/α. By the name of the class: those of Hugging Face are known without importing them.
ACTIVATION_FUNCTIONS: Mapping[str, ActivationFunction] = {
    "Tanh": ActivationFunction(flat=lambda _: (-math.sqrt(0.98), math.sqrt(0.98))),
    "Sigmoid": ActivationFunction(flat=lambda _: (0.5 - 0.5 * math.sqrt(0.98), 0.5 + 0.5 * math.sqrt(0.98))),
    "Softsign": ActivationFunction(flat=lambda _: (math.sqrt(0.02) - 1, 1 - math.sqrt(0.02))),
    "Hardtanh": ActivationFunction(flat=lambda module: (module.min_val, module.max_val)),
    "Hardsigmoid": ActivationFunction(flat=lambda _: (0.0, 1.0)),
    "ELU": _RECTIFIER._replace(flat=lambda module: (-0.98 * module.alpha, math.inf)),
    "CELU": _RECTIFIER._replace(flat=lambda module: (-0.98 * module.alpha, math.inf)),
    "SELU": _RECTIFIER._replace(flat=lambda _: (-0.98 * 1.7580993408473766, math.inf)),
    "ReLU6": _SILENCER._replace(flat=lambda _: (-math.inf, 6.0)),  # below, it is silent rather than saturated
    **dict.fromkeys(("LeakyReLU", "PReLU", "RReLU"), _RECTIFIER),
    **dict.fromkeys(("ReLU", "GELU", "SiLU", "Mish", "Hardswish"), _SILENCER),
    **dict.fromkeys(("GELUActivation", "NewGELUActivation", "FastGELUActivation", "QuickGELUActivation"), _SILENCER),
    **dict.fromkeys(("GELUTanh", "PytorchGELUTanh", "SiLUActivation", "MishActivation"), _SILENCER),
    "ReLUSquaredActivation": _SILENCER,
}


@functools.cache
def within(flat: tuple[float, float], dtype: torch.dtype) -> tuple[float, float]:
    """The outermost values of a format at which a function is flat: compared with a tensor, a limit is rounded to it.

    Example:
        >>> within((-0.99, 0.99), torch.bfloat16)
        (-0.9921875, 0.9921875)
    """
    low, high = (torch.tensor(limit, dtype=torch.float64, device="cpu") for limit in flat)
    rounded = [limit.to(dtype) for limit in (low, high)]
    beyond = torch.tensor(math.inf, dtype=dtype, device="cpu")
    if rounded[0] > low:
        rounded[0] = torch.nextafter(rounded[0], -beyond)
    if rounded[1] < high:
        rounded[1] = torch.nextafter(rounded[1], beyond)
    return float(rounded[0]), float(rounded[1])


def activation_function(module: nn.Module) -> ActivationFunction | None:
    """What is known of a module, by its class or the nearest one above; None where it is no activation function.

    Example:
        >>> activation_function(nn.ReLU6()).flat(nn.ReLU6())
        (-inf, 6.0)
        >>> activation_function(nn.Linear(1, 1))
    """
    names = (cls.__name__ for cls in type(module).__mro__)
    return next((ACTIVATION_FUNCTIONS[name] for name in names if name in ACTIVATION_FUNCTIONS), None)
