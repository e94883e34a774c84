"""What `backward` was called on, and from which line of the script."""

import functools
import linecache
import re
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from sonde.integrations.finding import user_frames

_SCALED, _METHOD, _FUNCTION = (
    re.compile(pattern)
    for pattern in (r"\bscale\(\s*([A-Za-z]\w*)", r"([A-Za-z]\w*)\.backward\(", r"backward\(\s*([A-Za-z]\w*)\s*[,)]")
)


class Part(NamedTuple):
    """What `backward` was called on."""

    site: tuple[str, int]
    """The line of the script."""
    name: str
    loss: Tensor
    weight: Tensor | None = None
    """What its gradient was told to begin with, where that is one number: `loss.backward(torch.tensor(-1.0))`."""


def caller(*, is_weighted: bool) -> tuple[tuple[str, int], str]:
    """The line of the script that calls `backward`, and what it calls it on.

    Args:
        is_weighted: Whether a gradient was given: what stands in the brackets is that, and not the loss.
    """
    frame = next((f for f in user_frames() if "site-packages" not in f.f_code.co_filename), None)
    if frame is None:
        return ("", 0), ""
    site = frame.f_code.co_filename, frame.f_lineno
    return site, _called_on(*site, is_weighted)


@functools.lru_cache(maxsize=256)
def _called_on(file: str, line: int, is_weighted: bool) -> str:
    text = linecache.getline(file, line)
    patterns = (_SCALED, _METHOD, _FUNCTION) if is_weighted else (_SCALED, _FUNCTION, _METHOD)
    return next((found[1] for pattern in patterns if (found := pattern.search(text))), "")


def total(parts: Sequence[Part]) -> Tensor | None:
    """What they add up to, each with its weight, on the device; a single one as it is, with its graph."""
    if len(parts) < 2:
        return parts[0].loss if parts else None
    with torch.no_grad():
        device = parts[0].loss.device
        return sum((_weighted(part).to(device) for part in parts[1:]), start=_weighted(parts[0]))


def _weighted(part: Part) -> Tensor:
    loss = part.loss.detach()
    return loss if part.weight is None else loss * part.weight.detach().reshape(loss.shape).to(loss.device)


def by_line(parts: Sequence[Part]) -> dict[str, Tensor]:
    """The losses of each line of the script, where there are several."""
    sites = list(dict.fromkeys(part.site for part in parts))
    if len(sites) < 2:
        return {}
    found: dict[str, Tensor] = {}
    for i, site in enumerate(sites, 1):
        some = [part for part in parts if part.site == site]
        name = some[0].name or str(i)
        value = total(some)
        assert value is not None
        found[name if name not in found else f"{name}{i}"] = value.detach()
    return found
