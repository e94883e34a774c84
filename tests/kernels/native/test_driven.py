"""The kernel in programs of its own: one that notices every read beyond a tensor, one for another machine."""

import importlib.util
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import hatch_build
import numpy as np
import pytest
import torch
from tests.kernels.agreement import assert_agrees
from torch import Tensor

from sonde.kernels import Stats, reference, sketches
from sonde.kernels.native import library

DRIVER = Path(__file__).with_name("driver.c")
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


class Driver:
    """A running driver."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=-1
        )

    def __call__(
        self, new: Sequence[Tensor], old: Sequence[Tensor] | None, *, offsets: Sequence[int], threads: int = 1
    ) -> Stats:
        num = len(new)
        request: list[np.ndarray[Any, Any]] = [np.array([num, old is not None, threads], np.int64)]
        request += [np.array([t.numel() for t in new], np.int64), np.array(offsets, np.int64)]
        request += [np.array([DTYPES.index(t.dtype) for t in new], np.int32), sketches.seeds(range(num))]
        for i, tensor in enumerate(new):
            request.append(_bytes(tensor))
            if old is not None:
                request.append(_bytes(old[i]))
        assert self._process.stdin
        assert self._process.stdout
        try:
            self._process.stdin.write(b"".join(part.tobytes() for part in request))
            self._process.stdin.flush()
        except BrokenPipeError:
            self._fail()
        rows, norms, counts, sums = (
            self._answer(np.float64, num, 7),
            self._answer(np.float64, num),
            self._answer(np.int32, num, 2048),
            self._answer(np.float32, num, 256),
        )
        return Stats(rows, counts, sums, norms)

    def _answer(self, dtype: type[np.generic], *shape: int) -> Tensor:
        assert self._process.stdout
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        said = self._process.stdout.read(size)
        if len(said) < size:
            self._fail()
        return torch.from_numpy(np.frombuffer(said, dtype).reshape(shape).copy())

    def _fail(self) -> None:
        assert self._process.stderr
        pytest.fail(self._process.stderr.read().decode(errors="replace"))

    def close(self) -> None:
        self._process.communicate()
        assert self._process.returncode == 0


def _bytes(tensor: Tensor) -> "np.ndarray[tuple[int], np.dtype[np.uint8]]":
    array: np.ndarray[tuple[int], np.dtype[np.uint8]] = tensor.contiguous().view(torch.uint8).numpy()
    return array


def values(length: int, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    x = torch.randn(length, generator=generator, dtype=torch.float64)
    kind = int(torch.randint(6, (), generator=generator))
    if kind == 0:
        x *= 10.0 ** int(torch.randint(-38, 38, (), generator=generator))
    elif kind == 1:
        x = 1 + 1e-4 * x
    elif kind == 2:
        x *= 1e-42
    x[torch.rand(length, generator=generator) < 0.1] = 0.0
    if kind == 3:
        x[torch.rand(length, generator=generator) < 0.01] = float("nan")
        x[torch.rand(length, generator=generator) < 0.01] = float("-inf")
    return x.to(dtype)


def drive(driver: Driver, lengths: Sequence[int], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for dtype in DTYPES:
        new = [values(n, dtype, generator) for n in lengths]
        old = [values(n, dtype, generator) for n in lengths]
        offsets = torch.randint(0, 64, (len(new),), generator=generator).tolist()
        assert_agrees(driver(new, None, offsets=offsets), new, range(len(new)))
        want = [reference.difference(a, b) for a, b in zip(new, old, strict=True)]
        assert_agrees(driver(new, old, offsets=offsets, threads=2), want, range(len(new)))


@pytest.fixture(scope="module", params=["x86-64", "x86-64-v3"])
def sanitized(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("there is no gcc, which AddressSanitizer needs")
    if platform.machine() != "x86_64" or (request.param == "x86-64-v3" and len(library.load().entries) < 2):
        pytest.skip(f"this machine has not the instructions of {request.param}")
    program = tmp_path_factory.mktemp("sanitized") / "driver"
    flags = ["-O1", "-g", "-fsanitize=address", f"-march={request.param}"]
    made = subprocess.run(
        [gcc, *hatch_build.FLAGS, *flags, str(DRIVER), str(hatch_build.SOURCE), "-lm", "-o", str(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(f"gcc has no AddressSanitizer: {made.stderr.splitlines()[-1]}")
    driver = Driver([str(program)])
    yield driver
    driver.close()


@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_read_beyond_a_tensor_of_any_length_and_alignment(sanitized: Driver, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, 40, (12,), generator=generator).tolist()
    lengths += torch.randint(0, 6000, (4,), generator=generator).tolist()
    lengths += torch.randint(60_000, 140_000, (1,), generator=generator).tolist()
    drive(sanitized, lengths, seed)


def test_a_program_for_aarch64_agrees_with_the_reference(tmp_path: Path) -> None:
    qemu = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if qemu is None:
        pytest.skip("there is no qemu-aarch64 (qemu-user)")
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("ziglang, which compiles for aarch64, is not installed")
    program = tmp_path / "driver"
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-musl", "-static"]
    command = [*zig, *hatch_build.FLAGS, str(DRIVER), str(hatch_build.SOURCE), "-o", str(program)]
    subprocess.run(command, check=True, capture_output=True)
    driver = Driver([qemu, str(program)])
    drive(driver, [0, 1, 2, 3, 5, 7, 8, 9, 15, 17, 255, 257, 511, 4095, 4097, 16_385, 70_000, 140_001], 1)
    driver.close()
