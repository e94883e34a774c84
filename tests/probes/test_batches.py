"""What the model is given."""

import copy
import functools
import math
import pickle
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from sonde.core.frames import is_missing
from sonde.probes.allocators import Allocators
from sonde.probes.batches import Batches, counts_of
from sonde.probes.devices import Devices
from sonde.probes.events import Events
from sonde.probes.features import Features
from sonde.probes.hosts import Hosts
from sonde.probes.inputs import thinned
from sonde.probes.memory import Memory
from sonde.probes.phases import Phases
from sonde.probes.probe import Probe

from .armed import iteration, num_told


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    num = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num)


class Taker(nn.Module):
    """Takes anything."""

    def forward(self, *args: Any, **kwargs: Any) -> None:
        pass


def _found(*args: Any, **kwargs: Any) -> dict[str, float]:
    net = Taker()
    return iteration(Batches({"": net}), lambda: net(*args, **kwargs))


def _features(*args: Any, **kwargs: Any) -> dict[str, float]:
    net = Taker()
    return iteration(Features({"": net}), lambda: net(*args, **kwargs))


def _labels(target: Any) -> dict[str, float]:
    batches = Batches({"": Taker()})
    return iteration(batches, lambda: batches.labels(target))


def _is_missing(value: float) -> bool:
    return bool(is_missing(np.array(value, np.float32)))


def _of_finite(values: Tensor) -> dict[str, float]:
    x = values.double().numpy().reshape(-1)
    finite = x[np.isfinite(x)]
    return {
        "nonfinite": len(x) - len(finite),
        "mean": finite.mean(),
        "std": finite.std(),
        "absmax": np.abs(finite).max(),
    }


def _of_features(values: Tensor, dim: int) -> dict[str, float]:
    stds, means = [], []
    for feature in values.double().movedim(dim, 0).reshape(values.shape[dim], -1).numpy():
        finite = feature[np.isfinite(feature)]
        if len(finite):
            means.append(finite.mean())
            stds.append(finite.std())
    varying = [std for std, mean in zip(stds, means, strict=True) if std > 1e-7 * abs(mean)]
    return {
        "scale_spread": max(stds) / min(varying) if varying else math.nan,
        "feature_std_max": max(stds),
        "feature_mean_absmax": np.abs(means).max(),
    }


def _place(found: dict[str, float], where: str) -> dict[str, float]:
    tags = {tag.partition("@")[0].removeprefix("batch/"): value for tag, value in found.items() if tag.endswith(where)}
    return {tag: value for tag, value in tags.items() if f"batch/{tag}@{where}" in found}


SHAPES = st.sampled_from([((12, 5), 1), ((3, 7, 4), 2), ((4, 3, 6, 5), 1), ((2, 3, 2, 4, 5), 1), ((9, 1), 1)])
DTYPES = st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16])


@given(SHAPES, DTYPES, st.floats(-3, 3), st.sampled_from([0.0, 0.1, 0.5]), st.integers(0, 2**31 - 1))
def test_floats_agree_with_a_plain_computation(
    shape: tuple[tuple[int, ...], int], dtype: torch.dtype, offset: float, bad: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    size, dim = shape
    scales = torch.rand(size[dim], generator=generator).add(0.1).reshape(-1, *[1] * (len(size) - dim - 1))
    x = (torch.randn(size, generator=generator) * scales + offset).to(dtype)
    x[torch.rand(size, generator=generator) < bad] = math.nan
    x.view(-1)[0] = 1.0
    if bad:
        x.view(-1)[-1] = -math.inf
    found = _place(_found(x) | _features(x), "0")
    assert found == pytest.approx(_of_finite(x) | _of_features(x, dim), rel=1e-4, abs=1e-6, nan_ok=True)


def test_of_a_large_input_the_extremes_are_exact_and_the_rest_is_of_a_sample() -> None:
    x = torch.randn(3001, 1024, generator=torch.Generator().manual_seed(0)).add(2)
    x[-2, -2] = -1000.0
    found = _place(_found(x), "0")
    assert (found["nonfinite"], found["absmax"]) == (0, 1000)
    assert found["mean"] == pytest.approx(2, abs=0.01)
    assert found["std"] == pytest.approx(1, abs=0.01)


@given(st.integers(0, 3000), st.integers(0, 1023), st.sampled_from([math.nan, math.inf, -math.inf]))
def test_one_bad_value_anywhere_in_a_large_input_is_seen(row: int, column: int, bad: float) -> None:
    x = torch.ones(3001, 1024)
    x[row, column] = bad
    found = _place(_found(x), "0")
    assert (found["nonfinite"], found["absmax"]) == (1, 1)
    assert found["mean"] == pytest.approx(1, rel=1e-5)


def test_features_of_a_large_batch_are_those_of_a_sample_spread_over_it() -> None:
    x = torch.randn(64, 3, 128, 128, generator=torch.Generator().manual_seed(0))
    x *= torch.tensor([1.0, 10.0, 200.0]).reshape(3, 1, 1)
    found = _place(_features(x), "0")
    assert found["scale_spread"] == pytest.approx(200, rel=0.02)
    assert found["feature_std_max"] == pytest.approx(200, rel=0.02)


@given(st.lists(st.integers(1, 200), min_size=1, max_size=4), st.integers(1, 5000))
def test_thinning_keeps_enough_and_leaves_other_dimensions_whole(shape: list[int], most: int) -> None:
    x = torch.zeros(1).expand(shape)
    dims = range(0, len(shape), 2)
    thin = thinned(x, dims, most)
    for dim in range(len(shape)):
        assert thin.shape[dim] >= min(shape[dim], 16)
        assert dim in dims or thin.shape[dim] == shape[dim]
    if x.numel() <= most:
        assert thin.shape == x.shape


def test_constant_features_have_no_spread() -> None:
    x = torch.full((100, 3), 0.1)
    assert _is_missing(_features(x)["batch/scale_spread@0"])
    x[:, 1] = torch.arange(100.0)
    x[:, 2] = 2 * torch.arange(100.0)
    assert _features(x)["batch/scale_spread@0"] == pytest.approx(2)


def test_an_input_without_a_finite_value_has_only_its_count() -> None:
    x = torch.full((4, 2), math.nan)
    found = _place(_found(x) | _features(x), "0")
    assert found.pop("nonfinite") == 8
    assert {tag for tag, value in found.items() if _is_missing(value)} == {"mean", "std", "absmax", "scale_spread"}


def test_a_vector_has_no_features() -> None:
    assert _features(torch.ones(5), torch.arange(6).reshape(2, 3)) == {}
    assert set(_place(_found(torch.ones(5)), "0")) == {"nonfinite", "mean", "std", "absmax"}


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.uint16])
def test_integers_have_their_extremes(dtype: torch.dtype) -> None:
    found = _found(torch.tensor([[7, 3, 200], [9, 3, 3]]).to(dtype))
    assert found == {
        "batch/min@0": 3,
        "batch/max@0": 200,
        "batch/size": 2,
        "batch/sequence": 3,
        "batch/samples": 2,
        "batch/tokens": 6,
    }


class Pair(NamedTuple):
    left: Any
    right: Any


def test_inputs_are_found_wherever_they_are_and_named_after_their_place() -> None:
    one = torch.ones(2, 3)
    found = _found(
        {"image": one, "rest": [None, "text", one]}, Pair(one, 3), one.bool(), torch.tensor(1.0), mask=(one.int(),)
    )
    places = {tag.partition("@")[2] for tag in found if "@" in tag}
    assert places == {"0.image", "0.rest.2", "1.0", "mask.0"}
    assert found["batch/size"] == 2


def test_a_model_that_is_given_no_tensor_has_nothing_measured() -> None:
    assert _found("text", 3) == {}


def test_of_several_targets_in_an_iteration_the_first_count() -> None:
    batches = Batches({"": Taker()})

    def work() -> None:
        batches.labels(torch.tensor([1, 1]))
        batches.labels(torch.tensor([2, 3]))

    found = iteration(batches, work)
    assert found["label/num_distinct"] == 1
    found = iteration(batches, lambda: batches.labels(torch.tensor([2, 3])))
    assert found["label/num_distinct"] == 2


def test_bad_values_in_the_targets_of_later_micro_batches_are_counted() -> None:
    batches = Batches({"": Taker()})

    def work() -> None:
        batches.labels(torch.tensor([1.0, 3.0]))
        batches.labels(torch.tensor([math.nan, 5.0]))

    found = iteration(batches, work)
    assert (found["label/nonfinite"], found["label/absmax"], found["label/mean"]) == (1, 5, 2)


def test_features_are_of_the_first_forward_of_each_model() -> None:
    nets = {"G": Taker(), "D": Taker()}

    def work() -> None:
        for net, scale in zip(nets.values(), (2.0, 3.0), strict=True):
            net(torch.tensor([[-1.0], [1.0]]) * scale)
            net(torch.tensor([[-1.0], [1.0]]) * 100)

    features = Features(nets)
    found = iteration(features, work)
    assert (found["batch/feature_std_max@G.0"], found["batch/feature_std_max@D.0"]) == (2, 3)
    assert features.collect() == []
    features.arm([0])
    features.close()
    assert not any(map(num_told, nets.values()))


def test_containers_that_contain_themselves_come_to_an_end() -> None:
    endless: list[Any] = [torch.ones(3, 2)]
    endless.append(endless)
    assert _found(endless)["batch/size"] == 3


def test_keys_that_no_tag_may_hold_are_written_out() -> None:
    assert "batch/mean@0.'a\\nb'" in _found({"a\nb": torch.ones(3)})


@pytest.mark.parametrize(
    "special",
    [
        torch.empty(4, 0),
        torch.empty(4, 4, device="meta"),
        torch.eye(4).to_sparse(),
        torch.complex(torch.ones(4), torch.ones(4)),
    ],
    ids=["empty", "meta", "sparse", "complex"],
)
def test_special_tensors_are_left_out(special: Tensor) -> None:
    assert _found(special) == {"batch/size": 4, "batch/samples": 4}


def test_values_inside_a_transformation_are_left_out() -> None:
    net = nn.Linear(3, 1)
    batches = Batches({"": net})
    x = torch.ones(5, 3)
    found = iteration(batches, lambda: torch.func.grad(lambda x: net(x).sum())(x))
    assert found == {"batch/size": 5, "batch/samples": 5}


def test_of_several_forwards_extremes_and_bad_values_are_told_of_all() -> None:
    net = Taker()

    def work() -> None:
        with torch.no_grad():
            net(torch.full((64, 1), 5), torch.full((64,), 9.0))
        for value in (2, 1, 3):
            x = torch.full((4,), float(value))
            x[value:] = math.nan
            net(torch.full((4, 8), value), x)

    found = iteration(Batches({"": net}), work)
    assert (found["batch/min@0"], found["batch/max@0"]) == (1, 3)
    assert (found["batch/nonfinite@1"], found["batch/absmax@1"], found["batch/mean@1"]) == (6, 3, 2)
    assert (found["batch/size"], found["batch/samples"], found["batch/tokens"]) == (4, 12, 96)


def test_a_model_that_is_called_for_every_token_is_looked_at_eight_times() -> None:
    net = Taker()

    def work() -> None:
        for value in range(100):
            net(torch.full((4,), value))

    found = iteration(Batches({"": net}), work)
    assert (found["batch/max@0"], found["batch/samples"]) == (7, 400)


def test_after_an_iteration_without_a_forward_the_model_is_left_alone_for_a_while() -> None:
    net = Taker()
    batches = Batches({"": net})
    assert iteration(batches, lambda: None) == {}
    looked = [bool(iteration(batches, lambda: net(torch.ones(2)))) for _ in range(103)]
    assert looked == [False] * 99 + [True] * 4
    found = iteration(batches, lambda: batches.labels(torch.ones(2)))
    found |= iteration(batches, lambda: batches.labels(torch.ones(2)))
    assert found["label/mean"] == 1


def test_models_by_name_have_their_own_tags() -> None:
    nets = {"G": Taker(), "D": Taker()}

    def work() -> None:
        nets["G"](torch.ones(2, 5))
        nets["D"](torch.ones(3, 7, 5))

    found = iteration(Batches(nets), work)
    assert (found["batch/size@G"], found["batch/size@D"], found["batch/sequence@D"]) == (2, 3, 7)
    assert "batch/sequence@G" not in found
    assert {"batch/mean@G.0", "batch/mean@D.0"} <= set(found)


@given(st.lists(st.integers(-2, 6), min_size=1, max_size=60), st.sampled_from([torch.int64, torch.int32]))
def test_classes_agree_with_a_plain_count(classes: list[int], dtype: torch.dtype) -> None:
    found = _labels(torch.tensor(classes, dtype=dtype))
    counted = np.unique([c for c in classes if c >= 0], return_counts=True)[1]
    if len(counted):
        shares = counted / counted.sum()
        wanted = [len(shares), shares.max(), -(shares * np.log(shares)).sum()]
        assert list(found.values()) == pytest.approx(wanted, abs=1e-12)
    else:
        assert all(map(_is_missing, found.values()))
    assert list(found) == ["label/num_distinct", "label/share_max", "label/entropy"]


def test_more_classes_than_are_counted_are_missing() -> None:
    assert _labels(torch.arange(1024))["label/num_distinct"] == 1024
    assert all(map(_is_missing, _labels(torch.arange(1025)).values()))


def test_floating_point_targets_have_their_moments() -> None:
    target = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    target[0, 0] = math.nan
    found = _labels(["no tensor", {"boxes": target}])
    assert {tag.removeprefix("label/"): value for tag, value in found.items()} == pytest.approx(
        _of_finite(target), rel=1e-5
    )


def test_targets_that_are_true_or_false_are_two_classes() -> None:
    assert _labels(torch.tensor([True, False, True, True]))["label/share_max"] == 0.75


def test_targets_without_a_tensor_and_outside_an_armed_iteration_are_nothing() -> None:
    assert _labels("seven") == {}
    batches = Batches({"": Taker()})
    batches.labels(torch.ones(3))
    assert batches.collect() == []


@pytest.mark.parametrize(
    ("batch", "wanted"),
    [
        (torch.zeros(8, 3), (8, None)),
        ((torch.zeros(8, 3, 4, 4), torch.zeros(8)), (8, None)),
        ([torch.zeros(6, 10, dtype=torch.int32)], (6, 60)),
        ({"step": torch.tensor(3), "input_ids": torch.zeros(2, 5, dtype=torch.int64)}, (2, 10)),
        (torch.zeros(7, dtype=torch.int64), (7, None)),
        (torch.zeros(7, 2, dtype=torch.bool), (7, None)),
        ((np.zeros(3), "text"), (None, None)),
        (None, (None, None)),
    ],
)
def test_counts_come_from_shapes(batch: Any, wanted: tuple[int | None, int | None]) -> None:
    assert counts_of(batch) == wanted


def test_a_model_wrapped_by_torch_compile_is_measured_without_compiling_again() -> None:
    compiled: list[Any] = []

    def backend(graph: torch.fx.GraphModule, _inputs: Any) -> Any:
        compiled.append(graph)
        return graph.forward

    net: Any = torch.compile(nn.Linear(3, 2), backend=backend)
    net(torch.ones(4, 3))
    batches = Batches({"": net})
    for x in (torch.ones(4, 3), torch.full((4, 3), 2.0)):
        assert iteration(batches, functools.partial(net, x))["batch/mean@0"] == x[0, 0]
    net(torch.ones(4, 3))
    assert len(compiled) == 1


def test_a_model_compiled_in_place_is_not_measured() -> None:
    net = nn.Linear(3, 2)
    net.compile(backend="eager")
    batches = Batches({"": net})
    assert iteration(batches, lambda: net(torch.ones(4, 3))) == {}
    assert set(batches.not_measured()) == {"batch/*"}
    assert set(Batches({"G": net}).not_measured()) == {"batch/*@G", "batch/*@G.*"}


def test_copies_and_files_made_in_the_middle_hold_nothing_of_ours() -> None:
    net = nn.Linear(3, 2)
    batches = Batches({"": net})

    def work() -> None:
        for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
            other(torch.full((1, 3), 9.0))
        net(torch.ones(4, 3))

    assert iteration(batches, work)["batch/mean@0"] == 1
    assert num_told(net) == 0


def test_closing_in_the_middle_takes_the_hooks_away() -> None:
    net = nn.Linear(3, 2)
    batches = Batches({"": net})
    batches.arm([0])
    net(torch.ones(4, 3))
    batches.close()
    assert num_told(net) == 0
    assert batches.collect() == []


def test_every_tag_that_comes_is_announced() -> None:
    batches = Batches({"": Taker()})
    found = set(_found(torch.ones(4, 5, 3), ids=torch.ones(4, 5, dtype=torch.int64)))
    found |= (
        set(_found(torch.ones(4, 5, dtype=torch.int64))) | set(_labels(torch.ones(4))) | set(_labels([torch.arange(3)]))
    )
    assert {tag.partition("@")[0] + "@" * ("@" in tag) for tag in found} == set(batches.yields)
    features = Features({"": Taker()})
    assert {tag.partition("@")[0] + "@" for tag in _features(torch.ones(4, 5))} == set(features.yields)


Watched = Callable[[nn.Module, torch.optim.Optimizer, torch.device], list[Probe]]


def all_seven(net: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> list[Probe]:
    models, optimizers = {"": net}, {"": optimizer}
    return [
        Memory(models, optimizers),
        Hosts(),
        Devices([device]),
        Allocators(lambda: [device]),
        Phases(models, device),
        Batches(models),
        Features(models),
    ]


def nobody(net: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> list[Probe]:
    return []


def trained(watched: Watched, device: torch.device) -> list[Tensor]:
    """Everything that a short training leaves behind, and how many rows were found."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout(), nn.Flatten(), nn.Linear(64, 3)
    ).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    probes = watched(net, optimizer, device)

    def failed(error: Exception) -> None:
        raise error

    events = Events(failed)
    for probe in probes:
        if isinstance(probe, Memory | Phases):
            probe.listen(events)
    losses, num_rows = [], 0
    for _ in range(6):
        for probe in probes:
            probe.arm(range(probe.num_slots))
        for _ in range(2):
            x, y = torch.randn(5, 2, 6, 6).to(device), torch.randint(3, (5,)).to(device)
            for probe in probes:
                if isinstance(probe, Batches):
                    probe.labels(y)
            with torch.autocast(device.type, torch.bfloat16):
                loss: Any = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            losses.append(loss.detach())
        events.tell(events.moment, "optimizer")
        optimizer.step()
        events.tell(events.moment, "optimizer-done")
        events.tell(events.optimizer_left, optimizer)
        optimizer.zero_grad()
        num_rows += sum(
            len(list(reading.report(np.ones(sum(t.numel() for t in reading.tensors)))))
            for probe in probes
            for reading in probe.collect()
        )
    for probe in probes:
        probe.close()
    assert num_rows >= 6 * 3 or not probes
    states = [t for state in optimizer.state.values() for t in state.values()]
    random = [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]
    return [*losses, *net.state_dict().values(), *states, *random]


def test_a_training_armed_at_every_step_is_bit_identical() -> None:
    device = torch.device("cpu")
    pairs = zip(trained(nobody, device), trained(all_seven, device), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_a_training_on_a_gpu_armed_at_every_step_is_bit_identical() -> None:
    device = torch.device("cuda:0")
    with torch.backends.cudnn.flags(enabled=True, deterministic=True):
        pairs = zip(trained(nobody, device), trained(all_seven, device), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_on_a_gpu_nothing_waits_and_the_numbers_are_the_same() -> None:
    net = Taker()
    generator = torch.Generator().manual_seed(0)
    x, ids = torch.randn(64, 3, 40, 40, generator=generator), torch.randint(1000, (8, 16), generator=generator)
    x[3, 1, 2, 3] = math.nan
    inputs = [x, x.bfloat16(), x.double(), ids]
    batches = Batches({"": net})

    def work(given: list[Tensor]) -> None:
        net(*given)
        batches.labels(given[-1].reshape(-1))

    wanted = iteration(batches, lambda: work(inputs))
    away = [tensor.cuda() for tensor in inputs]
    torch.cuda.synchronize()
    for _ in range(2):
        batches.arm([0])
        torch.cuda.set_sync_debug_mode("error")
        work(away)
        (reading,) = batches.collect()
        torch.cuda.set_sync_debug_mode("default")
    numbers = torch.cat([tensor.double().reshape(-1) for tensor in reading.tensors]).cpu().numpy()
    (row,) = reading.report(numbers)
    assert dict(zip(row.columns.tags, row.values.tolist(), strict=True)) == pytest.approx(wanted, rel=1e-4, abs=1e-6)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_targets_on_the_cpu_come_with_inputs_on_the_gpu() -> None:
    net = Taker()
    batches = Batches({"": net})
    batches.arm([0])
    batches.labels(torch.tensor([0, 1, 1]))
    net(torch.ones(3, 2, device="cuda"))
    (reading,) = batches.collect()
    assert {tensor.device.type for tensor in reading.tensors} == {"cuda"}
    numbers = torch.cat([tensor.double().reshape(-1) for tensor in reading.tensors]).cpu().numpy()
    (row,) = reading.report(numbers)
    found = dict(zip(row.columns.tags, row.values.tolist(), strict=True))
    assert (found["label/num_distinct"], found["batch/mean@0"]) == (2, 1)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_nothing_gets_into_a_graph_that_is_being_captured() -> None:
    net, x = nn.Linear(3, 2, device="cuda"), torch.ones(4, 3, device="cuda")
    net(x)
    batches = Batches({"": net})
    batches.arm([0])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        net(x)
    (reading,) = batches.collect()
    assert not reading.tensors
    (row,) = reading.report(np.empty(0))
    assert set(row.columns.tags) == {"batch/size", "batch/samples"}


def test_state_of_a_recurrent_model_and_what_others_computed_are_no_data() -> None:
    rnn = nn.LSTM(4, 6)
    x, hidden = torch.randn(5, 3, 4), (torch.zeros(1, 3, 6), torch.ones(1, 3, 6))
    for probe in (Batches, Features):
        tags = iteration(probe({"": rnn}), lambda: rnn(x, hidden))
        assert {tag.rpartition("@")[2] for tag in tags if "@" in tag} == {"0"}
    made = nn.Linear(4, 4)(torch.randn(3, 4))
    assert not any("@" in tag for tag in _found(made))
    assert "batch/std@1" in _found(made, made.detach())
