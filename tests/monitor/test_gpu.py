"""On a GPU: the training is the same to the bit, nothing waits, graphs are captured, and the numbers are right.

This file is also a program: `python test_gpu.py NAME FOLDER` trains a case of `CASES` with deterministic algorithms,
which must be asked for before CUDA starts, and writes to FOLDER, as JSON, what came of it.
"""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

import sonde
from sonde.core.cadences import every
from sonde.probes.cadences import Cadences

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
    # Torch says so of `make_graphed_callables` itself, which captures on a stream of its own.
    pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream does not match:UserWarning"),
]

NUM_STEPS = 300
VOCABULARY = 61
INITIAL_SCALE = 2.0**30  # overflows

ALWAYS = Cadences(
    layers=every(1),
    cosines=every(1),
    rotating=every(1),
    histograms=every(1),
    blocks=every(1),
    process=every(1),
    resources=every(1),
    batches=every(1),
    spectra=every(1),
)
OFTEN = Cadences(
    layers=every(1),
    cosines=every(3),
    rotating=every(4),
    histograms=every(7),
    blocks=every(5),
    process=every(3),
    resources=every(3),
    batches=every(4),
    spectra=every(9),
)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.proj(y.transpose(1, 2).flatten(2)))
        z: Tensor = x + self.down(nn.functional.gelu(self.up(self.norm2(x))))
        return z


class Gpt(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, ids: Tensor) -> Tensor:
        logits: Tensor = self.head(self.blocks(self.tokens(ids)))
        return logits


def sentences(num: int = 8) -> list[Tensor]:
    """Batches that lie on the device already."""
    generator = torch.Generator().manual_seed(2)
    return [torch.randint(VOCABULARY, (4, 17), generator=generator).cuda() for _ in range(num)]


def loss_of(net: Callable[[Tensor], Tensor], ids: Tensor) -> Any:
    return nn.functional.cross_entropy(net(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def watching(net: Any, optimizer: Any, run: Path, cadence: Cadences | None = ALWAYS) -> Any:
    return sonde.watch(net, optimizer, run=run, cadence=cadence, budget=1.0, strict=True, console="quiet")


def values(run: Path, tag: str) -> list[float]:
    series = sonde.load(run).series(tag)
    np.testing.assert_array_equal(series.step, np.arange(1, len(series.step) + 1))
    return [float(value) for value in series.value]


def norm_of(tensors: list[Tensor]) -> float:
    return float(torch.cat([tensor.detach().double().reshape(-1) for tensor in tensors]).norm())


# The same to the bit.


class Plain:
    """fp32, or autocast."""

    def __init__(
        self, net: nn.Module, optimizer: Any, *, dtype: torch.dtype | None = None, clips: bool = False
    ) -> None:
        self.net, self.optimizer, self.dtype, self.clips = net, optimizer, dtype, clips

    def __call__(self, ids: Tensor) -> Any:
        self.optimizer.zero_grad()
        with torch.autocast("cuda", self.dtype, enabled=self.dtype is not None):
            loss = loss_of(self.net, ids)
        loss.backward()
        if self.clips:
            clip_grad_norm_(self.net.parameters(), 0.5)
        self.optimizer.step()
        return loss

    def scale(self) -> float:
        return 1.0


class Scaled:
    """fp16 with a scaler that overflows at first, and again whenever it has grown."""

    def __init__(self, net: nn.Module, optimizer: Any) -> None:
        self.net, self.optimizer = net, optimizer
        self.scaler = torch.amp.GradScaler("cuda", init_scale=INITIAL_SCALE, growth_interval=5)

    def __call__(self, ids: Tensor) -> Any:
        self.optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = loss_of(self.net, ids)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss

    def scale(self) -> float:
        return self.scaler.get_scale()


def _compiled(net: nn.Module) -> Any:
    torch.compiler.reset()
    return torch.compile(net)


class Case(NamedTuple):
    make_optimizer: Callable[..., Any]
    make_iteration: Callable[[Any, Any], Any]
    cadence: Cadences | None = OFTEN
    """None: the defaults."""
    wrap: Callable[[nn.Module], Any] = lambda net: net


_ADAMW = partial(torch.optim.AdamW, lr=0.01)
_BF16 = partial(Plain, dtype=torch.bfloat16)

CASES = {
    "fp32": Case(partial(_ADAMW, foreach=True), Plain),
    "fp32, default cadences": Case(partial(_ADAMW, foreach=True), Plain, None),
    "bf16 autocast, clipped": Case(partial(_ADAMW, fused=True), partial(_BF16, clips=True)),
    "fp16 with a scaler, foreach": Case(partial(_ADAMW, foreach=True), Scaled),
    "fp16 with a scaler, fused": Case(partial(_ADAMW, fused=True), Scaled),
    "capturable Adam": Case(partial(torch.optim.Adam, lr=0.01, capturable=True), Plain),
    "compiled": Case(partial(_ADAMW, fused=True), _BF16, OFTEN, _compiled),
}


class Outcome(NamedTuple):
    losses: list[float]
    scales: list[float]
    bits: dict[str, list[str]]


def train(case: Case, run: Path | None) -> Outcome:
    net = case.wrap(Gpt().cuda())
    optimizer = case.make_optimizer(net.parameters())
    iterate = case.make_iteration(net, optimizer)
    torch.manual_seed(3)
    torch.cuda.manual_seed(3)
    watch = None if run is None else watching(net, optimizer, run, case.cadence)
    losses, scales = [], []
    some = sentences()
    for i in range(NUM_STEPS):
        loss = iterate(some[i % len(some)])
        losses.append(loss.detach().clone())
        scales.append(iterate.scale())
        if watch is not None:
            watch.step(loss)
    if watch is not None:
        watch.close()
    tensors = {
        "losses": losses,
        "weights": list(net.parameters()),
        "state": [v for state in optimizer.state.values() for v in state.values() if isinstance(v, Tensor)],
        "random": [torch.get_rng_state(), torch.cuda.get_rng_state()],
    }
    bits = {what: [_bits(tensor) for tensor in some] for what, some in tensors.items()}
    return Outcome([float(loss) for loss in losses], scales, bits)


def _bits(tensor: Tensor) -> str:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes().hex()


def as_program() -> None:
    """Train a case: twice unwatched, once watched."""
    name, folder = sys.argv[1], Path(sys.argv[2])
    torch.use_deterministic_algorithms(True)
    plain, control, watched = (train(CASES[name], run) for run in (None, None, folder / "run"))
    found = {
        "control": [what for what in plain.bits if plain.bits[what] != control.bits[what]],
        "differ": [what for what in plain.bits if plain.bits[what] != watched.bits[what]],
        "num_skipped": sum(b < a for a, b in itertools.pairwise([INITIAL_SCALE, *plain.scales])),
        "num_recorded": len(sonde.load(folder / "run").series("loss").step),
        "losses": plain.losses,
    }
    (folder / "found.json").write_text(json.dumps(found))


class Process(NamedTuple):
    running: "subprocess.Popen[str]"
    folder: Path


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Process]]:
    """All at the same time: each is bound by its own thread."""
    processes = {}
    for name in CASES:
        folder = tmp_path_factory.mktemp("case")
        running = subprocess.Popen(
            [sys.executable, __file__, name, str(folder)],
            env={**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"},
            stderr=subprocess.PIPE,
            text=True,
        )
        processes[name] = Process(running, folder)
    yield processes
    for process in processes.values():
        process.running.kill()
        process.running.communicate()


@pytest.mark.parametrize("name", CASES)
def test_training_is_bit_identical_with_and_without_watching(name: str, trainings: dict[str, Process]) -> None:
    running, folder = trainings[name]
    _, said = running.communicate(timeout=300)
    assert running.returncode == 0, said
    found = json.loads((folder / "found.json").read_text())
    assert not found["control"], "two unwatched runs must agree, or this test says nothing"
    assert not found["differ"]
    assert found["losses"][-1] < found["losses"][0]
    if "scaler" in name:
        assert 3 < found["num_skipped"] < NUM_STEPS // 2
        assert found["num_recorded"] == NUM_STEPS - found["num_skipped"]
    else:
        assert found["num_recorded"] == NUM_STEPS


# Graphs.


class Graphed(NamedTuple):
    losses: list[float]
    weights: list[Tensor]
    random: Tensor
    norms: dict[str, list[float]]
    """What should have been recorded of gradients and weights, by tag."""


def _with_captured_steps(run: Path | None, *, num_before: int, cadence: Cadences | None) -> Graphed:
    """Some steps as usual, a capture of the whole step, some replays, and some steps as usual again."""
    net = Gpt().cuda()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01, capturable=True)
    torch.manual_seed(3)
    some = sentences()
    static = some[0].clone()
    watch = None if run is None else watching(net, optimizer, run, cadence)
    losses: list[float] = []
    norms: dict[str, list[float]] = {}

    def note(loss: Tensor) -> None:
        if watch is not None:
            watch.step(loss)
        losses.append(loss.item())
        gradients = {name: p.grad for name, p in net.named_parameters() if p.grad is not None}
        found = {"grad/norm": norm_of(list(gradients.values()))}
        found |= {f"grad/norm@{name}": norm_of([gradient]) for name, gradient in gradients.items()}
        found |= {f"weight/norm@{name}": norm_of([p]) for name, p in net.named_parameters()}
        for tag, norm in found.items():
            norms.setdefault(tag, []).append(norm)

    def iterate() -> Tensor:
        loss = loss_of(net, static)
        loss.backward()
        optimizer.step()
        detached: Tensor = loss.detach()
        return detached

    def usual(num: int) -> None:
        for i in range(num):
            static.copy_(some[i % len(some)])
            optimizer.zero_grad()
            note(iterate())

    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # as torch's manual asks before a capture
        usual(num_before)
    torch.cuda.current_stream().wait_stream(side)
    optimizer.zero_grad()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = iterate()
    for i in range(20):
        static.copy_(some[i % len(some)])
        graph.replay()
        note(loss)
    usual(6)
    if watch is not None:
        watch.close()
    torch.cuda.synchronize()
    return Graphed(losses, [p.detach().clone() for p in net.parameters()], torch.cuda.get_rng_state(), norms)


@pytest.mark.parametrize("cadence", [ALWAYS, OFTEN, None], ids=["always", "often", "defaults"])
@pytest.mark.parametrize("num_before", [3, 13])
def test_a_whole_step_is_captured_and_replayed_as_if_nobody_watched(
    tmp_path: Path, num_before: int, cadence: Cadences | None
) -> None:
    unwatched = _with_captured_steps(None, num_before=num_before, cadence=cadence)
    control = _with_captured_steps(None, num_before=num_before, cadence=cadence)
    watched = _with_captured_steps(tmp_path / "run", num_before=num_before, cadence=cadence)
    for other in (control, watched):
        assert other.losses == unwatched.losses
        assert all(map(torch.equal, other.weights, unwatched.weights))
        assert torch.equal(other.random, unwatched.random)
    assert len(values(tmp_path / "run", "loss")) == num_before + 26
    np.testing.assert_allclose(values(tmp_path / "run", "loss"), unwatched.losses, rtol=1e-6)
    for tag, wanted in unwatched.norms.items():
        np.testing.assert_allclose(values(tmp_path / "run", tag), wanted, rtol=1e-5, err_msg=tag)


def _with_graphed_model(run: Path | None, num_before: int) -> tuple[list[float], list[Tensor]]:
    net = Gpt().cuda()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, fused=True)
    torch.manual_seed(3)
    some = sentences()
    watch = None if run is None else watching(net, optimizer, run, None)
    losses = []
    for i in range(num_before + 20):
        if i == num_before:
            net = torch.cuda.make_graphed_callables(net, (some[0][:, :-1],))  # type: ignore[assignment]
        optimizer.zero_grad()
        loss = loss_of(net, some[i % len(some)])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if watch is not None:
            watch.step(loss)
        del loss
    if watch is not None:
        watch.close()
    return losses, [p.detach().clone() for p in net.parameters()]


@pytest.mark.parametrize("num_before", [0, 5])
def test_a_model_becomes_a_graph_while_it_is_watched(tmp_path: Path, num_before: int) -> None:
    losses, weights = _with_graphed_model(None, num_before)
    assert _with_graphed_model(None, num_before)[0] == losses, "two unwatched runs must agree"
    watched_losses, watched_weights = _with_graphed_model(tmp_path / "run", num_before)
    assert watched_losses == losses
    assert all(map(torch.equal, weights, watched_weights))
    assert len(values(tmp_path / "run", "grad/norm@head.weight")) == num_before + 20


# Waiting.


@pytest.fixture
def waiting_raises() -> Iterator[Callable[[], None]]:
    yield partial(torch.cuda.set_sync_debug_mode, "error")
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(
    ("cadence", "num_before"),
    [(ALWAYS, 1), (None, 1), (ALWAYS, 5), (None, 105)],
    ids=["always", "defaults", "always, once all have had their turn", "defaults, once all have had their turn"],
)
def test_two_hundred_watched_steps_never_wait_for_the_device(
    tmp_path: Path, cadence: Cadences | None, num_before: int, fused: bool, waiting_raises: Callable[[], None]
) -> None:
    net = Gpt().cuda()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, fused=fused, foreach=not fused)
    iterate = Plain(net, optimizer, dtype=torch.bfloat16, clips=True)
    some = sentences()
    with watching(net, optimizer, tmp_path / "run", cadence) as watch:
        for _ in range(num_before):
            watch.step(iterate(some[0]))
        waiting_raises()
        for i in range(200):
            watch.step(iterate(some[i % len(some)]))
        torch.cuda.set_sync_debug_mode("default")
    assert len(values(tmp_path / "run", "grad/norm")) == num_before + 200


@pytest.mark.parametrize("budget", [0.01, 1.0], ids=["at the default budget", "all at every step"])
def test_no_memory_of_the_host_is_pinned_once_the_training_runs(tmp_path: Path, budget: float) -> None:
    net = Gpt().cuda()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, fused=True)
    iterate = Plain(net, optimizer, dtype=torch.bfloat16)
    some = sentences()
    with sonde.watch(net, optimizer, run=tmp_path / "run", budget=budget, strict=True, console="quiet") as watch:
        pinned = []
        for i in range(800):
            watch.step(iterate(some[i % len(some)]))
            pinned.append(torch.cuda.host_memory_stats()["num_host_alloc"])
    run = sonde.load(tmp_path / "run")
    assert len(run.series("grad/norm").step) == 800  # never stretched
    assert pinned[105:] == [pinned[105]] * len(pinned[105:])


# Numbers.


STATISTICS: dict[str, Callable[[Tensor], float]] = {
    "norm": lambda t: float(t.norm()),
    "rms": lambda t: float(t.square().mean().sqrt()),
    "mean": lambda t: float(t.mean()),
    "std": lambda t: float(t.std(correction=0)),
    "absmax": lambda t: float(t.abs().max()),
    "min": lambda t: float(t.min()),
    "max": lambda t: float(t.max()),
    "zeros": lambda t: float((t == 0).double().mean()),
    "nonfinite": lambda t: 0.0,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_weights_and_updates_have_the_statistics_of_a_float64_reference(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    net = Gpt().cuda().to(dtype)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, fused=True)
    expected: dict[str, list[float]] = {}

    def note(tag: str, value: float) -> None:
        expected.setdefault(tag, []).append(value)

    with watching(net, optimizer, tmp_path / "run") as watch:
        for ids in sentences(6):
            optimizer.zero_grad()
            loss = loss_of(net, ids)
            loss.backward()
            before = {name: p.detach().double().clone() for name, p in net.named_parameters()}
            optimizer.step()
            note("loss", loss.item())
            note("grad/norm", norm_of([p.grad for p in net.parameters() if p.grad is not None]))
            for name, p in net.named_parameters():
                assert p.grad is not None
                for statistic, reference in STATISTICS.items():
                    note(f"grad/{statistic}@{name}", reference(p.grad.double()))
                    note(f"weight/{statistic}@{name}", reference(p.detach().double()))
                update = p.detach().double() - before[name]
                for statistic in ("norm", "rms", "mean", "std", "absmax"):
                    note(f"update/{statistic}@{name}", STATISTICS[statistic](update))
            watch.step(loss)
    for tag, wanted in expected.items():
        np.testing.assert_allclose(values(tmp_path / "run", tag), wanted, rtol=1e-4, atol=1e-7, err_msg=tag)


def test_an_evaluation_never_waits_for_the_device(tmp_path: Path) -> None:
    net = Gpt().cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    losses = []
    with watching(net, optimizer, tmp_path / "run") as watch:
        for ids in sentences(3):
            optimizer.zero_grad()
            loss = loss_of(net, ids)
            loss.backward()
            optimizer.step()
            watch.step(loss)
            torch.cuda.set_sync_debug_mode("error")
            watch.evaluate(loss=loss.detach(), metrics={"twice": 2 * loss.detach(), "plain": 0.5})
            torch.cuda.set_sync_debug_mode("default")
            losses.append(loss.item())
    np.testing.assert_allclose(values(tmp_path / "run", "val/loss"), losses, rtol=1e-6)
    np.testing.assert_allclose(values(tmp_path / "run", "val/twice"), 2 * np.array(losses), rtol=1e-6)
    assert values(tmp_path / "run", "val/plain") == [0.5] * 3


def test_a_model_moved_to_the_device_after_the_watching_began_is_measured(tmp_path: Path) -> None:
    net = Gpt()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    expected: list[float] = []
    with watching(net, optimizer, tmp_path / "run") as watch:
        net.cuda()
        for ids in sentences(6):
            optimizer.zero_grad()
            loss = loss_of(net, ids)
            loss.backward()
            expected.append(norm_of([p.grad for p in net.parameters() if p.grad is not None]))
            optimizer.step()
            watch.step(loss)
    np.testing.assert_allclose(values(tmp_path / "run", "grad/norm"), expected, rtol=1e-5)
    assert len(values(tmp_path / "run", "update/ratio@head.weight")) == 6
    assert sonde.load(tmp_path / "run").tags("act/rms@blocks.0")


def test_clipping_gradients_that_are_not_finite_names_only_the_bad_parameter(tmp_path: Path) -> None:
    net = Gpt().cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    bad = "blocks.1.up.weight"
    with watching(net, optimizer, tmp_path / "run") as watch:
        loss = loss_of(net, sentences(1)[0])
        loss.backward()
        gradient = net.get_parameter(bad).grad
        assert gradient is not None
        gradient[3, 4] = torch.inf
        clip_grad_norm_(net.parameters(), 1.0)  # makes NaN of the bad one and 0 of the others
        optimizer.step()
        watch.step(loss)
    counts = {name: values(tmp_path / "run", f"grad/nonfinite@{name}") for name, _ in net.named_parameters()}
    assert {name for name, count in counts.items() if count != [0.0]} == {bad}
    assert not np.isfinite(values(tmp_path / "run", f"grad/norm@{bad}")).any()
    assert np.isfinite(values(tmp_path / "run", "grad/norm@head.weight")).all()


if __name__ == "__main__":
    as_program()
