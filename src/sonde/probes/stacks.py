"""The line of the user's own code that is being run."""

import os
import sys
from pathlib import Path

import torch

_OURS = (str(Path(__file__).parents[1]) + os.sep, str(Path(torch.__file__).parent) + os.sep)
_LIBRARY = str(Path(os.__file__).parent) + os.sep
_MOST_FRAMES = 200


def user_line() -> str | None:
    """Where the innermost frame outside torch, Sonde and the standard library stands, such as `train.py:42`.

    Frames of other installed packages count only where there is none of the user's. None in a thread of torch's own,
    as where a backward pass runs on a GPU.
    """
    installed: str | None = None
    frame = sys._getframe(1)
    for _ in range(_MOST_FRAMES):
        name = frame.f_code.co_filename
        if not name.startswith((*_OURS, "<")):
            line = f"{Path(name).name}:{frame.f_lineno}"
            if "site-packages" in name:
                installed = installed or line
            elif not name.startswith(_LIBRARY):
                return line
        if frame.f_back is None:
            break
        frame = frame.f_back
    return installed
