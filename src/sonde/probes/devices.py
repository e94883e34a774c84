"""The GPUs that a training uses, as their driver sees them."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, final

import numpy as np
import torch

from sonde.core.errors import MissingExtra
from sonde.core.frames import MISSING, Columns
from sonde.core.optional import require
from sonde.core.records import Float64
from sonde.probes.probe import Reading, Row

_YIELDS = {
    "device/utilisation": "share of the last moments in which some kernel was running on the GPU, of any process",
    "device/temperature": "of the GPU, in degrees Celsius",
    "device/power": "that the GPU draws, in watts",
    "device/memory_used": "bytes of the GPU's memory in use, by any process",
}
# Asked of NVML's module with a device's handle, in the order of the tags.
_QUESTIONS: Sequence[Callable[[Any, Any], float]] = (
    lambda nvml, handle: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
    lambda nvml, handle: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
    lambda nvml, handle: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
    lambda nvml, handle: nvml.nvmlDeviceGetMemoryInfo(handle).used,
)


def gpus_of(devices: Iterable[torch.device]) -> list[torch.device]:
    """Those of them that are CUDA's, each once, by their index."""
    return sorted({device for device in devices if device.type == "cuda"}, key=lambda device: device.index or 0)


def suffixes(devices: Sequence[torch.device]) -> list[str]:
    """What the tags of each device end in: nothing where it is the only one.

    Example:
        >>> suffixes([torch.device("cuda:1")]), suffixes([torch.device("cuda:0"), torch.device("cuda:1")])
        ([''], ['@cuda:0', '@cuda:1'])
    """
    return [""] if len(devices) == 1 else [f"@{device}" for device in devices]


@final
class Devices:
    """Asks NVIDIA's management library (NVML) about the GPUs, in the background: it is not CUDA, and nothing waits.

    What a GPU does not tell (a slice of one has no utilisation of its own) is `MISSING`. The library is found through
    the extra `devices`. CUDA numbers only the visible devices, NVML all: they are matched by their UUIDs.

    Args:
        devices: That the training uses; those that are not CUDA's are left out.
        uuids: Of those that are CUDA's, by their index; CUDA is asked where left out.
    """

    yields = _YIELDS
    """`@cuda:0` and so on stand behind the tags where there are several devices."""

    def __init__(self, devices: Iterable[torch.device], *, uuids: Sequence[str] | None = None) -> None:
        gpus = gpus_of(devices)
        self._columns = Columns("device", [tag + at for at in suffixes(gpus) for tag in _YIELDS])
        self._armed = False
        self._handles: list[Any] | None = None
        self._trouble = "" if gpus else "no CUDA device is in use"
        self._uuids: Sequence[str] = ()
        if gpus:
            try:
                self._nvml: Any = require("pynvml", "devices")
                # Here and not in the background, which must not call CUDA.
                self._uuids = (
                    [str(torch.cuda.get_device_properties(gpu).uuid) for gpu in gpus] if uuids is None else uuids
                )
            except MissingExtra as error:
                self._trouble = str(error)
            except AttributeError:
                self._trouble = "this build of torch does not tell the UUIDs of its devices"

    @property
    def num_slots(self) -> int:
        """All is measured together."""
        return 0 if self._trouble else 1

    def arm(self, slots: Sequence[int]) -> None:
        """Nothing has to be hooked."""
        self._armed = bool(slots)

    def collect(self) -> Sequence[Reading]:
        """Have it asked in the background."""
        armed, self._armed = self._armed, False
        return [Reading((), self._report)] if armed and not self._trouble else []

    def not_measured(self) -> Mapping[str, str]:
        """Everything, where the library or its driver is missing."""
        return dict.fromkeys((tag + "*" for tag in _YIELDS), self._trouble) if self._trouble else {}

    def close(self) -> None:
        """Nothing is held: the library stays open for whoever asks next."""

    def _report(self, _numbers: Float64) -> Iterable[Row]:
        if self._handles is None:
            try:
                _open(self._nvml)
                self._handles = [_handle(self._nvml, uuid) for uuid in self._uuids]
            except self._nvml.NVMLError as error:
                self._trouble = f"NVIDIA's management library does not answer: {error}"
                return []
        values = [self._ask(question, handle) for handle in self._handles for question in _QUESTIONS]
        return [Row(self._columns, np.array(values, np.float64))]

    def _ask(self, question: Callable[[Any, Any], float], handle: Any) -> float:
        try:
            return float(question(self._nvml, handle))
        except self._nvml.NVMLError:  # this GPU does not tell
            return float(MISSING)


@functools.cache
def _open(nvml: Any) -> None:
    nvml.nvmlInit()


def _handle(nvml: Any, uuid: str) -> Any:
    try:
        return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    except nvml.NVMLError:  # a slice of a GPU
        return nvml.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}")
