"""What is compiled stays as it was: the same graphs, no recompilation, and the numbers that can be had are right."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

import sonde
from sonde.core.cadences import Every
from sonde.probes.cadences import Cadences

from . import loops

pytestmark = [
    # Torch's compilers wake its own deprecations when they are first imported.
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),
    # Dynamo looks at the loss where it leaves a graph.
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
]

NUM_STEPS, WARM_UP = 250, 10

# Everything has its turn for the first time after the warm-up, and many times over; but what is looked at in every
# iteration is from the second on.
LATE = Cadences(
    layers=Every(12, offset=11),
    cosines=Every(13, offset=11),
    updates=Every(21, offset=11),
    rotating=Every(14, offset=11),
    histograms=Every(15, offset=11),
    blocks=Every(16, offset=11),
    process=Every(20, offset=11),
    resources=Every(17, offset=11),
    inputs=Every(1),
    batches=Every(18, offset=11),
    spectra=Every(19, offset=11),
)


class Block(nn.Module):
    """Attention, and something for every other probe."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.qkv = nn.Linear(8, 24)
        self.down = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        y: Tensor = x + self.down(torch.relu(nn.functional.scaled_dot_product_attention(q, k, v)))
        return y


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embed = nn.Linear(1, 8)
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.blocks(self.embed(x.unsqueeze(-1))).mean(1))
        return logits


class Parts(NamedTuple):
    """A training, parts of it compiled."""

    net: nn.Module
    watched: nn.Module
    """What is given to `watch`."""
    optimizer: torch.optim.Optimizer
    iterate: Callable[[loops.Batch], Any]


Compile = Callable[[Any], Any]


def _iteration(net: Callable[[Tensor], Tensor], optimizer: Any, step: Callable[[], Any]) -> Callable[..., Any]:
    def iterate(batch: loops.Batch) -> Any:
        optimizer.zero_grad()
        loss = loops.loss_of(net, batch)
        loss.backward()
        step()
        return loss

    return iterate


def _with_model(compiled: Compile) -> Parts:
    net = Net()
    whole = compiled(net)
    optimizer = torch.optim.Adam(whole.parameters(), lr=0.01)
    return Parts(net, whole, optimizer, _iteration(whole, optimizer, optimizer.step))


def _with_hidden_model(compiled: Compile) -> Parts:
    """`watch` is given the model, and does not know that it is called compiled."""
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    return Parts(net, net, optimizer, _iteration(compiled(net), optimizer, optimizer.step))


def _with_block(compiled: Compile) -> Parts:
    net = Net()
    net.blocks[1] = compiled(net.blocks[1])
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    return Parts(net, net, optimizer, _iteration(net, optimizer, optimizer.step))


def _with_whole_step(compiled: Compile) -> Parts:
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    return Parts(net, net, optimizer, compiled(_iteration(net, optimizer, optimizer.step)))


def _with_optimizer(compiled: Compile) -> Parts:
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    return Parts(net, net, optimizer, _iteration(net, optimizer, compiled(optimizer.step)))


def _with_function(compiled: Compile) -> Parts:
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)

    def step() -> None:
        optimizer.step()

    return Parts(net, net, optimizer, _iteration(net, optimizer, compiled(step)))


CASES: dict[str, Callable[[Compile], Parts]] = {
    "the model": _with_model,
    "the model, unknown to us": _with_hidden_model,
    "a block": _with_block,
    "the whole step": _with_whole_step,
    "the optimiser's step": _with_optimizer,
    "a function that steps": _with_function,
}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


class Compiled(NamedTuple):
    """What became of a training."""

    graphs: list[tuple[str, ...]]
    """Those that dynamo found, in order: the functions that each calls."""
    num_breaks: int
    num_late: int
    """Frames that were looked at, and graphs that were compiled, after the warm-up."""
    losses: list[Tensor]


def _train(case: str, run: Path | None) -> Compiled:
    torch.compiler.reset()
    counters.clear()
    graphs: list[tuple[str, ...]] = []

    def note(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        graphs.append(tuple(str(node.target) for node in graph.graph.nodes if node.op.startswith("call")))
        return graph.forward

    def tries() -> int:
        return counters["frames"]["total"] + len(graphs)

    parts = CASES[case](lambda thing: torch.compile(thing, backend=note))
    losses, early = [], 0
    watch = None
    if run is not None:
        watch = loops.watching(parts.watched, parts.optimizer, run, cadence=LATE, console="quiet")
    for i, batch in enumerate(loops.batches(NUM_STEPS)):
        loss = parts.iterate(batch)
        losses.append(loss.detach())
        if watch is not None:
            watch.step(loss)
        if i == WARM_UP:
            early = tries()
    if watch is not None:
        watch.close()
    return Compiled(graphs, sum(counters["graph_break"].values()), tries() - early, losses)


@pytest.mark.parametrize("case", CASES)
def test_watching_changes_no_graph_and_never_compiles_again(case: str, tmp_path: Path) -> None:
    unwatched, watched = _train(case, None), _train(case, tmp_path / "run")
    assert unwatched.graphs, "something was compiled"
    assert watched.graphs == unwatched.graphs
    assert watched.num_breaks <= unwatched.num_breaks + 2, "one for each hook of the optimiser"
    assert unwatched.num_late == 0
    assert watched.num_late == 0
    assert all(map(torch.equal, unwatched.losses, watched.losses))
    run = sonde.load(tmp_path / "run")
    for tag in ("grad/rms@head.bias", "grad/cosine", "update/ratio@head.bias", "memory/parameters", "host/rss"):
        assert run.series(tag).step[0] > WARM_UP, tag
        assert len(run.series(tag).step) >= 3, tag
    assert run.tags("spectrum/*")


def _not_measured(run: Path) -> dict[str, str]:
    return {event.data["tag"]: event.data["reason"] for event in sonde.load(run).events("not-measured")}


def _num_values(run: Path, tag: str) -> int:
    return len(sonde.load(run).series(tag).step)


@pytest.mark.parametrize("case", ["the model", "a block", "the model, unknown to us", "the whole step"])
def test_activations_and_gains_inside_compiled_regions_are_said_to_be_unmeasured(case: str, tmp_path: Path) -> None:
    _train(case, tmp_path / "run")
    run, unmeasured = sonde.load(tmp_path / "run"), _not_measured(tmp_path / "run")
    for name in ["blocks.1"] if case == "a block" else ["blocks.0", "blocks.1"]:
        inside = [tag for tag in run.tags() if tag.startswith(("act/", "gain/block")) and f"@{name}" in tag]
        assert not any(_num_values(tmp_path / "run", tag) for tag in inside)
        assert {f"act/*@{name}", f"act/*@{name}.qkv", f"gain/block@{name}"} <= set(unmeasured)
    if case == "a block":
        for tag in ("act/rms@blocks.0", "act/rms@head", "gain/block@blocks.0", "attn/entropy@blocks.0"):
            assert _num_values(tmp_path / "run", tag) >= 10, tag


@pytest.mark.parametrize(
    "case",
    [
        "the model",
        "a block",
        "the model, unknown to us",
        "the whole step",
    ],
)
def test_attention_inside_compiled_regions_is_said_to_be_unmeasured(case: str, tmp_path: Path) -> None:
    _train(case, tmp_path / "run")
    unmeasured = _not_measured(tmp_path / "run")
    where = "blocks.1" if case == "a block" else "blocks.0"
    assert not sonde.load(tmp_path / "run").tags(f"attn/*@{where}*")
    assert any(tag.startswith("attn/*") for tag in unmeasured), unmeasured


@pytest.mark.parametrize("case", CASES)
def test_gradients_weights_and_updates_are_right_whatever_is_compiled(case: str, tmp_path: Path) -> None:
    parts = CASES[case](lambda thing: torch.compile(thing, backend="aot_eager"))
    expected: dict[str, list[float]] = {}

    def note(tag: str, tensors: list[Tensor]) -> None:
        expected.setdefault(tag, []).append(loops.norm_of(tensors))

    with loops.watching(parts.watched, parts.optimizer, tmp_path / "run", console="quiet") as watch:
        for batch in loops.batches(6):
            before = {name: p.detach().double() for name, p in parts.net.named_parameters()}
            watch.step(parts.iterate(batch))
            note("grad/norm", loops.gradients(parts.net))
            for name, parameter in parts.net.named_parameters():
                where = name.replace("_orig_mod.", "")
                assert parameter.grad is not None
                note(f"grad/norm@{where}", [parameter.grad])
                note(f"weight/norm@{where}", [parameter])
                note(f"update/norm@{where}", [parameter.detach().double() - before[name]])
    for tag, wanted in expected.items():
        np.testing.assert_allclose(loops.values(tmp_path / "run", tag), wanted, rtol=1e-4, atol=1e-8, err_msg=tag)
