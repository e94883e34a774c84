"""Times of gradient reductions against what torch's own log of the wrapper says."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.probes.armed import iteration
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from sonde.probes.reductions import Reductions


@pytest.fixture
def _alone(tmp_path: Path) -> Iterator[None]:
    """A process group of this process."""
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("_alone")
def test_times_are_those_of_the_last_iteration_that_torch_timed() -> None:
    net = DistributedDataParallel(nn.Linear(4, 2))
    probe = Reductions({"": net})

    def work() -> None:
        net(torch.ones(3, 4)).sum().backward()

    assert iteration(probe, work) == {}  # torch knows the times of an iteration in the next
    for _ in range(3):
        found = iteration(probe, work)
        told = net._get_ddp_logging_data()  # type: ignore[no-untyped-call]
        whole, hidden = (told[f"backward_{name}_time"] * 1e-9 for name in ("comm", "compute_comm_overlap"))
        assert found["time/reduction"] == pytest.approx(whole)
        assert found["time/reduction_exposed"] == pytest.approx(whole - hidden)
    assert set(found) == set(probe.yields)
    assert iteration(probe, lambda: None) == {}  # nothing new was timed
    assert not probe.not_measured()


def test_without_a_wrapper_it_is_not_measured_where_ranks_train_together() -> None:
    together = Reductions({"": nn.Linear(4, 2)}, lambda: True)
    assert together.num_slots == 0
    assert set(together.not_measured()) == set(together.yields)
    assert not Reductions({"": nn.Linear(4, 2)}).not_measured()
