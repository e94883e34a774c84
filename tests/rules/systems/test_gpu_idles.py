import numpy as np
import pytest
from tests.rules.traces import judge, rows, worst

from sonde.core.findings import Severity
from sonde.rules.systems.gpu_idles import GpuIdles


def _looks(shares: list[float], *, every: int = 5, tag: str = "device/utilisation") -> list[dict[str, float]]:
    found = rows(len(shares) * every, loss=1.0)
    for place, share in enumerate(shares):
        found[place * every][tag] = share
    return found


def test_a_gpu_that_idles_is_information_after_enough_looks() -> None:
    seen = judge(GpuIdles(), _looks([0.9, 0.9] + [0.3, 0.2, 0.4] * 10))
    assert seen[0][0] == 1 + 5 * 21  # two that are passed over, and twenty
    assert worst(seen) is Severity.INFO
    assert "is busy for 30% of the time" in seen[0][1].message
    assert seen[0][1].evidence[0].value == pytest.approx(0.3)


def test_waiting_for_data_is_told_beside_it() -> None:
    table = [row | {"time/data": 0.06, "time/step": 0.08} for row in _looks([0.2] * 25)]
    assert "75% of this step went into waiting for data" in judge(GpuIdles(), table)[0][1].message


def test_of_several_gpus_the_idle_ones_are_named_the_worst_first() -> None:
    table = _looks([0.9] * 25, tag="device/utilisation@cuda:0")
    for tag, share in (("device/utilisation@cuda:1", 0.4), ("device/utilisation@cuda:2", 0.1)):
        for row in table[::5]:
            row[tag] = share
    sighting = judge(GpuIdles(), table)[0][1]
    assert sighting.where == ("cuda:2", "cuda:1")
    assert sighting.message.startswith("the GPU (cuda:2) is busy for 10%")


@pytest.mark.parametrize("seed", range(10))
def test_busy_gpus_pauses_between_epochs_and_short_runs_are_silent(seed: int) -> None:
    rng = np.random.default_rng(seed)
    busy = rng.uniform(0.7, 1.0, 100)
    busy[rng.random(100) < 0.15] = 0.0  # an evaluation, a checkpoint
    assert judge(GpuIdles(), _looks(list(busy))) == []
    assert judge(GpuIdles(), _looks([0.1] * 21)) == []
    assert judge(GpuIdles(), rows(100, loss=1.0)) == []
