"""The GPUs as their driver sees them."""

import math
import sys
import types

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from sonde.probes.devices import Devices
from sonde.probes.parameters import device_of, devices_of

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


class TwoGpus(types.ModuleType):
    """NVIDIA's management library on a machine with two GPUs; the second does not tell its power."""

    NVMLError = LookupError
    NVML_TEMPERATURE_GPU = 0

    def nvmlInit(self) -> None: ...

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        return ["GPU-one", "GPU-two"].index(uuid)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> types.SimpleNamespace:
        return types.SimpleNamespace(gpu=[90, 40][handle])

    def nvmlDeviceGetTemperature(self, handle: int, _sensor: int) -> int:
        return [60, 50][handle]

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        return {0: 300_000}[handle]

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> types.SimpleNamespace:
        return types.SimpleNamespace(used=[7, 5][handle])


def test_every_gpu_that_holds_parameters_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", TwoGpus("pynvml"))
    with FakeTensorMode():  # sizes and places, on a machine without these devices
        layers = [torch.empty(2, device=name) for name in ("cuda:1", "cuda:0", "cuda:1", "cpu", "meta")]
    optimizers = {"G": torch.optim.SGD(layers[:1]), "D": torch.optim.SGD(layers[1:])}
    places = devices_of(optimizers)
    assert [str(place) for place in places] == ["cuda:1", "cuda:0", "cpu"]
    assert str(device_of(optimizers)) == "cuda:1"
    devices = Devices(places, uuids=["one", "two"])
    found = iteration(devices, lambda: None, [0])
    assert devices.not_measured() == {}
    assert math.isnan(found.pop("device/power@cuda:1"))
    assert found == {
        "device/utilisation@cuda:0": 0.9,
        "device/temperature@cuda:0": 60,
        "device/power@cuda:0": 300,
        "device/memory_used@cuda:0": 7,
        "device/utilisation@cuda:1": 0.4,
        "device/temperature@cuda:1": 50,
        "device/memory_used@cuda:1": 5,
    }


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
