"""From which line of the script `backward` is called, and on what: asked at every call."""

import functools
import linecache
import re
import sys
from collections import deque
from types import CodeType
from typing import Any, NamedTuple

from sonde.integrations.finding import user_frames

_SCALED, _METHOD, _FUNCTION = (
    re.compile(pattern)
    for pattern in (r"\bscale\(\s*([A-Za-z]\w*)", r"([A-Za-z]\w*)\.backward\(", r"backward\(\s*([A-Za-z]\w*)\s*[,)]")
)


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
