"""Gains against gradients that autograd gives when asked for each one."""

import copy
import math
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.probes.armed import iteration
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sonde.core.frames import MISSING_BITS
from sonde.probes.gains import Gains

from .armed import num_told


@pytest.fixture(autouse=True)
def _small_and_repeatable() -> Iterator[None]:
    torch.manual_seed(0)  # few units: with other weights all of them may happen to be silent
    num = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num)


class Mlp(nn.Module):
    """A residual block of which everything may be varied."""

    def __init__(self, width: int, kind: str = "plain") -> None:
        super().__init__()
        self.up, self.act, self.down = nn.Linear(width, 2 * width), nn.ReLU(inplace=True), nn.Linear(2 * width, width)
        self.kind = kind

    def forward(self, x: Tensor, **_: Any) -> Any:
        if self.kind == "changes its input":
            x *= 0.5
            x += self.down(self.act(self.up(x.clone())))
            return x
        if self.kind == "forgets its input":
            x = 0 * x
        y = x + self.down(self.act(self.up(x)))
        if self.kind == "dict":
            return {"num": torch.ones(1, dtype=torch.int64), "hidden": y, "more": (y, y)}
        return y.view(-1).view(y.shape) if self.kind == "view" else y


class Net(nn.Module):
    """Blocks in a row, with what may happen between them."""

    def __init__(self, between: Callable[[Tensor], Tensor] = lambda x: x, kind: str = "plain", num: int = 3) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.blocks = nn.ModuleList(Mlp(4, kind) for _ in range(num))
        self.last = nn.Linear(4, 1)
        self.between = between

    def forward(self, x: Tensor, call: Callable[..., Any] = lambda block, x: block(x)) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            y = call(block, x)
            x = self.between(y["hidden"] if isinstance(y, dict) else y)
        out: Tensor = self.last(x)
        return out.square().mean()


def _wanted(net: Net, data: Tensor) -> dict[str, float]:
    """The gains of a copy in float64, every gradient asked for by name."""
    net, data = copy.deepcopy(net).double(), data.double()
    points: list[tuple[Tensor, Tensor]] = []

    def call(block: nn.Module, x: Tensor) -> Any:
        x = x.clone()  # a value that nothing changes in place
        y = block(x.clone())
        given = (y["hidden"] if isinstance(y, dict) else y).clone()
        points.append((x, given))
        return given.clone()

    loss = net(data, call)
    gains = {}
    for i, (x, y) in enumerate(points):
        at_input, at_output = torch.autograd.grad(loss, [x, y], retain_graph=True)
        gains[f"gain/block@blocks.{i}"] = float(at_input.norm() / at_output.norm())
    logs = [math.log(gain) for gain in gains.values()]
    gains["gain/mean"] = math.exp(sum(logs) / len(logs))
    gains["gain/mean_arithmetic"] = sum(map(math.exp, logs)) / len(logs)
    gains["gain/amplification"] = math.exp(sum(logs))
    return gains


def _is_missing(value: float) -> bool:
    return torch.tensor(value, dtype=torch.float32).view(torch.int32).item() == int(MISSING_BITS)


@pytest.mark.parametrize("kind", ["plain", "dict", "view", "changes its input"])
@pytest.mark.parametrize("seed", range(3))
def test_gains_are_ratios_of_gradients_at_input_and_output(kind: str, seed: int) -> None:
    torch.manual_seed(seed)
    net, data = Net(kind=kind), torch.randn(5, 4)
    found = iteration(Gains({"": net}), lambda: net(data).backward())
    assert found == pytest.approx(_wanted(net, data), rel=1e-5)


def _add_in_place(x: Tensor) -> Tensor:
    x += 1.0
    return x.mul_(3.0)


@pytest.mark.parametrize("between", [torch.relu_, _add_in_place, lambda x: x + x.detach().sin() * x])
def test_change_in_place_after_a_block_falsifies_nothing(between: Callable[[Tensor], Tensor]) -> None:
    net, data = Net(between), torch.randn(5, 4)
    found = iteration(Gains({"": net}), lambda: net(data).backward())
    assert found == pytest.approx(_wanted(net, data), rel=1e-5)
    assert net(data).isfinite()


def test_changed_view_is_not_measured_rather_than_wrong() -> None:
    net, data = Net(_add_in_place, kind="view"), torch.randn(5, 4)
    gains = Gains({"": net})
    for _ in range(3):
        assert iteration(gains, lambda: net(data).backward()) == {}
    assert set(gains.not_measured()) == {f"gain/block@blocks.{i}" for i in range(3)}


def test_changed_view_that_was_used_before_is_not_half_measured() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList([Mlp(4, "view"), Mlp(4, "view")])

        def forward(self, x: Tensor) -> Tensor:
            y = self.blocks[0](x)
            early = y * 2.0
            y += 1.0
            total: Tensor = (self.blocks[1](y) + early).sum()
            return total

    net, data = Twice(), torch.randn(5, 4, requires_grad=True)
    gains = Gains({"": net})
    found = iteration(gains, lambda: net(data).backward())
    assert _is_missing(found["gain/block@blocks.0"])
    assert not math.isnan(found["gain/block@blocks.1"])


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_blocks_have_the_same_gains(reentrant: bool) -> None:
    net, data = Net(), torch.randn(5, 4)
    gains = Gains({"": net})

    def call(block: nn.Module, x: Tensor) -> Any:
        return checkpoint(block, x, use_reentrant=reentrant)

    for _ in range(2):
        net.zero_grad()
        found = iteration(gains, lambda: net(data, call).backward())
        assert found == pytest.approx(_wanted(net, data), rel=1e-5)


def test_gradients_that_pass_by_a_block_count_at_its_input() -> None:
    class Skip(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList([Mlp(4), Mlp(4)])

        def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
            a = x * 2
            b = self.blocks[0](a)
            c = self.blocks[1](b)
            return (c * a).sum() + b.sum(), [a, b, c]

    net, data = Skip(), torch.randn(5, 4, requires_grad=True)
    found = iteration(Gains({"": net}), lambda: net(data)[0].backward())
    loss, points = net(data)
    a, b, c = (float(g.double().norm()) for g in torch.autograd.grad(loss, points))
    assert found["gain/block@blocks.0"] == pytest.approx(a / b, rel=1e-5)
    assert found["gain/amplification"] == pytest.approx(a / c, rel=1e-5)


def test_loss_scale_cancels() -> None:
    net, data = Net(), torch.randn(5, 4)
    found = iteration(Gains({"": net}), lambda: (net(data) * 65536.0).backward())
    assert found == pytest.approx(_wanted(net, data), rel=1e-5)


def test_tiny_gradients_have_a_gain() -> None:
    net, data = Net(), torch.randn(5, 4)
    found = iteration(Gains({"": net}), lambda: (net(data) * 1e-30).backward())
    assert found == pytest.approx(_wanted(net, data), rel=1e-4)


def test_autocast_changes_gains_by_rounding_only() -> None:
    net, data = Net(), torch.randn(64, 4)

    def work() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = net(data)
        loss.backward()

    assert iteration(Gains({"": net}), work) == pytest.approx(_wanted(net, data), rel=0.05)


def test_first_micro_batch_of_an_iteration_counts() -> None:
    net, data = Net(), torch.randn(2, 5, 4)

    def work() -> None:
        with torch.no_grad():
            net(data[1])
        losses = [net(micro) for micro in data]
        losses[0].backward(retain_graph=True)
        losses[1].backward()
        losses[0].backward()

    assert iteration(Gains({"": net}), work) == pytest.approx(_wanted(net, data[0]), rel=1e-5)


def test_means_are_of_the_gains_of_one_iteration() -> None:
    net, data = Net(), torch.randn(5, 4)
    gains = Gains({"": net})
    for factor in (1.0, 3.0, 0.5):  # the blocks change between iterations, as in training
        with torch.no_grad():
            for block in net.blocks:
                block.get_parameter("down.weight").mul_(factor)
        found = iteration(gains, lambda: net(data).backward(), range(gains.num_slots))
        assert found == pytest.approx(_wanted(net, data), rel=1e-5)
    assert gains.num_slots == 1


def test_input_without_gradient_is_named_as_the_reason() -> None:
    net, data = Net(), torch.randn(5, 4)
    net.first.requires_grad_(False)
    gains = Gains({"": net})
    for turn in range(4):
        found = iteration(gains, lambda: net(data).backward())
        assert _is_missing(found["gain/block@blocks.0"])
        assert not math.isnan(found["gain/mean"])
        assert bool(gains.not_measured()) == (turn >= 2)
    (reason,) = gains.not_measured().items()
    assert reason == ("gain/block@blocks.0", "its input requires no gradient, 3 times in a row")
    net.first.requires_grad_(True)
    iteration(gains, lambda: net(data).backward())
    assert not gains.not_measured()


def test_forward_without_backward_gives_nothing() -> None:
    net, data = Net(), torch.randn(5, 4)
    assert iteration(Gains({"": net}), lambda: net(data)) == {}
    assert iteration(Gains({"": net}), lambda: None) == {}
    kept = net(data)
    gains = Gains({"": net})
    iteration(gains, lambda: None)
    kept.backward()  # no hook of an iteration is in the graph of another
    assert gains.collect() == []


def test_gradient_of_nothing_is_told_from_a_gradient_that_vanishes() -> None:
    net, data = Net(), torch.randn(5, 4)
    found = iteration(Gains({"": net}), lambda: (0 * net(data)).backward())
    assert all(_is_missing(value) for value in found.values())
    assert "gain/mean" not in found
    found = iteration(Gains({"": net}), lambda: (math.inf * net(data)).backward())
    assert all(math.isnan(value) and not _is_missing(value) for value in found.values())
    net.blocks[1] = Mlp(4, "forgets its input")
    found = iteration(Gains({"": net}), lambda: net(data).backward())
    assert _is_missing(found["gain/block@blocks.0"])
    assert found["gain/block@blocks.1"] == found["gain/mean"] == found["gain/amplification"] == 0
    assert found["gain/mean_arithmetic"] > 0


def test_layers_of_torch_transformers_and_convolutions_have_gains() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    net = nn.Sequential(nn.Embedding(11, 8), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))
    found = iteration(Gains({"": net}), lambda: net(torch.randint(11, (3, 5))).square().sum().backward())
    assert set(found) == {"gain/block@1.layers.0", "gain/block@1.layers.1"} | {k for k in Gains.yields if "@" not in k}
    assert all(value > 0 for value in found.values())
    convolutions = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(inplace=True), nn.Conv2d(2, 1, 3))
    gains = Gains({"G": convolutions})
    found = iteration(gains, lambda: convolutions(torch.randn(2, 1, 7, 7)).sum().backward())
    assert _is_missing(found["gain/block@G.0"])
    assert found["gain/block@G.2"] > 0


@pytest.mark.parametrize("reentrant", [None, True, False])
def test_training_is_the_same_to_the_bit(reentrant: bool | None) -> None:
    def train(watched: bool) -> list[Tensor]:
        torch.manual_seed(0)
        net = Net(_add_in_place, kind="changes its input" if reentrant is None else "plain")
        optimizer = torch.optim.Adam(net.parameters())
        gains = Gains({"": net})
        for _ in range(5):
            if watched:
                gains.arm(range(gains.num_slots))
            x = torch.randn(5, 4)
            if reentrant is None:
                net(x).backward()
            else:
                net(x, lambda b, x: checkpoint(b, x, use_reentrant=reentrant)).backward()
            optimizer.step()
            optimizer.zero_grad()
            if watched:
                assert gains.collect()
        return [torch.randn(3), *net.parameters()]

    assert all(torch.equal(a, b) for a, b in zip(train(True), train(False), strict=True))


def test_nothing_is_left_and_copies_are_clean() -> None:
    net, data = Net(torch.sin), torch.randn(5, 4, requires_grad=True)
    gains = Gains({"": net})
    gains.arm([0])
    assert num_told(net) == 3
    net(data).backward()
    twin, thawed = copy.deepcopy(net), pickle.loads(pickle.dumps(net))
    gains.collect()
    assert num_told(net) == 0
    for other in (twin, thawed):
        other(data).backward()
    gains.arm([0])
    gains.close()
    assert num_told(net) == 0
    assert gains.num_slots == 0
    assert gains.collect() == []


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # dynamo's own
def test_compiled_blocks_are_named_and_left_alone() -> None:
    net, data = Net(), torch.randn(5, 4)
    net.blocks[1].compile(backend="eager")
    gains = Gains({"": net})
    assert set(gains.not_measured()) == {"gain/block@blocks.1"}
    gains.arm([0])
    assert num_told(net) == 2
    assert num_told(net.blocks[1]) == 0
    net(data).backward()
    assert gains.collect()
    assert set(gains.not_measured()) == {"gain/block@blocks.1"}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_training_on_a_gpu_never_waits() -> None:
    net, data = Net(kind="dict").cuda(), torch.randn(5, 4).cuda()
    gains = Gains({"": net})
    net(data).backward()
    torch.cuda.set_sync_debug_mode("error")
    try:
        gains.arm([0])
        net(data).backward()
        (reading,) = gains.collect()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    rows = list(reading.report(torch.stack(list(reading.tensors)).cpu().numpy()))
    found = dict(zip(rows[0].columns.tags, rows[0].values, strict=True))
    wanted = _wanted(net.cpu(), data.cpu())
    assert found == pytest.approx({tag: wanted[tag] for tag in found}, rel=1e-4)
