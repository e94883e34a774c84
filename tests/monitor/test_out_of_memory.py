"""A training that dies of a failed allocation: the event, the finding while it runs, and the same one from the disk."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import sonde
from sonde.core.findings import Finding
from sonde.core.records import Ending

from . import loops


class Leaky(nn.Module):
    """Asks for 128 TiB in its call number `at`."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.left = at

    def forward(self, x: Tensor) -> Tensor:
        self.left -= 1
        return x + torch.empty(2**45) if self.left == 0 else x


def _train(run: Path, *, at: int, is_handled: bool = False) -> list[Finding]:
    net = nn.Sequential(loops.model(), Leaky(at))
    optimizer = torch.optim.Adam(net.parameters())
    said: list[Finding] = []
    with loops.watching(net, optimizer, run, settings={"doctor": "thread"}, on_finding=said.append) as watch:
        for batch in watch.data(loops.batches(20)):
            optimizer.zero_grad()
            try:
                loops.loss_of(net, batch).backward()
            except RuntimeError:
                if not is_handled:
                    raise
                continue
            optimizer.step()
            watch.step(1.0)
    return said


@pytest.mark.parametrize("at", [13, 1])
def test_a_failed_allocation_is_found_with_step_batch_and_memory_and_again_from_the_disk(
    tmp_path: Path, at: int
) -> None:
    with pytest.raises(RuntimeError, match="DefaultCPUAllocator"):
        _train(tmp_path / "run", at=at)
    run = sonde.load(tmp_path / "run")
    assert (run.state.ending, run.state.steps) == (Ending.CRASHED, at - 1)
    (event,) = run.events("out-of-memory")
    assert (event.step, event.data["batch"], event.data["module"]) == (at - 1, {"0": [8, 6]}, "1")
    (live,) = [Finding.from_json(e.data) for e in run.events("finding") if e.data["code"] == "SYS007"]
    (stored,) = [finding for finding in sonde.diagnose(run) if finding.code == "SYS007"]
    assert (stored.severity, stored.message, stored.evidence) == (live.severity, live.message, live.evidence)
    assert stored.causes[0].cause == "memory-near-limit"
    assert f"step {at} ran out of memory on the host in the forward pass" in stored.message
    assert "8×6" in stored.message
    assert "parameters 492 bytes" in stored.message
    assert ("optimiser state" in stored.message) == (at > 1)


UNCAUGHT = """\
import sonde, torch
net = torch.nn.Linear(4, 1)
watch = sonde.watch(net, torch.optim.SGD(net.parameters(), lr=0.1), run="run")
for inputs in watch.data([torch.ones(8, 4)]):
    net(inputs)
    raise MemoryError("Unable to allocate 7.28 TiB for an array")
"""


def test_an_exception_that_nobody_catches_counts_without_a_with(tmp_path: Path) -> None:
    path = str(Path(sonde.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", UNCAUGHT],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1, done.stderr
    (found,) = [finding for finding in sonde.diagnose(tmp_path / "run") if finding.code == "SYS007"]
    assert "step 1 ran out of memory on the host, asking for 7.28 TiB more; the batch: 8×4" in found.message


def test_a_failed_allocation_that_the_training_handles_is_no_finding(tmp_path: Path) -> None:
    said = _train(tmp_path / "run", at=5, is_handled=True)
    assert sonde.load(tmp_path / "run").state.ending is Ending.FINISHED
    assert not [finding for finding in said if finding.code == "SYS007"]
