"""Singular values, and the thread that computes them."""

import copy
import math
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn

from sonde.core.frames import MISSING, is_missing
from sonde.probes.parameters import Watched
from sonde.probes.probe import Row
from sonde.probes.spectra import MOST_ELEMENTS, Spectra
from sonde.probes.spectrum import Spectrum
from sonde.probes.spectrum import spectrum as spectrum_of_tensor


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


Matrix = npt.NDArray[Any]


def spectrum(matrix: Matrix) -> Spectrum:
    return spectrum_of_tensor(torch.from_numpy(matrix))


def reference(matrix: Matrix) -> dict[str, float]:
    values = np.linalg.svd(matrix.astype(np.float64), compute_uv=False)
    share = values / values.sum()
    return {
        "largest": float(values[0]),
        "smallest": float(values[-1]),
        "condition": float(values[0] / values[-1]),
        "stable_rank": float((values**2).sum() / values[0] ** 2),
        "nuclear": float(values.sum()),
        "effective_rank": float(np.exp(-(share * np.log(share)).sum())),
    }


def missing(found: Spectrum) -> set[str]:
    return {name for name, value in found._asdict().items() if is_missing(np.array([value], np.float32))[0]}


def spectra(*tensors: Tensor) -> Spectra:
    watched = [Watched(f"w{i}", tensor) for i, tensor in enumerate(tensors)]
    return Spectra(lambda: watched)


def rows_now(probe: Spectra) -> list[Row]:
    """What one iteration's `collect` tells."""
    readings = probe.collect()
    assert not any(reading.tensors for reading in readings)
    return [row for reading in readings for row in reading.report(np.empty(0))]


def next_row(probe: Spectra) -> Row:
    """Collect, iteration after iteration, until the thread is ready."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for row in rows_now(probe):
            return row
    raise AssertionError("nothing came")


def measured(tensor: Tensor) -> dict[str, float]:
    probe = spectra(tensor)
    probe.arm([0])
    row = next_row(probe)
    probe.close()
    names = [tag.removeprefix("spectrum/").removesuffix("@w0") for tag in row.columns.tags]
    return dict(zip(names, map(float, row.values), strict=True))


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "sonde-spectra"]


@pytest.mark.parametrize("shape", [(1, 1), (7, 1), (1, 9), (5, 5), (20, 33), (300, 40), (3000, 500)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_matrix_has_the_singular_values_that_svd_finds(shape: tuple[int, int], dtype: type) -> None:
    matrix: Matrix = np.random.default_rng(sum(shape)).normal(size=shape).astype(dtype)
    assert spectrum(matrix)._asdict() == pytest.approx(reference(matrix), rel=1e-9)


@pytest.mark.parametrize("condition", [1e2, 1e4, 1e6])
def test_condition_numbers_are_as_exact_as_stated(condition: float) -> None:
    rng = np.random.default_rng(0)
    left, _ = np.linalg.qr(rng.normal(size=(80, 30)))
    right, _ = np.linalg.qr(rng.normal(size=(30, 30)))
    matrix = left * np.geomspace(1, 1 / condition, 30) @ right
    assert spectrum(matrix).condition == pytest.approx(condition, rel=1e-15 * condition**2 + 1e-9)


@pytest.mark.parametrize("size", [10, 200, 700])
def test_a_matrix_that_lacks_a_rank_has_an_infinite_condition_number(size: int) -> None:
    matrix = np.random.default_rng(size).normal(size=(size + 50, size))
    matrix[:, 0] = matrix[:, 1:].sum(1)
    found = spectrum(matrix)
    assert (found.smallest, found.condition) == (0, np.inf)
    values = np.linalg.svd(matrix, compute_uv=False)
    assert found.nuclear == pytest.approx(values.sum(), rel=1e-9)


def test_a_matrix_of_equal_singular_values_has_all_ranks_full() -> None:
    found = spectrum(np.linalg.qr(np.random.default_rng(1).normal(size=(50, 20)))[0])
    assert found == pytest.approx((1, 1, 1, 20, 20, 20))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("shape", [(6, 4), (1100, 1030)])
def test_a_value_that_is_not_finite_makes_all_nan(value: float, shape: tuple[int, int]) -> None:
    matrix = np.ones(shape, np.float32)
    matrix[2, 3] = value
    found = spectrum(matrix)
    assert np.isnan(found).all()
    assert missing(found) == ({"smallest", "condition", "nuclear", "effective_rank"} if shape[0] > 1024 else set())


@pytest.mark.parametrize("shape", [(6, 4), (1100, 1030)])
def test_a_zero_matrix_has_a_norm_and_nothing_that_divides_by_it(shape: tuple[int, int]) -> None:
    found = spectrum(np.zeros(shape, np.float32))
    assert found.largest == 0
    assert {"stable_rank", "condition", "effective_rank"} <= missing(found)
    assert "largest" not in missing(found)


@pytest.mark.parametrize("decay", [np.inf, 50.0])
@pytest.mark.parametrize("shape", [(1100, 1100), (1030, 1500)])
def test_a_large_matrix_has_its_largest_singular_value_to_a_percent(decay: float, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(7)
    matrix = (rng.normal(size=shape) * np.exp(-np.arange(shape[1]) / decay)).astype(np.float32)
    found, largest = spectrum(matrix), np.linalg.norm(matrix, 2)
    assert 0.99 * largest < found.largest < largest * (1 + 1e-5)
    assert found.stable_rank == pytest.approx(np.sum(matrix.astype(np.float64) ** 2) / found.largest**2)
    assert missing(found) == {"smallest", "condition", "nuclear", "effective_rank"}


@pytest.mark.parametrize("factor", [1e-30, 1e30])
def test_values_at_the_ends_of_float32_do_not_overflow(factor: float) -> None:
    for shape in ((30, 20), (1100, 1030)):
        left, right = (np.random.default_rng(n).normal(size=n) for n in shape)
        found = spectrum((np.outer(left, right) * factor).astype(np.float32))
        assert found.largest == pytest.approx(np.linalg.norm(left) * np.linalg.norm(right) * factor, rel=1e-5)
        assert found.stable_rank == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("channels_last", [False, True])
def test_the_probe_measures_a_weight_of_any_type_and_layout(dtype: torch.dtype, channels_last: bool) -> None:
    weight = torch.randn(8, 5, 3, 4).to(dtype)
    if channels_last:
        weight = weight.to(memory_format=torch.channels_last)
    expected = reference(weight.reshape(8, -1).double().numpy())
    assert measured(nn.Parameter(weight)) == pytest.approx(expected, rel=1e-9)


def test_the_probe_measures_transposed_and_sliced_weights() -> None:
    base = torch.randn(6, 9)
    for weight in (base.T, base[:, ::2], base[:1].expand(4, 9) + base[:4]):
        assert measured(weight) == pytest.approx(reference(weight.numpy()), rel=1e-9)


def test_the_weights_of_the_iteration_are_measured_though_they_change_at_once() -> None:
    weight = torch.randn(300, 200)
    expected = reference(weight.numpy())
    probe = spectra(weight)
    probe.arm([0])
    (copied,) = probe.collect()
    weight.zero_()
    row = next_row(probe)
    assert dict(zip(expected, row.values, strict=True)) == pytest.approx(expected, rel=1e-9)
    assert row.stamp is copied.stamp is not None
    probe.close()


def test_matrices_whose_turn_comes_at_once_are_measured_one_after_the_other() -> None:
    weights = [torch.randn(20, 30) for _ in range(5)]
    probe = spectra(*weights)
    assert probe.num_slots == 5
    probe.arm([0, 1])
    probe.arm([1, 3, 4])
    found = [next_row(probe) for _ in range(4)]
    assert [row.columns.tags[0] for row in found] == [f"spectrum/largest@w{i}" for i in (0, 1, 3, 4)]
    assert [float(row.values[0]) for row in found] == pytest.approx(
        [float(np.linalg.norm(weights[i].numpy(), 2)) for i in (0, 1, 3, 4)], rel=1e-5
    )
    assert not probe.collect()
    probe.close()


def test_columns_are_made_once() -> None:
    probe = spectra(torch.randn(3, 4))
    columns = []
    for _ in range(2):
        probe.arm([0])
        columns.append(next_row(probe).columns)
    probe.close()
    assert columns[0] is columns[1]


def test_what_cannot_be_measured_is_said_and_has_no_slot() -> None:
    probe = spectra(
        torch.randn(3, 4),
        torch.randn(7),
        torch.randn(0, 4),
        torch.randn(2, 2, dtype=torch.complex64),
        torch.empty(3, 3, device="meta"),
        torch.empty(1, 1).expand(MOST_ELEMENTS // 1024 + 1, 1024),
        torch.empty(1, 1).expand(1025, 1026),
    )
    reasons = probe.not_measured()
    assert {tag for tag in reasons if "*" in tag} == {f"spectrum/*@w{i}" for i in (2, 3, 4, 5)}
    assert {tag for tag in reasons if tag.endswith("@w6")} == {
        f"spectrum/{quantity}@w6" for quantity in ("smallest", "condition", "nuclear", "effective_rank")
    }
    assert "67,10" in reasons["spectrum/*@w5"]
    assert probe.num_slots == 2
    probe.close()


def test_a_sharded_weight_is_not_measured() -> None:
    from torch import distributed
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    store: Any = vars(distributed)["HashStore"]()
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        weight = distribute_tensor(torch.randn(4, 4), init_device_mesh("cpu", (1,)), [Shard(0)])
        probe = spectra(weight)
        assert probe.num_slots == 0
        assert "DTensor" in probe.not_measured()["spectrum/*@w0"]
        probe.arm([0])
        assert not probe.collect()
        probe.close()
    finally:
        distributed.destroy_process_group()


def test_parameters_that_come_later_have_their_turn_unless_they_are_larger() -> None:
    watched = [Watched("first", torch.randn(4, 6))]
    probe = Spectra(lambda: watched)
    watched += [Watched("second", torch.randn(6, 4)), Watched("third", torch.randn(40, 40))]
    probe.arm([0, 1])
    assert [next_row(probe).columns.tags[0] for _ in range(2)] == [
        "spectrum/largest@first",
        "spectrum/largest@second",
    ]
    assert probe.num_slots == 2
    assert "larger" in probe.not_measured()["spectrum/*@third"]
    watched.clear()  # a slot that waits for a parameter that is gone is passed over
    probe.arm([1])
    assert not probe.collect()
    probe.close()


def test_a_parameter_that_grew_by_a_change_of_type_is_passed_over_and_said() -> None:
    weight = nn.Parameter(torch.randn(4, 6))
    probe = spectra(weight)
    weight.data = weight.data.double()
    probe.arm([0])
    assert not probe.collect()
    assert "larger" in probe.not_measured()["spectrum/*@w0"]
    weight.data = weight.data.to(torch.bfloat16)
    probe.arm([0])
    expected = reference(weight.detach().double().numpy())
    assert dict(zip(expected, next_row(probe).values, strict=True)) == pytest.approx(expected, rel=1e-9)
    probe.close()


def test_a_model_without_matrices_has_no_slots() -> None:
    probe = spectra(torch.randn(3))
    assert probe.num_slots == 0
    probe.arm([])
    assert not probe.collect()
    probe.close()


def test_every_tag_is_announced() -> None:
    probe = spectra(torch.randn(3, 4))
    probe.arm([0])
    assert {tag.split("@")[0] + "@" for tag in next_row(probe).columns.tags} == set(probe.yields)
    probe.close()


def test_the_thread_starts_with_the_first_turn_and_ends_with_close() -> None:
    probe = spectra(torch.randn(30, 40))
    assert not threads()
    probe.arm([0])
    next_row(probe)
    assert len(threads()) == 1
    assert threads()[0].daemon
    probe.close()
    assert not threads()
    probe.close()
    probe.arm([0])
    assert not probe.collect()


def test_neither_the_training_nor_threads_that_are_yet_to_start_lose_cores() -> None:
    torch.set_num_threads(2)
    info = torch.__config__.parallel_info()
    probe = spectra(torch.randn(30, 40))
    probe.arm([0])
    next_row(probe)
    seen: list[int] = []
    later = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    later.start()
    later.join()
    assert seen == [2]
    assert torch.get_num_threads() == 2
    assert torch.__config__.parallel_info() == info
    probe.close()


def test_a_default_device_does_not_move_the_copy() -> None:
    torch.set_default_device("meta")
    try:
        weight = torch.ones(3, 4, device="cpu")
        assert measured(weight)["largest"] == pytest.approx(math.sqrt(12))
    finally:
        torch.set_default_device(None)


def test_a_probe_that_is_closed_with_work_under_way_leaves_no_thread() -> None:
    probe = spectra(torch.randn(60_000, 256))
    probe.arm([0])
    probe.collect()
    probe.close()
    assert not threads()


def trained(probe_at_work: bool) -> tuple[list[Tensor], Tensor]:
    torch.manual_seed(5)
    model = nn.Sequential(nn.Embedding(20, 8), nn.Flatten(), nn.Linear(24, 16), nn.Dropout(0.2), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    watched = [Watched(name, parameter) for name, parameter in model.named_parameters()]
    probe = Spectra(lambda: watched)
    for _ in range(20):
        if probe_at_work:
            probe.arm(range(probe.num_slots))
        optimizer.zero_grad()
        model(torch.randint(20, (4, 3))).square().mean().backward()
        optimizer.step()
        if probe_at_work:
            copy.deepcopy(model)
            probe.collect()
    probe.close()
    return [parameter.detach().clone() for parameter in model.parameters()], torch.get_rng_state()


def test_a_training_is_bit_identical_with_every_matrix_at_every_step() -> None:
    (weights, random), (others, other_random) = trained(True), trained(False)
    assert all(torch.equal(a, b) for a, b in zip(weights, others, strict=True))
    assert torch.equal(random, other_random)


def keep_busy(num_cycles: int) -> None:
    torch.cuda._sleep(num_cycles)  # type: ignore[no-untyped-call]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_on_a_gpu_nothing_waits_and_the_weights_of_the_iteration_are_measured(dtype: torch.dtype) -> None:
    weights: Sequence[Tensor] = [torch.randn(shape, device="cuda").to(dtype) for shape in ((300, 200), (16, 8, 3, 3))]
    expected = [reference(weight.reshape(len(weight), -1).double().cpu().numpy()) for weight in weights]
    probe = spectra(weights[0], weights[1].to(memory_format=torch.channels_last))
    probe.arm([0, 1])
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        keep_busy(200_000_000)  # the copy comes long after it was asked for
        assert not rows_now(probe)
        weights[0].zero_()
        rows = [next_row(probe) for _ in range(2)]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for row, values in zip(rows, expected, strict=True):
        assert dict(zip(values, row.values, strict=True)) == pytest.approx(values, rel=1e-9)
    probe.close()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_on_a_gpu_a_copy_that_has_not_come_does_not_hold_up_the_end() -> None:
    probe = spectra(torch.randn(300, 200, device="cuda"))
    probe.arm([0])
    keep_busy(4_000_000_000)
    probe.collect()
    probe.close()
    assert not threads()
    torch.cuda.synchronize()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_a_capture_is_left_alone() -> None:
    weight = torch.randn(30, 20, device="cuda")
    probe = spectra(weight)
    probe.arm([0])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        weight.mul_(2)
        assert not probe.collect()  # not even a stamp
    graph.replay()
    assert next_row(probe).values[0] == pytest.approx(float(torch.linalg.matrix_norm(weight.double(), 2)), rel=1e-6)
    probe.close()


def test_missing_is_told_apart_from_nan() -> None:
    assert missing(Spectrum(np.nan, float(MISSING), 1.0, 1.0, 1.0, 1.0)) == {"smallest"}
