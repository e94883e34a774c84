"""What becomes of a run that is in the folder already into which another is to be recorded."""

import itertools
import os
from pathlib import Path
from typing import Literal, get_args

from sonde.core.errors import RunNotWritable
from sonde.store import layout

IfExists = Literal["continue", "new", "error"]


def folder_for(run: str | os.PathLike[str], if_exists: IfExists) -> Path:
    """The folder into which to record.

    Args:
        run: As the user wants it.
        if_exists: Where a run is there: `"continue"`: the same folder. `"new"`: `<run>-2`, or the next number that is
            free, made at once, so that nobody else takes it. `"error"`: none.

    Raises:
        RunNotWritable: a run is there, and that is an error; or the folder beside it cannot be made.
        ValueError: it is none of the three.
    """
    if if_exists not in get_args(IfExists):
        allowed = ", ".join(f'"{one}"' for one in get_args(IfExists))
        raise ValueError(f"`if_exists` must be one of {allowed}, got {if_exists!r}.")
    folder = Path(run)
    if if_exists == "continue" or not os.path.lexists(folder / layout.RUN):
        return folder
    if if_exists == "error":
        raise RunNotWritable(
            f'{folder} holds a run already; choose another folder, remove it, or give `if_exists=` "new" or "continue".'
        )
    for number in itertools.count(2):
        beside = folder.with_name(f"{folder.name}-{number}")
        try:
            beside.mkdir()
        except FileExistsError:
            continue
        except OSError as error:
            raise RunNotWritable(f"{beside} cannot be made: {error.strerror or error}.") from error
        return beside
    raise AssertionError("numbers have no end")
