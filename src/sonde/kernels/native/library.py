"""The compiled `statistics.c`: found beside it, checked, and ready to be called."""

import ctypes
import functools
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_name("statistics.c")
LIBRARY = SOURCE.with_suffix(".library.so")

# The number of tensors; addresses, sizes, types and seeds; rows, norms, histograms and sketches; threads.
_ARGUMENTS = (ctypes.c_int64, *(ctypes.c_void_p,) * 9, ctypes.c_int64)
_AGAIN = "install Sonde again where there is a C compiler (cc), or ziglang from the package index"


class Loaded(NamedTuple):
    """What came of loading: the entry for each level of instructions that this machine has, the best one last."""

    entries: Mapping[str, Callable[..., int]]
    trouble: str | None = None
    """Why there is none."""


@functools.cache
def load(library: Path = LIBRARY) -> Loaded:
    """The entries of a library; ctypes lets the interpreter go while one runs.

    One that was compiled from another `statistics.c` is refused: it may take other arguments.
    """
    if not library.exists():
        return Loaded({}, f"the native kernel was not compiled when Sonde was installed: {_AGAIN}")
    try:
        opened = ctypes.CDLL(str(library))
        opened.sonde_source.restype = ctypes.c_char_p
        if opened.sonde_source() != source_id().encode():
            return Loaded({}, f"the native kernel was compiled from another version of its source: {_AGAIN}")
        entries = {"baseline": opened.sonde_statistics}
        if opened.sonde_has_v3():
            entries["x86-64-v3"] = opened.sonde_statistics_v3
    except (OSError, AttributeError) as error:
        return Loaded({}, f"the native kernel cannot be loaded ({error}): {_AGAIN}")
    for entry in entries.values():
        entry.argtypes, entry.restype = _ARGUMENTS, ctypes.c_int64
    return Loaded(entries)


def source_id() -> str:
    """What a library says that was compiled from the source as it is now."""
    return hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
