"""Every path against the reference, on tensors of every awkward kind."""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernels.agreement import assert_agrees
from torch import Tensor

from sonde.core.optional import available
from sonde.kernels import Column, Stats, TensorStats, reference

NAN, INF = float("nan"), float("inf")


class Measure(Protocol):
    """A path: everything that it measures of some tensors, or of their differences to others, on the CPU.

    With `copy` the others are copied by the path first.
    """

    device: str

    def __call__(
        self,
        tensors: Sequence[Tensor],
        old: Sequence[Tensor] | None = None,
        *,
        ids: Sequence[int] | None = None,
        copy: bool = False,
    ) -> Stats: ...


class Direct:
    """In this process, through the one door."""

    def __init__(self, device: str, path: str) -> None:
        self.device, self.path = device, path

    def __call__(
        self,
        tensors: Sequence[Tensor],
        old: Sequence[Tensor] | None = None,
        *,
        ids: Sequence[int] | None = None,
        copy: bool = False,
    ) -> Stats:
        stats = TensorStats(tensors, ids=ids)
        assert stats.path == self.path, stats.reason
        if old is None:
            found = stats(tensors, histogram=True, sketch=True)
        else:
            found = stats.of_difference(tensors, stats.copy(old) if copy else old, histogram=True, sketch=True)
        assert found.histogram is not None
        assert found.sketch is not None
        return Stats(found.rows.cpu(), found.histogram.cpu(), found.sketch.cpu())


class Interpreted:
    """Triton's kernels run by its interpreter, in a process of its own: that is decided when Triton is imported."""

    device = "cpu"

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("interpreted_harness.py"))],
            env={**os.environ, "TRITON_INTERPRET": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __call__(
        self,
        tensors: Sequence[Tensor],
        old: Sequence[Tensor] | None = None,
        *,
        ids: Sequence[int] | None = None,
        copy: bool = False,
    ) -> Stats:
        assert self._process.stdin
        assert self._process.stdout
        pickle.dump((list(tensors), old, ids, copy), self._process.stdin)
        self._process.stdin.flush()
        return Stats(*pickle.load(self._process.stdout))

    def products(self, now: Tensor, before: Tensor) -> Tensor:
        assert self._process.stdin
        assert self._process.stdout
        pickle.dump((now, before), self._process.stdin)
        self._process.stdin.flush()
        answer: Tensor = pickle.load(self._process.stdout)
        return answer

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="session")
def interpreted() -> Iterator[Interpreted]:
    if not available("triton"):
        pytest.skip("Triton is not installed, so its kernels cannot be interpreted: pip install triton")
    path = Interpreted()
    yield path
    path.close()


@pytest.fixture(params=["native", "interpreted", pytest.param("triton", marks=pytest.mark.gpu)])
def measure(request: pytest.FixtureRequest) -> Measure:
    if request.param == "interpreted":
        path: Interpreted = request.getfixturevalue("interpreted")
        return path
    if request.param == "triton" and not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    return Direct("cuda" if request.param == "triton" else "cpu", request.param)


class Case(NamedTuple):
    """Values, and the view of them that is measured."""

    values: Callable[[], Tensor]
    view: Callable[[Tensor], Tensor] = lambda tensor: tensor

    def tensor(self, device: str) -> Tensor:
        return self.view(self.values().to(device))


def normal(*shape: int, mean: float = 0.0, std: float = 1.0) -> Callable[[], Tensor]:
    return lambda: (mean + std * torch.randn(shape, dtype=torch.float64)).to(torch.float32)


def spoiled(tensor: Tensor, places: dict[int, float]) -> Tensor:
    for place, value in places.items():
        tensor.view(-1)[place] = value
    return tensor


CASES = {
    "usual": Case(normal(100, 100, std=1e-3)),
    "scalar": Case(lambda: torch.tensor(3.0)),
    "one value": Case(lambda: torch.tensor([-2.5])),
    "empty": Case(lambda: torch.empty(0)),
    "empty in two dimensions": Case(lambda: torch.empty(3, 0)),
    "zeros": Case(lambda: torch.zeros(5000)),
    "constant": Case(lambda: torch.full((10_000,), 0.1)),
    "negative zeros": Case(lambda: spoiled(torch.full((100,), -0.0), {3: 1.0, 4: 0.0})),
    "layer norm gain": Case(normal(768, mean=1.0, std=1e-4)),
    "mean far above the spread": Case(normal(20_000, mean=1000.0, std=1e-3)),
    "mean far below zero": Case(normal(9_000, mean=-1e20, std=1e15)),
    "huge": Case(normal(9_000, std=3e37)),
    "largest": Case(lambda: torch.tensor([3.4e38, -3.4e38, 3.4e38] * 50)),
    "tiny": Case(normal(9_000, std=1e-38)),
    "subnormal": Case(normal(9_000, std=1e-42)),
    "squares that underflow": Case(normal(9_000, std=1e-25)),
    "outlier first": Case(lambda: spoiled(normal(20_000, std=1e-3)(), {0: 1e30})),
    "outlier last": Case(lambda: spoiled(normal(20_000, std=1e-3)(), {-1: -3e38})),
    "zeros, then tiny": Case(lambda: torch.cat([torch.zeros(4500), normal(9_000, std=1e-30)()])),
    "tiny, then large": Case(lambda: torch.cat([normal(4500, std=1e-30)(), normal(9_000, std=1e10)()])),
    "sparse": Case(lambda: normal(20_000)() * (torch.rand(20_000) < 0.01)),
    "NaN": Case(lambda: spoiled(normal(20_000)(), {7: NAN, 19_999: NAN})),
    "infinities": Case(lambda: spoiled(normal(20_000)(), {0: INF, 9_000: -INF, 9_001: NAN})),
    "NaN far from zero": Case(lambda: spoiled(normal(20_000, mean=1000.0, std=1e-3)(), {0: NAN, 9_000: INF})),
    "nothing but NaN": Case(lambda: torch.full((9_000,), NAN)),
    "nothing but infinity": Case(lambda: torch.full((100,), -INF)),
    "transposed": Case(normal(70, 90), lambda tensor: tensor.T),
    "channels last": Case(lambda: normal(4, 5, 6, 7)().to(memory_format=torch.channels_last)),
    "sliced": Case(normal(70, 90), lambda tensor: tensor[3:60:2, 5:]),
    "expanded": Case(normal(70, 1), lambda tensor: tensor.expand(70, 30)),
    "unaligned": Case(normal(9_001), lambda tensor: tensor[1:]),
    "reversed strides of single values": Case(normal(300), lambda tensor: tensor.as_strided((1, 300), (7, 1))),
    "bfloat16": Case(lambda: normal(20_000)().bfloat16()),
    "bfloat16 far from zero": Case(lambda: normal(20_000, mean=100.0)().bfloat16()),
    "bfloat16 with NaN": Case(lambda: spoiled(normal(20_000)().bfloat16(), {11_000: NAN})),
    "bfloat16 unaligned": Case(lambda: normal(9_001)().bfloat16(), lambda tensor: tensor[1:]),
    "float16": Case(lambda: normal(20_000, std=1e-4)().half()),
    "float16 overflown": Case(lambda: normal(5_000, std=4e4)().half()),
    "float64": Case(lambda: torch.randn(20_000, dtype=torch.float64) * 1e-100),
    "float64 far from zero": Case(lambda: 1e6 + torch.randn(20_000, dtype=torch.float64) * 1e-6),
    "float64 with NaN": Case(lambda: spoiled(torch.randn(5_000, dtype=torch.float64), {9: NAN})),
    "complex": Case(lambda: torch.randn(50, 60, dtype=torch.complex64)),
    "complex conjugated": Case(lambda: torch.randn(500, dtype=torch.complex64), lambda tensor: tensor.conj()),
}


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(4)


# The interpreter takes half a second a call: it gets them all at once, below.
@pytest.mark.parametrize("measure", ["native", pytest.param("triton", marks=pytest.mark.gpu)], indirect=True)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_path_agrees_with_the_reference(case: Case, measure: Measure) -> None:
    tensor = case.tensor(measure.device)
    assert_agrees(measure([tensor], ids=[3]), [tensor], [3])


def test_a_path_agrees_on_all_of_them_at_once(measure: Measure) -> None:
    tensors = [case.tensor(measure.device) for case in CASES.values()]
    ids = [7 * i + 1_000_000_007 for i in range(len(tensors))]
    assert_agrees(measure(tensors, ids=ids), tensors, ids)


def test_a_path_agrees_on_differences(measure: Measure) -> None:
    new = [case.tensor(measure.device) for case in CASES.values()]
    old = [(tensor * 0.999).to(tensor.dtype) for tensor in new]
    found = measure(new, old)
    want = [reference.difference(a, b) for a, b in zip(new, old, strict=True)]
    assert_agrees(found, want, range(len(new)))


def test_a_path_agrees_on_differences_to_its_own_copies(measure: Measure) -> None:
    new = [case.tensor(measure.device) for name, case in CASES.items() if not name.startswith(("float64", "complex"))]
    old = [(tensor * 0.999).to(tensor.dtype) for tensor in new]
    found = measure(new, old, copy=True)
    want = [reference.difference(a, b) for a, b in zip(new, old, strict=True)]
    assert_agrees(found, want, range(len(new)))


@pytest.mark.parametrize("measure", ["native", pytest.param("triton", marks=pytest.mark.gpu)], indirect=True)
def test_tensors_of_unusual_types_are_copied_as_well(measure: Measure) -> None:
    new = [torch.randn(7, dtype=dtype, device=measure.device) for dtype in (torch.complex64, torch.float64)]
    new.append(torch.ones(5, device=measure.device).to(torch.float8_e4m3fn))
    old = [torch.zeros_like(tensor) for tensor in new]
    found = measure(new, old, copy=True)
    assert_agrees(found, [*new[:2], new[2].float()], range(3))


def test_products_of_sketches_are_those_of_the_definition(interpreted: Interpreted) -> None:
    now, before = torch.randn(5, 256), torch.randn(5, 256)
    want = torch.stack([(a.double() * b.double()).sum(1) for a, b in ((now, before), (now, now), (before, before))], 1)
    assert torch.allclose(interpreted.products(now, before), want, rtol=1e-12)


def test_small_updates_of_large_weights_are_measured(measure: Measure) -> None:
    old = torch.randn(9_000, device=measure.device) + 3
    new = old + 1e-6 * torch.randn_like(old)
    found = measure([new], [old])
    assert_agrees(found, [new - old], [0])
    assert 0 < found.rows[0, Column.MAX] < 1e-5


def test_a_difference_beyond_float32_is_not_finite(measure: Measure) -> None:
    found = measure([torch.full((10,), 3e38, device=measure.device)], [torch.full((10,), -3e38, device=measure.device)])
    assert found.rows[0, [Column.COUNT, Column.NONFINITE]].tolist() == [0, 10]


def test_a_difference_pairs_values_whatever_their_strides(measure: Measure) -> None:
    old = torch.randn(40, 50, device=measure.device)
    new = (old + 1).T.contiguous().T  # the same values plus one, laid out by columns
    assert measure([new], [old]).rows[0, Column.M2] < 1e-9


# 24 stretches of 256 values, all 2^j in stretch j: each sum is then ±1 ±2 ±4 …, exact in float32, and tells the sign of
# every value in it.
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("first", [0, 16_384 + 4096, 65_536 + 8192])
def test_the_signs_of_a_sketch_are_those_of_the_reference(measure: Measure, first: int, dtype: torch.dtype) -> None:
    x = torch.zeros(first + 7000, dtype=dtype, device=measure.device)
    x[first : first + 24 * 256] = (2.0 ** torch.arange(24, device=x.device)).repeat_interleave(256).to(dtype)
    ids = [5, 2**31 + 12345]
    found = measure([x, x], ids=ids).sketch
    assert found is not None
    for i, number in enumerate(ids):
        assert torch.equal(found[i].double(), reference.sketch(x, number).cpu())


def test_large_tensors_are_sampled_alike(measure: Measure) -> None:
    if measure.device == "cpu" and not isinstance(measure, Direct):
        pytest.skip("the interpreter needs seconds for as many values")
    tensors = [torch.randn(n, device=measure.device) for n in (131_071, 131_072, 300_000, 3_000_001)]
    tensors.append(torch.randn(700_000, device=measure.device).bfloat16())
    assert_agrees(measure(tensors), tensors, range(5))


@settings(max_examples=150)
@given(
    shapes=st.lists(st.integers(0, 40_000) | st.integers(0, 40), min_size=1, max_size=12),
    mean=st.sampled_from([0.0, 1e-3, 1.0, -3.0, 1000.0]),
    scale=st.sampled_from([1e-38, 1e-30, 1e-20, 1e-13, 1e-6, 1.0, 1e10, 1e16, 1e25, 1e35]),
    spread=st.sampled_from([0.0, 1e-6, 1e-4, 0.01, 0.3, 1.0, 100.0]),
    odd=st.sampled_from([0.0, 0.0, 1e-4, 0.5]),
    zeros=st.sampled_from([0.0, 0.0, 0.3, 0.99]),
    dtype=st.sampled_from([torch.float32, torch.float32, torch.bfloat16, torch.float16, torch.float64]),
    seed=st.integers(0, 10_000),
)
def test_the_native_path_agrees_with_the_reference_on_any_mixture(
    shapes: list[int],
    mean: float,
    scale: float,
    spread: float,
    odd: float,
    zeros: float,
    dtype: torch.dtype,
    seed: int,
) -> None:
    generator = torch.Generator().manual_seed(seed)
    tensors = []
    for n in shapes:
        x = (mean + spread * torch.randn(n, generator=generator, dtype=torch.float64)) * scale
        x[torch.rand(n, generator=generator) < zeros] = 0.0
        x[torch.rand(n, generator=generator) < odd] = NAN
        x[torch.rand(n, generator=generator) < odd / 2] = -INF
        tensors.append(x.to(dtype))
    assert_agrees(Direct("cpu", "native")(tensors), tensors, range(len(tensors)))


@settings(max_examples=60)
@given(bits=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=300), repeats=st.integers(1, 40))
def test_the_native_path_agrees_with_the_reference_on_any_bits(bits: list[int], repeats: int) -> None:
    x = torch.from_numpy(np.array(bits * repeats, dtype=np.uint32).view(np.float32))
    assert_agrees(Direct("cpu", "native")([x, x[:1]]), [x, x[:1]], [0, 1])
