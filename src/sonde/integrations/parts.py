"""What `backward` was called on, and from which line of the script."""

import functools
import linecache
import re
import sys
from collections import deque
from collections.abc import Sequence
from types import CodeType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sonde.integrations.finding import user_frames
from sonde.monitor.naps import as_number

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
    frame = _known_frame() or _found_frame()
    if frame is None:
        return ("", 0), ""
    site = frame.f_code.co_filename, frame.f_lineno
    return site, _called_on(*site, is_weighted)


class _Way(NamedTuple):
    """Where a line of the script was found: how far up its frame is, and the first that is neither torch's nor ours."""

    near: int
    near_code: CodeType
    far: int
    far_code: CodeType


_WAYS: deque[_Way] = deque(maxlen=4)
"""Nearly all calls come by one of the last ones; a trainer may have fifty frames in between."""


def _known_frame() -> Any:
    for near, near_code, far, far_code in _WAYS:
        try:
            if sys._getframe(near).f_code is near_code and (frame := sys._getframe(far)).f_code is far_code:
                return frame
        except ValueError:  # there are not as many
            continue
    return None


def _found_frame() -> Any:
    frames = list(user_frames())
    frame = next((f for f in frames if "site-packages" not in f.f_code.co_filename), None)
    if frame is not None:
        near, far = _num_above(frames[0]), _num_above(frame)
        _WAYS.appendleft(_Way(near, frames[0].f_code, far, frame.f_code))
    return frame


def _num_above(frame: Any) -> int:
    """How far a frame is above that of `_known_frame`, which is called from the same place as our caller."""
    num, here = 0, sys._getframe(1)
    while here is not frame and here.f_back is not None:
        num, here = num + 1, here.f_back
    return num


@functools.lru_cache(maxsize=256)
def _called_on(file: str, line: int, is_weighted: bool) -> str:
    text = linecache.getline(file, line)
    patterns = (_SCALED, _METHOD, _FUNCTION) if is_weighted else (_SCALED, _FUNCTION, _METHOD)
    return next((found[1] for pattern in patterns if (found := pattern.search(text))), "")


def total(parts: Sequence[Part]) -> Tensor | float | None:
    """What they add up to, each with its weight; a single one as it is, with its graph. Nobody waits for a device."""
    if len(parts) < 2:
        return parts[0].loss if parts else None
    numbers = [as_number(part.loss) if part.weight is None else None for part in parts]
    known = [number for number in numbers if number is not None]
    if len(known) == len(parts):
        return sum(known)
    with torch.no_grad():
        device = parts[0].loss.device
        return sum((_weighted(part).to(device) for part in parts[1:]), start=_weighted(parts[0]))


def _weighted(part: Part) -> Tensor:
    loss = part.loss.detach()
    return loss if part.weight is None else loss * part.weight.detach().reshape(loss.shape).to(loss.device)


def by_line(parts: Sequence[Part]) -> dict[str, Tensor | float]:
    """The losses of each line of the script, where there are several."""
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
