"""Memory that the system gets back at once."""

from pathlib import Path

import numpy as np
import pytest

from sonde.store import lent_memory


def mapped_bytes() -> int:
    """What the process has mapped in memory that is in no file and not the allocator's heap."""
    sizes = []
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        places, *_, inode = line.split()[:5]
        if inode == "0" and "[" not in line:
            first, last = (int(place, 16) for place in places.split("-"))
            sizes.append(last - first)
    return sum(sizes)


@pytest.mark.parametrize("shape", [(0,), (3,), (2, 0), (5, 7), (300, 400), (8, 100, 257)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.int64])
def test_it_holds_what_is_written_whatever_its_size(shape: tuple[int, ...], dtype: type) -> None:
    array = lent_memory.empty(shape, dtype)
    array[...] = 7
    assert array.shape == shape
    assert array.dtype == dtype
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert (array == 7).all()


def test_a_large_array_is_gone_from_the_process_once_its_last_view_is() -> None:
    before = mapped_bytes()
    array = lent_memory.empty((1 << 26,), np.uint8)
    view = array[1:].view()
    del array
    assert mapped_bytes() - before >= 1 << 26
    view[-1] = 1
    del view
    assert mapped_bytes() - before < 1 << 24
