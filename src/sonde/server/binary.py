"""Numbers as the page reads them: a header of JSON, then arrays, with nothing between them to parse."""

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sonde.core import strict_json
from sonde.core.strict_json import Json

MEDIA_TYPE = "application/octet-stream"
_LENGTH = struct.Struct("<I")
_ALIGNED = 8


def packed(header: Mapping[str, Json], arrays: Sequence[npt.NDArray[Any]]) -> bytes:
    """The length of the header (uint32, little-endian), the header, and the arrays, which begin 8-byte aligned.

    Example:
        >>> packed({"n": 1}, [np.array([1.0])])[4:12]
        b'{"n": 1}'
    """
    text = strict_json.dumps(header).encode()
    text += b" " * (-(len(text) + _LENGTH.size) % _ALIGNED)
    return b"".join([_LENGTH.pack(len(text)), text, *(array.tobytes() for array in arrays)])


def float64(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """As little-endian float64."""
    return np.ascontiguousarray(values, "<f8")


def float32(values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """As little-endian float32."""
    return np.ascontiguousarray(values, "<f4")
