"""Which program measures what."""

import numpy as np
import torch

from sonde.kernels.block_map import block_map
from sonde.kernels.layouts import Layouts


def test_every_value_is_in_one_chunk_of_its_dtype() -> None:
    sizes = [5000, 0, 1024, 1, 3000, 70_000, 2048]
    dtypes = [torch.float32, torch.half, torch.bfloat16, torch.float32, torch.half, torch.float64, torch.float32]
    layouts = Layouts([torch.empty(size, dtype=dtype) for size, dtype in zip(sizes, dtypes, strict=True)])
    launches, chunks, spans, num_copies = block_map(layouts, 1024)
    tensor, first, copy = chunks.T
    for i, (size, dtype) in enumerate(zip(sizes, dtypes, strict=True)):
        own = np.flatnonzero(tensor == i)
        if dtype is torch.float64:
            assert len(own) == 0
            continue
        assert own.tolist() == list(range(*spans[i, :2]))
        assert first[own].tolist() == list(range(0, max(size, 1), 1024))
        assert set(copy[own]) == set(range(*spans[i, 2:]))
        assert spans[i, 3] - spans[i, 2] == min(len(own), 8)
        (launch,) = [x for x in launches if x.dtype is dtype] if size else [None]
        assert launch is None or set(own) <= set(range(launch.first_chunk, launch.first_chunk + launch.num_chunks))
    assert sum(launch.num_chunks for launch in launches) == len(chunks)
    assert num_copies == copy.max() + 1


def test_an_empty_tensor_has_a_program_that_writes_its_row() -> None:
    launches, chunks, spans, num_copies = block_map(Layouts([torch.empty(0), torch.empty(2)]), 1024)
    assert launches == [(torch.float32, 0, 2)]
    assert chunks[:, 0].tolist() == [0, 1]
    assert spans.tolist() == [[0, 1, 0, 1], [1, 2, 1, 2]]
    assert num_copies == 2


def test_tensors_of_float64_need_no_launch() -> None:
    launches, chunks, spans, num_copies = block_map(Layouts([torch.empty(2, dtype=torch.double)] * 2), 1024)
    assert (launches, len(chunks), spans.tolist(), num_copies) == ([], 0, [[0] * 4] * 2, 0)


def test_first_values_beyond_two_billion_are_right() -> None:
    huge = torch.empty(1, dtype=torch.half).expand(2**31 + 5000)
    _, chunks, _, _ = block_map(Layouts([huge]), 65_536)
    assert chunks[-1, 1] == 2**31


def test_the_chunks_of_a_turn_are_those_of_its_tensors_numbered_by_themselves() -> None:
    dtypes = [torch.float32, torch.half, torch.float32, torch.float32, torch.half]
    sizes = [5000, 10, 1024, 3000, 2048]
    whole = block_map(Layouts([torch.empty(n, dtype=dtype) for n, dtype in zip(sizes, dtypes, strict=True)]), 1024)
    for slot in range(2):
        launches, chunks, spans, num_copies = whole.turn(slot, 2)
        assert set(chunks[:, 0]) == set(range(slot, 5, 2))
        for i in range(slot, 5, 2):
            own = chunks[slice(*spans[i, :2])]
            assert own.tolist() == whole.chunks[slice(*whole.spans[i, :2])].tolist()
            (launch,) = [x for x in launches if x.dtype is dtypes[i]]
            assert launch.first_chunk <= spans[i, 0] < spans[i, 1] <= launch.first_chunk + launch.num_chunks
        assert sum(launch.num_chunks for launch in launches) == len(chunks)
        assert (spans[:, 2:].tolist(), num_copies) == (whole.spans[:, 2:].tolist(), whole.num_copies)
