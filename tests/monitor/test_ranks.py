"""Several processes that train together."""

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

import sonde
from sonde.core.errors import RunNotWritable
from sonde.core.records import Ending

from . import loops

_SCRIPT = """
    import sys
    from datetime import timedelta
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from sonde.core.cadences import every
    from sonde.probes.cadences import Cadences
    from sonde.monitor.watch import watch

    run, store, rank, who, norms = sys.argv[1:]
    rank = int(rank)
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=timedelta(seconds=40)
    )
    torch.manual_seed(0)
    net = DistributedDataParallel(nn.Linear(4, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    watched = None
    if who == "all" or rank == 0:
        cadence = Cadences(layers=every(1), rotating=every(1))
        watched = watch(net, optimizer, run=run, strict=True, cadence=cadence)
    torch.manual_seed(rank)
    with open(norms, "w") as noted:
        for step in range(5):
            optimizer.zero_grad()
            loss = net(torch.randn(3, 4)).square().mean() + rank
            loss.backward()
            norm = torch.cat([p.grad.reshape(-1) for p in net.parameters()]).double().norm()
            print(loss.item(), norm.item(), *net.module.weight.detach().reshape(-1).tolist(), file=noted)
            optimizer.step()
            if watched is not None:
                watched.step(loss)
    if watched is not None:
        watched.close()
    dist.barrier()
    dist.destroy_process_group()
"""


def _train(tmp_path: Path, who: str, **given: str) -> list[list[list[float]]]:
    script = tmp_path / "train.py"
    added = "".join(f"{name}={value!r}, " for name, value in given.items())
    script.write_text(textwrap.dedent(_SCRIPT.replace("strict=True, ", f"strict=True, {added}")))
    processes = []
    for rank in range(2):
        arguments = [tmp_path / "run", tmp_path / "store", rank, who, tmp_path / f"noted-{who}-{rank}"]
        command = [sys.executable, str(script), *map(str, arguments)]
        processes.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
    for process in processes:
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said
    lines = [(tmp_path / f"noted-{who}-{rank}").read_text().splitlines() for rank in range(2)]
    return [[[float(word) for word in line.split()] for line in rank] for rank in lines]


@pytest.mark.parametrize("who", ["all", "the first"])
def test_every_rank_records_its_own_loss_and_the_common_gradient(tmp_path: Path, who: str) -> None:
    noted = _train(tmp_path, who)
    folders = [tmp_path / "run", tmp_path / "run" / "ranks" / "1"]
    for folder, rows in list(zip(folders, noted, strict=True))[: 2 if who == "all" else 1]:
        run = sonde.load(folder)
        assert run.state.ending is Ending.FINISHED
        np.testing.assert_allclose(loops.values(folder, "loss"), [row[0] for row in rows], rtol=1e-6)
        np.testing.assert_allclose(loops.values(folder, "grad/norm"), [row[1] for row in rows], rtol=1e-5)
        assert run.series("batch/effective").value.tolist() == [6], "three samples on each of two ranks"
        assert len(loops.values(folder, "grad/norm@weight")) == 5, "without the wrapper's `module.`"
    assert (tmp_path / "run" / "ranks").exists() == (who == "all")
    assert [row[1:] for row in noted[0]] == [row[1:] for row in noted[1]]


def test_rank_is_taken_from_the_environment_where_nothing_is_initialised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = loops.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    monkeypatch.setenv("RANK", "3")
    with loops.watching(net, optimizer, tmp_path / "run") as third:
        monkeypatch.setenv("RANK", "0")
        with loops.watching(net, optimizer, tmp_path / "run") as first:  # the folder is there, with `ranks` in it
            assert third.path == first.path / "ranks" / "3"


def test_folder_that_holds_something_else_is_still_refused(tmp_path: Path) -> None:
    (tmp_path / "ranks").mkdir()
    (tmp_path / "thesis.tex").touch()
    net = loops.model()
    with pytest.raises(RunNotWritable):
        loops.watching(net, torch.optim.SGD(net.parameters(), lr=0.1), tmp_path)


def test_all_ranks_record_into_the_folder_that_the_first_has_found_free(tmp_path: Path) -> None:
    sonde.record(tmp_path / "run").close()
    (tmp_path / "run-2").mkdir()
    _train(tmp_path, "all", if_exists="new")
    run = sonde.load(tmp_path / "run-3")
    assert [rank.path for rank in run.ranks().values()] == [tmp_path / "run-3", tmp_path / "run-3" / "ranks" / "1"]
    assert [rank.steps for rank in run.ranks().values()] == [5, 5]
    assert sonde.load(tmp_path / "run").steps == 0
    assert not (tmp_path / "run" / "ranks").exists()


def test_ranks_that_cannot_meet_do_not_look_for_a_free_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    net = loops.model()
    with pytest.raises(ValueError, match="initialise the process group"):
        sonde.watch(net, torch.optim.SGD(net.parameters()), run=tmp_path / "run", if_exists="new")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("if_exists", ["continue", "new", "error"])
def test_a_training_that_is_watched_again_goes_where_it_is_told(
    tmp_path: Path, if_exists: Literal["continue", "new", "error"]
) -> None:
    for number in range(2):
        net = loops.model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        if number and if_exists == "error":
            with pytest.raises(RunNotWritable, match="holds a run already"):
                sonde.watch(net, optimizer, run=tmp_path / "run", if_exists=if_exists)
            break
        with sonde.watch(net, optimizer, run=tmp_path / "run", if_exists=if_exists, console="quiet") as watch:
            for batch in loops.batches(3):
                loops.loss_of(net, batch).backward()
                optimizer.step()
                watch.step(1.0)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == (["run", "run-2"] if if_exists == "new" else ["run"])
    assert len(sonde.load(tmp_path / "run").branches) == (2 if if_exists == "continue" else 1)
