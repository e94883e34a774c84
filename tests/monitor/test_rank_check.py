"""Whether all ranks watch, and where they record: real processes, and the three kinds of stores that torch has."""

import importlib
import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

import sonde
from sonde.monitor import ranks

_START = """
    import json, sys
    from datetime import timedelta
    import torch
    import torch.distributed as dist

    method, results, rank = sys.argv[1], sys.argv[2], int(sys.argv[3])
    torch.set_num_threads(1)
    if method == "tcp":
        # What torchrun does: the first rank serves the store. It tells its port through the folder.
        import os, pathlib, time
        told = pathlib.Path(results).with_name("port")
        if rank == 0:
            store = dist.TCPStore("127.0.0.1", 0, 2, is_master=True, wait_for_workers=False)
            told.with_suffix(".new").write_text(str(store.port))
            told.with_suffix(".new").rename(told)
        else:
            while not told.exists():
                time.sleep(0.01)
            store = dist.TCPStore("127.0.0.1", int(told.read_text()), 2, is_master=False)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=40))
    else:
        dist.init_process_group("gloo", init_method=method, rank=rank, world_size=2, timeout=timedelta(seconds=40))
    noted = {}
"""

_CHECKS = """
    from sonde.monitor import ranks

    noted["who"] = [ranks.rank(), ranks.world_size()]

    first = ranks.Call()
    noted["all came"] = first.all_ranks(timeout_s=20)
    noted["folder"] = first.folder(f"runs/of-{rank}", timeout_s=20)

    if rank == 0:
        noted["nobody else came"] = ranks.Call().all_ranks(timeout_s=0.2)
    dist.barrier()
    if rank == 1:  # late: the other one has given up, and goes on alone
        late = ranks.Call()
        noted["too late"] = late.all_ranks(timeout_s=20)
        noted["folder nobody chose"] = late.folder("runs/own", timeout_s=0.2)
    dist.barrier()

    again = ranks.Call()
    noted["all came again"] = again.all_ranks(timeout_s=20)
    noted["folder again"] = again.folder(f"runs/again-{rank}", timeout_s=20)

    late = ranks.Call()  # asks long after the other one has
    if rank == 0:
        noted["asked first"] = late.all_ranks(timeout_s=20)
    dist.barrier()
    if rank == 1:
        noted["asked last"] = late.all_ranks(timeout_s=0.2)
"""

_END = """
    dist.barrier()
    with open(results, "w") as file:
        json.dump(noted, file)
    dist.destroy_process_group()
"""

_UNEVEN = """
    from torch import nn
    from torch.distributed.algorithms.join import Join
    from torch.nn.parallel import DistributedDataParallel
    from sonde.core.cadences import every
    from sonde.probes.cadences import Cadences
    from sonde.monitor.watch import watch

    torch.manual_seed(0)
    net = DistributedDataParallel(nn.Linear(4, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    cadence = Cadences(layers=every(1), rotating=every(1))
    watched = watch(net, optimizer, run=sys.argv[4], strict=True, cadence=cadence)
    with Join([net]):
        for _ in range(3 + 2 * rank):
            optimizer.zero_grad()
            loss = net(torch.randn(3, 4)).square().mean()
            loss.backward()
            optimizer.step()
            watched.step(loss)
        if rank == 0:
            watched.evaluate(loss=1.0)  # on one rank only, while the other one trains
            watched.close()
    noted["closed"] = True
    watched.close()
"""


def _run(tmp_path: Path, script: str, method: str, *arguments: Path) -> list[dict[str, Any]]:
    file = tmp_path / "script.py"
    file.write_text("".join(textwrap.dedent(part) for part in (_START, script, _END)))
    processes = []
    for rank in range(2):
        command = [sys.executable, file, method, tmp_path / f"results-{rank}", rank, *arguments]
        processes.append(subprocess.Popen([*map(str, command)], stderr=subprocess.PIPE, text=True))
    try:
        for process in processes:
            _, said = process.communicate(timeout=60)
            assert process.returncode == 0, said
    finally:
        for process in processes:
            process.kill()
    return [json.loads((tmp_path / f"results-{rank}").read_text()) for rank in range(2)]


@pytest.mark.parametrize("kind", ["file", "tcp"])
def test_ranks_find_out_together_whether_all_of_them_watch(tmp_path: Path, kind: str) -> None:
    first, second = _run(tmp_path, _CHECKS, "tcp" if kind == "tcp" else f"file://{tmp_path / 'store'}")
    assert first == {
        "who": [0, 2],
        "all came": True,
        "folder": "runs/of-0",
        "nobody else came": False,
        "all came again": True,
        "folder again": "runs/again-0",
        "asked first": True,
    }
    assert second == {
        "who": [1, 2],
        "all came": True,
        "folder": "runs/of-0",
        "too late": False,
        "folder nobody chose": "runs/own",
        "all came again": True,
        "folder again": "runs/again-0",
        "asked last": True,
    }


def test_uneven_inputs_and_an_early_close_under_ddp_keep_nobody_waiting(tmp_path: Path) -> None:
    _run(tmp_path, _UNEVEN, f"file://{tmp_path / 'store'}", tmp_path / "run")
    found = sonde.load(tmp_path / "run").ranks()
    assert {rank: len(run.series("grad/norm").step) for rank, run in found.items()} == {0: 3, 1: 5}


@pytest.fixture
def _one_of_two() -> Iterator[None]:
    """A process group of two of which the other one never shows up, with a store in memory."""
    # A backend that sends nothing: real ones would wait for the other process.
    importlib.import_module("torch.testing._internal.distributed.fake_pg")
    dist.init_process_group("fake", store=HashStore(), rank=0, world_size=2)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("_one_of_two")
def test_a_store_in_memory_does_as_well() -> None:
    assert (ranks.rank(), ranks.world_size()) == (0, 2)
    call = ranks.Call()
    assert call.folder("runs/mine") == "runs/mine"
    assert not call.all_ranks(timeout_s=0.1)
    assert not call.all_ranks(timeout_s=0.1), "the answer stays"


def test_a_process_that_is_alone_waits_for_nobody() -> None:
    call = ranks.Call()
    assert (ranks.rank(), ranks.world_size()) == (0, 1)
    assert call.all_ranks()
    assert call.folder("runs/mine") == "runs/mine"


def test_ranks_that_are_known_from_the_environment_cannot_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert (ranks.rank(), ranks.world_size()) == (3, 8)
    call = ranks.Call()
    assert not call.all_ranks()
    assert call.folder("runs/mine") == "runs/mine"
