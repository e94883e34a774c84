"""What `backward` was called on, and what that adds up to."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Part(NamedTuple):
    """What `backward` was called on."""

    site: tuple[str, int]
    """The line of the script."""
    name: str
    loss: Tensor
    weight: Tensor | None = None
    """What its gradient was told to begin with, where that is one number: `loss.backward(torch.tensor(-1.0))`."""


def total(parts: Sequence[Part]) -> Tensor | float | None:
    """What they add up to, each with its weight; a single one as it is, with its graph. Nobody waits for a device."""
    if len(parts) < 2:
        return parts[0].loss if parts else None
    if all(part.weight is None and part.loss.is_cpu and part.loss.numel() == 1 for part in parts):
        return sum(float(part.loss.item()) for part in parts)
    with torch.no_grad():
        device = parts[0].loss.device
        return sum((_weighted(part).to(device) for part in parts[1:]), start=_weighted(parts[0]))


def _weighted(part: Part) -> Tensor:
    loss = part.loss.detach()
    return loss if part.weight is None else loss * part.weight.detach().reshape(loss.shape).to(loss.device)


def by_line(parts: Sequence[Part]) -> dict[str, Tensor | float]:
    """The losses of each line of the script, where there are several."""
    if len(parts) < 2:  # at nearly all steps
        return {}
    sites = list(dict.fromkeys(part.site for part in parts))
    if len(sites) < 2:
        return {}
    found: dict[str, Tensor | float] = {}
    for i, site in enumerate(sites, 1):
        some = [part for part in parts if part.site == site]
        name = some[0].name or str(i)
        value = total(some)
        assert value is not None
        found[name if name not in found else f"{name}{i}"] = value.detach() if isinstance(value, Tensor) else value
    return found
