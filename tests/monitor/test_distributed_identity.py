"""Training is sacred where processes train together, too: the bits of DDP and FSDP2 are those of the unwatched run.

This file is also the program of the ranks: `python test_distributed_identity.py STORE RANK FOLDER` makes every check
and writes to FOLDER, as JSON, what came of it.
"""

import json
import subprocess
import sys
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

import sonde
from sonde.core.cadences import every
from sonde.probes.cadences import ON_CPU, Cadences

NUM_STEPS = 300
NUM_RANKS = 2

OFTEN = Cadences(
    layers=every(2),
    cosines=every(3),
    rotating=every(4),
    histograms=every(7),
    blocks=every(5),
    process=every(6),
    resources=every(6),
    batches=every(4),
    spectra=every(9),
)


class Net(nn.Module):
    """A layer with an uneven number of rows, dropout, and whatever normalises."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.norm, self.drop = nn.Linear(6, 7), norm, nn.Dropout(0.2)
        self.second, self.third = nn.Linear(7, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.first(x)))
        logits: Tensor = self.third(torch.tanh(self.second(self.drop(x))))
        return logits


def _replicated() -> nn.Module:
    return DistributedDataParallel(Net(nn.BatchNorm1d(7)))  # its buffers are the first rank's


def _sharded(**settings: Any) -> nn.Module:
    net = Net(nn.LayerNorm(7))
    mesh = init_device_mesh("cpu", (NUM_RANKS,))
    fully_shard(net.second, mesh=mesh, **settings)
    fully_shard(net, mesh=mesh, **settings)
    return net


def _sharded_bf16() -> nn.Module:
    return _sharded(mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))


# Each: how the model is made, whether gradients are clipped, and the cadences.
CASES: dict[str, tuple[Callable[[], nn.Module], bool, Cadences]] = {
    "ddp": (_replicated, True, OFTEN),
    "fsdp2": (_sharded, True, OFTEN),
    "fsdp2-bf16": (_sharded_bf16, False, ON_CPU),
}


def train(name: str, run: Path | None) -> dict[str, Any]:
    """What a training comes to on this rank, as bits, and its global gradient norms."""
    make, clips, cadence = CASES[name]
    net = make()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    torch.manual_seed(10 + dist.get_rank())
    generator = torch.Generator().manual_seed(20 + dist.get_rank())
    watch = None
    if run is not None:
        watch = sonde.watch(net, optimizer, run=run, strict=True, cadence=cadence, budget=1.0, console="quiet")
    losses, squares = [], []
    for _ in range(NUM_STEPS):
        optimizer.zero_grad()
        x = torch.randn(8, 6, generator=generator)
        y = torch.randint(0, 3, (8,), generator=generator)
        loss: Any = nn.functional.cross_entropy(net(x).float(), y)
        loss.backward()
        gradients = [_local(p.grad).double().reshape(-1) for p in net.parameters() if p.grad is not None]
        squares.append(torch.cat(gradients).square().sum())
        if clips:
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.detach())
        if watch is not None:
            watch.step(loss)
    if watch is not None:
        watch.close()
    tensors = {
        "losses": [torch.stack(losses)],
        "weights": [_local(p) for p in net.parameters()],
        "buffers": list(net.buffers()),
        "random": [torch.get_rng_state()],
    }
    bits = {what: [_bits(tensor) for tensor in some] for what, some in tensors.items()}
    every_square = torch.stack(squares)
    if isinstance(next(net.parameters()), DTensor):
        dist.all_reduce(every_square)
    return {**bits, "norms": every_square.sqrt().tolist()}


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _bits(tensor: Tensor) -> str:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes().hex()


def as_rank() -> None:
    """Be one of the ranks."""
    store, rank, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=NUM_RANKS, timeout=timedelta(seconds=30)
    )
    found: dict[str, Any] = {}
    for name in CASES:
        try:
            plain, control, watched = (train(name, run) for run in (None, None, folder / name))
        except BaseException:
            found[name] = {"failed": traceback.format_exc()}
            break  # the other rank is now somewhere else
        kinds = ("losses", "weights", "buffers", "random")
        found[name] = {
            "failed": "",
            "control": [kind for kind in kinds if plain[kind] != control[kind]],
            "differ": [kind for kind in kinds if plain[kind] != watched[kind]],
            "norms": plain["norms"],
        }
        dist.barrier()
    (folder / f"{rank}.json").write_text(json.dumps(found))
    if not found[name]["failed"]:
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """All cases in one pair of processes."""
    folder = tmp_path_factory.mktemp("ranks")
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, str(folder / "store"), str(rank), str(folder)], stderr=subprocess.PIPE, text=True
        )
        for rank in range(NUM_RANKS)
    ]
    said = [process.communicate(timeout=180)[1] for process in processes]
    files = [folder / f"{rank}.json" for rank in range(NUM_RANKS)]
    assert all(file.exists() for file in files), "\n".join(said)
    return folder, [json.loads(file.read_text()) for file in files]


@pytest.mark.parametrize("name", CASES)
def test_training_in_several_processes_is_bit_identical(name: str, trained: tuple[Path, list[dict[str, Any]]]) -> None:
    for found in trained[1]:
        assert name in found, "a case before it failed"
        assert not found[name]["failed"], found[name]["failed"]
        assert not found[name]["control"], "two unwatched runs must agree, or this test says nothing"
        assert not found[name]["differ"]


@pytest.mark.parametrize("name", CASES)
def test_every_rank_records_the_norm_of_the_whole_gradient(
    name: str, trained: tuple[Path, list[dict[str, Any]]]
) -> None:
    folder, found = trained
    for run, rank in ((folder / name, found[0]), (folder / name / "ranks" / "1", found[1])):
        assert name in rank, "a case before it failed"
        series = sonde.load(run).series("grad/norm")
        np.testing.assert_array_equal(series.step, np.arange(1, NUM_STEPS + 1))
        np.testing.assert_allclose(series.value, rank[name]["norms"], rtol=1e-5)


if __name__ == "__main__":
    as_rank()
