"""The GPUs as their driver sees them."""

import sys

import pytest
import torch

from sonde.probes.devices import Devices

from .armed import iteration


def test_without_a_gpu_there_is_nothing_to_ask() -> None:
    devices = Devices([torch.device("cpu")])
    assert devices.num_slots == 0
    assert iteration(devices, lambda: None) == {}
    assert set(devices.not_measured()) == {f"{tag}*" for tag in devices.yields}


def test_without_the_library_the_reason_has_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    devices = Devices([torch.device("cuda:0")])
    assert devices.num_slots == 0
    assert iteration(devices, lambda: None) == {}
    assert all("pip install 'sonde[devices]'" in reason for reason in devices.not_measured().values())


def test_a_driver_that_does_not_answer_is_said_once_it_was_asked() -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    devices = Devices([torch.device("cuda:0")], uuids=["00000000-0000-0000-0000-000000000000"])
    assert devices.num_slots == 1
    assert devices.not_measured() == {}
    assert iteration(devices, lambda: None, [0]) == {}  # there is no such GPU, or no driver at all
    assert all("does not answer" in reason for reason in devices.not_measured().values())
    assert iteration(devices, lambda: None, [0]) == {}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_a_gpu_tells_its_state_in_plain_units() -> None:
    held = torch.ones(2**26, device="cuda")
    devices = Devices([held.device, held.device, torch.device("cpu")])
    found = iteration(devices, lambda: None)
    assert devices.not_measured() == {}
    assert set(found) == set(devices.yields)
    assert 0 <= found["device/utilisation"] <= 1
    assert 10 < found["device/temperature"] < 120
    assert 1 < found["device/power"] < 3000
    free, total = torch.cuda.mem_get_info()
    of_driver = 2**30  # what it keeps for itself counts as used
    assert 0.8 * (total - free) < found["device/memory_used"] < 1.2 * (total - free) + of_driver
    assert devices.collect() == []
