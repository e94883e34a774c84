"""The native path itself: its levels of instructions, its threads, and what it leaves alone."""

import math
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernels.agreement import assert_agrees
from torch import Tensor

from sonde.kernels import Column, Stats, TensorStats, reference
from sonde.kernels.layouts import Layouts
from sonde.kernels.native import library
from sonde.kernels.native.native_stats import NativeStats

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
LEVELS = ["baseline", "x86-64-v3"]


def measure(level: str, new: Sequence[Tensor], old: Sequence[Tensor] | None = None) -> Stats:
    loaded = library.load()
    assert loaded.trouble is None
    if level not in loaded.entries:
        pytest.skip(f"this machine has not the instructions of {level}")
    stats = NativeStats(Layouts(new), range(len(new)), loaded.entries[level])
    return stats(new, old, histogram=True, sketch=True)


def normal(n: int, seed: int, mean: float, spread: float, scale: float) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (mean + spread * torch.randn(n, generator=generator, dtype=torch.float64)) * scale


def any_bits(n: int, seed: int) -> Tensor:
    words = np.random.default_rng(seed).integers(0, 2**32, n, dtype=np.uint32)
    return torch.from_numpy(words.view(np.float32)).double()


@pytest.mark.parametrize("level", LEVELS)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_each_level_agrees_with_the_reference_on_any_length_alignment_and_values(
    level: str, data: st.DataObject
) -> None:
    dtype = data.draw(st.sampled_from(DTYPES))
    new, old = [], []
    for _ in range(data.draw(st.integers(1, 5))):
        n = data.draw(st.integers(0, 70) | st.integers(0, 5_000) | st.integers(0, 100_000))
        offset, seed = data.draw(st.integers(0, 9)), data.draw(st.integers(0, 2**31))
        if data.draw(st.booleans()):
            mean, spread = data.draw(st.sampled_from([(0.0, 1.0), (1.0, 1e-4), (-1000.0, 1e-3), (3.0, 0.0)]))
            scale = data.draw(st.sampled_from([1e-42, 1e-38, 1e-30, 1e-20, 1e-3, 1.0, 1e10, 1e25, 1e35]))
            x = normal(n + offset, seed, mean, spread, scale)
        else:
            x = any_bits(n + offset, seed)
        new.append(x.to(dtype)[offset:])
        old.append((x * 0.99).to(dtype)[offset:])
    assert_agrees(measure(level, new), new, range(len(new)))
    want = [reference.difference(a, b) for a, b in zip(new, old, strict=True)]
    assert_agrees(measure(level, new, old), want, range(len(new)))


def large() -> list[Tensor]:
    torch.manual_seed(3)
    spoiled = torch.randn(200_000)
    spoiled[[5, 70_000]] = float("nan")
    return [
        torch.randn(1_500_001),
        torch.randn(700),
        spoiled,
        torch.empty(0),
        1 + 1e-4 * torch.randn(300_000),
        torch.randn(500_000).bfloat16(),
        torch.randn(131_073, dtype=torch.float64),
        torch.randn(8_500_000),  # its chunks are two stretches long
    ]


@pytest.mark.parametrize("level", LEVELS)
def test_the_number_of_threads_changes_no_bit(level: str) -> None:
    tensors = large()
    old = [tensor * 0.5 for tensor in tensors]
    used = torch.get_num_threads()
    found = []
    try:
        for num in (1, 2, 5):
            torch.set_num_threads(num)
            found.append((measure(level, tensors), measure(level, tensors, old)))
    finally:
        torch.set_num_threads(used)
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            for a, b in zip(one, other, strict=True):
                assert a is not None
                assert b is not None
                assert torch.equal(a.view(torch.uint8), b.view(torch.uint8))
    *smaller, largest = tensors
    assert_agrees(found[0][0], smaller, range(len(smaller)))
    assert found[0][0].norms is not None
    assert float(found[0][0].norms[-1]) == pytest.approx(float(largest.double().norm()))


def test_no_thread_outlives_a_call_and_a_forked_process_measures_too() -> None:
    code = """
import os, sys, torch
from sonde.kernels import TensorStats
torch.set_num_threads(4)
tensors = [torch.ones(3_000_000)]
stats = TensorStats(tensors)
assert stats.path == "native", stats.reason
before = len(os.listdir("/proc/self/task"))
first = stats(tensors, histogram=True, sketch=True)
assert len(os.listdir("/proc/self/task")) == before
child = os.fork()
second = stats(tensors, histogram=True, sketch=True)
assert all(torch.equal(a, b) for a, b in zip(first, second))
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    env = {**os.environ, "PYTHONWARNINGS": "ignore"}
    subprocess.run([sys.executable, "-c", code], check=True, env=env, timeout=120)


def test_subnormal_values_count_where_the_training_flushes_them() -> None:
    tensors = [torch.full((100,), 1e-42)]
    if not torch.set_flush_denormal(True):
        pytest.skip("this machine cannot flush subnormal values")
    try:
        found = measure("baseline", tensors)
        assert float(tensors[0][0] * 1) == 0.0  # and still flushes them
    finally:
        torch.set_flush_denormal(False)
    assert_agrees(found, tensors, [0])
    assert found.rows[0, Column.ZEROS] == 0


def norms_of(tensors: Sequence[Tensor]) -> list[float]:
    norms = TensorStats(tensors)(tensors).norms
    assert norms is not None
    return [float(norm) for norm in norms]


def test_norms_tell_nan_from_infinity() -> None:
    tensors = [torch.ones(4), torch.tensor([1.0, -math.inf]), torch.tensor([math.inf, math.nan]), torch.zeros(5)]
    tensors += [torch.empty(0), torch.full((70_000,), 3e38), torch.full((9,), 1e-44)]
    want = [2.0, math.inf, math.nan, 0.0, 0.0, 3e38 * math.sqrt(70_000), 3 * float(torch.tensor(1e-44).double())]
    assert norms_of(tensors) == pytest.approx(want, rel=1e-6, abs=0, nan_ok=True)


def test_norms_of_types_and_layouts_of_every_kind_are_right() -> None:
    plain = torch.arange(1.0, 13.0).view(3, 4)
    tensors = [
        plain.double(),
        plain,
        plain.T,
        plain.bfloat16(),
        plain.half(),
        plain[:, :2],
        torch.complex(plain, plain),
    ]
    want = [float((torch.view_as_real(t) if t.is_complex() else t).double().norm()) for t in tensors]
    assert norms_of(tensors) == pytest.approx(want, rel=1e-6, abs=0)


def test_a_view_of_negative_values_is_measured_as_such() -> None:
    x = torch.tensor([1.0, 2.0, 4.0])
    stats = TensorStats([x])
    stats([x])
    assert stats([torch._neg_view(x)]).rows[0, [Column.MIN, Column.MAX]].tolist() == [-4.0, -1.0]


@pytest.mark.parametrize(
    "given",
    [
        [torch.zeros(2, 3)],
        [torch.zeros(3, 2)] * 2,
        [torch.zeros(2, 3), torch.zeros(4)],
        [torch.zeros(2, 3), torch.zeros(5, dtype=torch.float64)],
        [torch.zeros(2, 3), torch.zeros(5, device="meta")],
    ],
    ids=["fewer", "other shapes", "shorter", "another type", "another device"],
)
def test_what_was_not_prepared_for_is_refused(given: list[Tensor]) -> None:
    like = [torch.zeros(2, 3), torch.zeros(5)]
    stats = TensorStats(like)
    stats(like)
    with pytest.raises(ValueError, match="prepare"):
        stats(given)
    with pytest.raises(ValueError, match="prepare"):
        stats.of_difference(like, given)


class Wrapper(Tensor):
    """Has a shape, and its values elsewhere."""

    @staticmethod
    def __new__(cls, size: int) -> "Wrapper":
        return Tensor._make_wrapper_subclass(cls, (size,))

    def __torch_dispatch__(self, *_: object) -> None:
        raise NotImplementedError


def test_a_tensor_without_memory_of_its_own_is_refused_and_not_read() -> None:
    stats = TensorStats([torch.zeros(5), torch.zeros(7)])
    with pytest.raises((ValueError, RuntimeError, NotImplementedError)):
        stats([torch.zeros(5), Wrapper(7)])


def test_without_the_library_plain_torch_measures_and_the_run_says_so_once(tmp_path: Path) -> None:
    # The whole package but the library, as where nothing compiled it.
    package = Path(library.__file__).parents[2]
    (tmp_path / "sonde").mkdir()
    for file in package.iterdir():
        if file.name != "kernels":
            (tmp_path / "sonde" / file.name).symlink_to(file)
    for folder in (Path("kernels"), Path("kernels", "native")):
        (tmp_path / "sonde" / folder).mkdir()
        for file in (package / folder).glob("*.[pc]*"):
            if file.suffix in (".py", ".c"):
                (tmp_path / "sonde" / folder / file.name).symlink_to(file)
    code = """
import sys
import torch
import sonde
from sonde.kernels import TensorStats, reference
stats = TensorStats([torch.ones(3)])
assert stats.path == "torch", stats.path
assert "was not compiled" in stats.reason and "ziglang" in stats.reason, stats.reason
assert torch.equal(stats([torch.ones(3)]).rows[0], reference.row(torch.ones(3)))
model = torch.nn.Linear(3, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with sonde.watch(model, optimizer, run=sys.argv[1], console="quiet") as watch:
    for _ in range(5):
        loss = model(torch.ones(2, 3)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)
run = sonde.load(sys.argv[1])
said = [event.data["reason"] for event in run.events() if event.kind == "monitor-problem"]
assert len(said) == 1 and "was not compiled" in said[0], said
assert len(run.series("grad/norm").value) == 5
"""
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "run")],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("was not compiled") == 1
