"""Triton's language where it is installed; what all kernels are compiled with.

This file, and those of the kernels, can be imported without Triton, which comes with torch's CUDA wheels; running them
needs it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sonde.core.optional import available

if TYPE_CHECKING:
    from collections.abc import Callable

triton: Any = None
tl: Any = None
if available("triton"):
    triton = importlib.import_module("triton")
    tl = importlib.import_module("triton.language")


# Arguments of memory that may begin at any word; that of all others begins at a multiple of 16 bytes.
_ANYWHERE = ("from_first", "from_second", "to_host", "to_flag")


def jit(kernel: Callable[..., Any]) -> Any:
    """A kernel as Triton compiles it; itself where there is no Triton."""
    # Numbers of chunks and tensors differ from model to model: no variant is worth compiling for their divisors.
    numbers = [name for name in kernel.__annotations__ if kernel.__annotations__[name] == "int"]
    return triton.jit(kernel, do_not_specialize=[*numbers, *_ANYWHERE]) if triton else kernel
