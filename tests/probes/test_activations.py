"""Statistics of modules' outputs against those of copies taken as they came, in float64."""

import copy
import functools
import io
import math
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from tests.probes.armed import iteration
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sonde.core.frames import MISSING_BITS, Detail
from sonde.kernels.histograms import PERCENTS, coarse_edges
from sonde.probes.activation_functions import ACTIVATION_FUNCTIONS, activation_function
from sonde.probes.activations import Activations

from .armed import num_told


@pytest.fixture(autouse=True)
def _small_and_repeatable() -> Iterator[None]:
    torch.manual_seed(0)  # few units: with other weights all of them may happen to be silent
    num = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num)


def _is_missing(value: float) -> bool:
    return torch.tensor(value, dtype=torch.float32).view(torch.int32).item() == int(MISSING_BITS)


def _outputs(net: nn.Module, *data: Tensor) -> dict[str, Tensor]:
    """What every module of a copy gives, cloned at once."""
    net = copy.deepcopy(net)
    seen: dict[str, Tensor] = {}
    for name, module in net.named_modules():

        def keep(_: nn.Module, __: Any, output: Any, name: str = name) -> None:
            while not isinstance(output, Tensor):
                output = next(iter(output.values() if isinstance(output, Mapping) else output))
            seen.setdefault(name, output.detach().clone())

        module.register_forward_hook(keep)
    net(*data)
    return seen


def _wanted(x: Tensor) -> dict[str, float]:
    values = x.double().numpy().reshape(-1)
    return {
        "mean": values.mean(),
        "std": values.std(),
        "rms": math.sqrt((values**2).mean()),
        "min": values.min(),
        "max": values.max(),
        "absmax": np.abs(values).max(),
        "zeros": (values == 0).mean(),
        "nonfinite": 0.0,
        "headroom": math.log2(torch.finfo(x.dtype).max / np.abs(values).max()),
        "underflow": 0.0,
    }


def _assert_right(found: dict[str, float], name: str, x: Tensor) -> None:
    for statistic, value in _wanted(x).items():
        assert found[f"act/{statistic}@{name}"] == pytest.approx(value, rel=1e-4, abs=1e-6), (name, statistic)
    for percent in PERCENTS:
        lower, upper = np.percentile(x.double().numpy(), [max(percent - 6, 0), min(percent + 6, 100)])
        slack = 0.25 * max(abs(lower), abs(upper))
        assert lower - slack <= found[f"act/p{percent}@{name}"] <= upper + slack, (name, percent)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(inplace=True), nn.Linear(8, 5), nn.Tanh()),
        lambda: torch.randn(7, 6),
    ),
    "cnn": (
        lambda: nn.Sequential(
            *(nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(inplace=True)) for _ in range(2)),
            nn.Flatten(),
            nn.Linear(75, 2),
        ),
        lambda: torch.randn(4, 3, 5, 5),
    ),
    "transformer": (
        lambda: nn.Sequential(
            nn.Embedding(11, 8),
            nn.TransformerEncoder(
                nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), 2, enable_nested_tensor=False
            ),
            nn.Linear(8, 11),
        ),
        lambda: torch.randint(11, (3, 6)),
    ),
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("seed", range(2))
def test_statistics_are_those_of_the_outputs_as_they_came(model: str, seed: int) -> None:
    torch.manual_seed(seed)
    make, draw = MODELS[model]
    net, data = make(), draw()
    outputs = _outputs(net, data)
    probe = Activations({"": net})
    found = iteration(probe, lambda: net(data).sum().backward())
    names = {tag.partition("@")[2] for tag in found}
    assert {name for name, module in net.named_modules() if not list(module.children())} - names <= {
        f"1.layers.{i}.self_attn.out_proj"
        for i in range(2)  # attention uses its weights without calling it
    }
    for name in names:
        _assert_right(found, name, outputs[name])
    paths = {tag.partition("@")[0] + "@" for tag in found}
    assert paths <= set(probe.yields)


def _histograms(probe: Activations, work: Callable[[], Any]) -> dict[str, Any]:
    """The histograms that an iteration with all slots armed gives, by tag."""
    probe.arm(range(probe.num_slots))
    work()
    found: dict[str, Any] = {}
    for reading in probe.collect():
        numbers = torch.cat([tensor.detach().double().reshape(-1) for tensor in reading.tensors]).numpy()
        for row in reading.report(numbers):
            if row.columns.bins > 1:
                assert row.columns.detail is Detail.DISTRIBUTION
                found.update(zip(row.columns.tags, row.values.reshape(-1, row.columns.bins), strict=True))
    return found


@pytest.mark.parametrize("model", MODELS)
def test_histograms_count_the_outputs_in_the_bins_of_the_other_histograms(model: str) -> None:
    make, draw = MODELS[model]
    net, data = make(), draw()
    outputs = _outputs(net, data)
    found = _histograms(Activations({"": net}), lambda: net(data).sum().backward())
    assert {"act/histogram@0"} <= set(found)
    lower, upper = coarse_edges()
    for tag, counts in found.items():
        values = outputs[tag.partition("@")[2]].double().numpy().reshape(-1, 1)
        inside = np.where(lower >= 0, (lower <= values) & (values < upper), (lower < values) & (values <= upper))
        wanted = inside.sum(0)
        wanted[len(lower) // 2] = ((lower < values) & (values < upper))[:, len(lower) // 2].sum()
        np.testing.assert_array_equal(counts, wanted, err_msg=tag)


def test_nan_and_infinity_are_in_no_bin_of_a_histogram() -> None:
    net = nn.Sequential(nn.Identity())
    values = torch.tensor([[math.nan, math.inf, -math.inf, 1.0, -3.0]], requires_grad=True)
    counts = _histograms(Activations({"": net}), lambda: net(values))["act/histogram@0"]
    assert counts.sum() == 2


def test_the_histograms_of_an_iteration_are_bounded() -> None:
    net = nn.Sequential(*(nn.Linear(2, 2) for _ in range(100)))
    found = _histograms(Activations({"": net}), lambda: net(torch.ones(3, 2)))
    assert 0 < len(found) <= 32


def test_change_in_place_afterwards_falsifies_nothing() -> None:
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(inplace=True))
    found = iteration(Activations({"": net}), lambda: net(torch.randn(9, 6)))
    assert found["act/min@0"] < 0
    assert found["act/min@1"] == 0
    assert found["act/positive@1"] == pytest.approx(1 - found["act/zeros@1"])
    assert 0 < found["act/positive@1"] < 1


@dataclass
class Answer:
    ids: Tensor
    hidden: Tensor


class Odd(nn.Module):
    """A block that gives more than a tensor."""

    def __init__(self, form: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.fc, self.form = nn.Linear(4, 4), form

    def forward(self, x: Tensor) -> Any:
        return self.form(self.fc(x))


@pytest.mark.parametrize(
    "form",
    [
        lambda y: (y, None),
        lambda y: {"ids": torch.arange(3), "hidden": y, "other": y + 1},
        lambda y: Answer(torch.arange(3), y),
        lambda y: [{"deep": (torch.arange(2), y)}],
    ],
)
def test_first_tensor_of_numbers_is_found_in_any_output(form: Callable[[Tensor], Any]) -> None:
    blocks, data = [Odd(form), Odd(form)], torch.randn(3, 4)
    found = iteration(Activations({"": nn.ModuleList(blocks)}), lambda: [block(data) for block in blocks])
    for i, block in enumerate(blocks):
        _assert_right(found, f"{i}", block.fc(data).detach())
        _assert_right(found, f"{i}.fc", block.fc(data).detach())


def test_output_without_numbers_is_named() -> None:
    net = nn.ModuleList([Odd(lambda y: y.argmax(1)), Odd(lambda _: None)])
    probe = Activations({"": net})
    for _ in range(3):
        found = iteration(probe, lambda: [block(torch.randn(3, 4)) for block in net])
    assert _is_missing(found["act/mean@0"])
    assert set(probe.not_measured()) == {"act/*@0", "act/*@1"}


@pytest.mark.parametrize("shape", [(50, 6), (5, 9, 6), (2, 5, 4, 6)])
def test_units_of_linear_layers_and_what_follows_are_features(shape: tuple[int, ...]) -> None:
    layer = nn.Linear(6, 4)
    net = nn.Sequential(layer, nn.ReLU())
    with torch.no_grad():
        layer.weight[:3] = 0.0
        layer.bias[:3] = torch.tensor([0.0, -1.0, 2.0])
    probe = Activations({"": net}, window=3)
    for turn in range(4):
        found = iteration(probe, lambda: net(torch.randn(shape)))
        assert (found["act/constant@0"], found["act/constant@1"]) == (0.75, 0.75)
        if turn < 2:
            assert _is_missing(found["act/dead@0"])
            assert _is_missing(found["act/dead@1"])
        else:
            assert (found["act/dead@0"], found["act/dead@1"]) == (0.25, 0.5)


@pytest.mark.parametrize("batch", [(2,), ()])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_units_of_feature_maps_are_channels(batch: tuple[int, ...], layout: torch.memory_format) -> None:
    layer = nn.Conv2d(3, 4, 3)
    net = nn.Sequential(layer, nn.GELU())
    with torch.no_grad():
        layer.weight[1:] = 0.0
        layer.bias[1:] = torch.tensor([0.0, -1.0, 1.0])  # type: ignore[index]
    data = torch.randn(*batch, 3, 6, 5)
    if batch:
        data = data.to(memory_format=layout)
    found = iteration(Activations({"": net}, window=1), lambda: net(data))
    assert (found["act/constant@0"], found["act/constant@1"]) == (0.75, 0.75)
    assert (found["act/dead@0"], found["act/dead@1"]) == (0.25, 0.5)


def test_unit_that_fires_once_in_the_window_is_alive() -> None:
    layer = nn.Linear(2, 2, bias=False)
    net = nn.Sequential(layer, nn.ReLU())
    with torch.no_grad():
        layer.weight.copy_(torch.eye(2))
    probe = Activations({"": net}, window=3)
    data = [[1, 0], [0, 0], [1, 0], [0, 1], [0, 0], [0, 0], [0, 0]]
    found = [iteration(probe, functools.partial(net, torch.tensor([x, x]).float()))["act/dead@1"] for x in data]
    assert found[2:] == [0.5, 0.0, 0.0, 0.5, 1.0]


def test_high_share_of_zeros_is_not_death() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
    found = iteration(Activations({"": net}, window=1), lambda: net(torch.randn(64, 8)))
    assert found["act/zeros@1"] > 0.3
    assert found["act/dead@1"] == 0


def test_single_value_a_unit_is_not_called_constant() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    found = iteration(Activations({"": net}, window=1), lambda: net(torch.randn(1, 3)))
    assert _is_missing(found["act/constant@0"])
    assert not _is_missing(found["act/dead@0"])
    found = iteration(Activations({"": net}, window=1), lambda: net(torch.randn(3)))
    assert _is_missing(found["act/dead@0"])
    assert not _is_missing(found["act/mean@0"])


def _make(name: str) -> nn.Module:
    module: nn.Module = getattr(nn, name)()
    return module


_OF_TORCH = sorted(name for name in ACTIVATION_FUNCTIONS if hasattr(nn, name))


@pytest.mark.parametrize("name", [name for name in _OF_TORCH if ACTIVATION_FUNCTIONS[name].flat])
def test_saturated_is_where_the_slope_is_below_two_percent(name: str) -> None:
    net = _make(name)
    x = 8 * torch.randn(40, 50, dtype=torch.float64)
    x[0, 0] = -1e-9  # where all of them are at their steepest
    x.requires_grad_()
    found = iteration(Activations({"": net}), lambda: net(x))
    (slope,) = torch.autograd.grad(net(x).sum(), x)
    flat = slope < 0.02 * slope.max()
    if name == "ReLU6":
        flat &= x > 0
    assert found["act/saturated@model"] == pytest.approx(float(flat.double().mean()), abs=1e-12)
    assert 0.05 < found["act/saturated@model"] < 0.95


@pytest.mark.parametrize("name", [name for name in _OF_TORCH if ACTIVATION_FUNCTIONS[name].rectifies])
def test_rectifiers_are_positive_where_their_input_is(name: str) -> None:
    net, x = _make(name), torch.randn(30, 50)
    found = iteration(Activations({"": net}), lambda: net(x))
    assert found["act/positive@model"] == pytest.approx(float((x > 0).double().mean()), abs=1e-12)


@pytest.mark.parametrize("name", [name for name in _OF_TORCH if ACTIVATION_FUNCTIONS[name].silences])
def test_silencers_are_flat_far_below_zero(name: str) -> None:
    x = torch.full((3,), -20.0, requires_grad=True)
    _make(name)(x).sum().backward()
    assert x.grad is not None
    assert x.grad.abs().max() < 1e-3


def test_classes_made_from_known_ones_are_known() -> None:
    class Mine(nn.ReLU):
        pass

    assert activation_function(Mine()) is ACTIVATION_FUNCTIONS["ReLU"]
    assert activation_function(nn.Softmax(dim=-1)) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_range_is_that_of_the_number_format(dtype: torch.dtype) -> None:
    smallest = torch.finfo(dtype).tiny
    values = [smallest / 2, -smallest / 2, smallest, 1.0, 0.0, -4.0]
    if dtype is torch.float64:
        values[:2] = [1.0, 1.0]
    net = nn.Identity()
    found = iteration(Activations({"": net}), lambda: net(torch.tensor([values], dtype=torch.float64).to(dtype)))
    assert found["act/headroom@model"] == pytest.approx(math.log2(torch.finfo(dtype).max) - 2)
    if dtype is torch.float64:
        assert _is_missing(found["act/underflow@model"])
    else:
        assert found["act/underflow@model"] == pytest.approx(0.4)


def test_zeros_and_nonfinite_values_make_nothing_up() -> None:
    net = nn.ReLU()
    probe = Activations({"": net}, window=1)
    found = iteration(probe, lambda: net(torch.zeros(2, 3)))
    assert _is_missing(found["act/headroom@model"])
    assert _is_missing(found["act/underflow@model"])
    assert (found["act/rms@model"], found["act/dead@model"], found["act/positive@model"]) == (0, 1, 0)
    found = iteration(probe, lambda: net(torch.tensor([[math.nan, 1.0, -1.0], [2.0, math.inf, -1.0]])))
    assert found["act/nonfinite@model"] == 2
    assert (found["act/max@model"], found["act/mean@model"]) == (2.0, 0.75)
    assert found["act/positive@model"] == pytest.approx(2 / 6)
    assert found["act/dead@model"] == pytest.approx(1 / 3)
    assert math.isnan(found["act/rms@model"])
    assert not _is_missing(found["act/rms@model"])


def test_large_outputs_have_sampled_percentiles() -> None:
    torch.manual_seed(0)
    net, x = nn.GELU(), torch.randn(1000, 200)
    found = iteration(Activations({"": net}), lambda: net(x))
    _assert_right(found, "model", net(x))
    assert found["act/positive@model"] == pytest.approx(0.5, abs=0.02)


def test_autocast_outputs_are_measured_as_they_are() -> None:
    net, data = nn.Sequential(nn.Linear(6, 8), nn.GELU()), torch.randn(5, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = _outputs(net, data)
        found = iteration(Activations({"": net}), lambda: net(data))
    assert outputs["1"].dtype is torch.bfloat16
    for name in ("0", "1"):
        _assert_right(found, name, outputs[name])


def test_evaluation_in_the_middle_is_not_looked_at() -> None:
    net, data = nn.Sequential(nn.Linear(6, 8), nn.ReLU()), torch.randn(5, 6)
    probe = Activations({"": net})

    def work() -> None:
        with torch.no_grad():
            net(data + 100)
        with torch.inference_mode():
            net(data + 100)
        net(data).sum().backward()
        net(data + 100)

    _assert_right(iteration(probe, work), "0", net[0](data).detach())

    def evaluate() -> None:
        with torch.no_grad():
            net(data)

    for turn in range(3):
        assert iteration(probe, evaluate) == {}
        assert bool(probe.not_measured()) == (turn == 2)
    iteration(probe, work)
    assert not probe.not_measured()


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_blocks_are_measured_once(reentrant: bool) -> None:
    blocks = [nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True)) for _ in range(2)]
    net = nn.ModuleList(blocks)
    data = torch.randn(5, 4, requires_grad=True)
    probe = Activations({"": net}, window=2)

    def work() -> None:
        x: Any = data
        for block in blocks:
            x = checkpoint(block, x, use_reentrant=reentrant)
        x.sum().backward()

    for turn in range(2):
        found = iteration(probe, work)
        assert _is_missing(found["act/dead@1.1"]) == (turn == 0)
    x = blocks[0](data)
    _assert_right(found, "1.0", blocks[1][0](x).detach())
    _assert_right(found, "1", blocks[1](x).detach())


def test_slots_are_blocks_and_then_the_rest() -> None:
    net = nn.Sequential(
        nn.Linear(4, 4), *(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(3)), nn.Dropout(), nn.Linear(4, 1)
    )
    probe = Activations({"": net})
    assert probe.num_slots == 4
    where = [
        {tag.partition("@")[2] for tag in iteration(probe, lambda: net(torch.randn(3, 4)), [slot])} for slot in range(4)
    ]
    assert where == [{"1", "1.0", "1.1"}, {"2", "2.0", "2.1"}, {"3", "3.0", "3.1"}, {"0", "4", "5"}]


def test_sizes_of_batches_may_vary() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    probe = Activations({"": net}, window=100)
    for size in range(1, 101):
        data = torch.randn(size, 4)
        found = iteration(probe, functools.partial(net, data))
        assert found["act/mean@0"] == pytest.approx(float(net[0](data).detach().mean()), abs=1e-5)
    assert not _is_missing(found["act/dead@1"])


def _train(watched: bool, model: str) -> list[Tensor]:
    torch.manual_seed(0)
    make, draw = MODELS[model]
    net = make()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    probe = Activations({"": net}, window=2)
    for _ in range(4):
        if watched:
            probe.arm(range(probe.num_slots))
        net(draw()).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if watched:
            assert probe.collect()
    return [torch.randn(3), *net.state_dict().values()]


@pytest.mark.parametrize("model", MODELS)
def test_training_is_the_same_to_the_bit(model: str) -> None:
    assert all(torch.equal(a, b) for a, b in zip(_train(True, model), _train(False, model), strict=True))


def test_nothing_is_left_and_copies_are_clean() -> None:
    net, data = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.randn(3, 4)
    probe = Activations({"": net})
    probe.arm([0, 1])
    net(data)
    assert num_told(net) == 2
    file = io.BytesIO()
    torch.save(net, file)
    file.seek(0)
    copies = [copy.deepcopy(net), pickle.loads(pickle.dumps(net)), torch.load(file, weights_only=False)]
    assert len(probe.collect()) == 4  # of each module its numbers and its histogram
    assert num_told(net) == 0
    for twin in copies:
        assert torch.equal(twin(data), net(data))
    probe.arm([0, 1])
    probe.close()
    assert num_told(net) == 0
    assert probe.num_slots == 0
    assert probe.collect() == []


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # dynamo's own
def test_compiled_parts_are_named_and_the_rest_is_measured() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 1))
    net[1].compile(backend="eager")
    probe = Activations({"": net})
    assert set(probe.not_measured()) == {"act/*@1.0", "act/*@1.1"}
    found = iteration(probe, lambda: net(torch.randn(3, 4)))
    assert {tag.partition("@")[2] for tag in found} == {"0", "2"}


def test_tensors_of_inference_mode_may_pass_through() -> None:
    net = nn.Sequential(nn.Identity(), nn.Flatten(), nn.Linear(4, 2))
    with torch.inference_mode():
        data = torch.randn(3, 2, 2)
    found = iteration(Activations({"": net}), lambda: net[:2](data))
    _assert_right(found, "0", data)
    _assert_right(found, "1", data)


def test_window_must_be_a_number_of_iterations() -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        Activations({}, window=0)
    assert Activations({}).num_slots == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_training_on_a_gpu_never_waits() -> None:
    net, data = MODELS["cnn"][0]().cuda(), torch.randn(4, 3, 5, 5).cuda()
    probe = Activations({"": net}, window=2)
    for turn in range(3):
        net(data).sum().backward()
        # Preparing for a size, the first time, may wait.
        torch.cuda.set_sync_debug_mode("error" if turn else "default")
        try:
            probe.arm(range(probe.num_slots))
            net(data).sum().backward()
            readings = probe.collect()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    outputs = _outputs(net.cpu(), data.cpu())
    for reading in readings:
        numbers = torch.cat([tensor.double().reshape(-1).cpu() for tensor in reading.tensors]).numpy()
        for row in reading.report(numbers):
            if row.columns.bins > 1:
                continue  # the histogram
            found = dict(zip(row.columns.tags, map(float, row.values), strict=True))
            for name in {tag.partition("@")[2] for tag in found}:
                _assert_right(found, name, outputs[name])
