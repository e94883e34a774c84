"""What operators take the time of a step, through torch's profiler, where somebody asks for it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any, final

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from sonde.core.frames import Columns
from sonde.core.records import Float64
from sonde.probes.events import Events
from sonde.probes.probe import Reading, Row

_KINDS = {
    "matmul": ("mm", "addmm", "bmm", "baddbmm", "_scaled_mm", "mv", "addmv", "dot", "addbmm", "_grouped_mm"),
    "copy": ("copy_", "_to_copy", "clone", "cat", "stack", "contiguous", "_copy_from", "index_select", "gather"),
}
_PARTS = (  # of names
    ("attention", ("attention",)),
    ("convolution", ("conv",)),
    ("normalisation", ("batch_norm", "layer_norm", "group_norm", "rms_norm", "instance_norm")),
)
_EXCHANGES = ("c10d::", "_c10d", "nccl", "gloo", "all_reduce", "allreduce", "all_gather", "reduce_scatter")
_YIELDS = {
    "operator/time": "seconds of a profiled step in operators",
    "operator/matmul": "share of that time in products of matrices",
    "operator/attention": "share in fused attention",
    "operator/convolution": "share in convolutions",
    "operator/normalisation": "share in batch, layer and other normalisations",
    "operator/elementwise": "share in element-wise work, optimisers' among it",
    "operator/copy": "share in copies, casts and joining",
    "operator/communication": "share in exchanges between ranks",
    "operator/other": "share in everything else",
}
_COLUMNS = Columns("operators", tuple(_YIELDS))
_MOST_NAMED = 20


@final
class Operators:
    """Profiles single steps on request: a standing probe (see `Standing`).

    Times are an operator's own, without those that it calls: on the device where there is a GPU, else on the host. The
    row belongs to the last profiled step and is the mean of all of them; an event `operators` has the twenty that took
    most. The profiler watches and changes nothing, but its steps are slower than others. What Sonde itself computes in
    such a step is part of it.

    Args:
        device: Where the training runs.
        put_event: Told an event's kind and data.
    """

    yields = _YIELDS

    def __init__(self, device: torch.device, put_event: Callable[[str, Mapping[str, Any]], None]) -> None:
        self._device, self._put_event = device, put_event
        self._wanted = self._wait = self._left = self._num_steps = 0
        self._profile: profile | None = None
        self.reason = ""
        """Why nothing can be profiled, where that is so."""

    @property
    def is_profiling(self) -> bool:
        """Whether this iteration is profiled."""
        return self._profile is not None

    def request(self, num_steps: int, *, after: int = 0) -> None:
        """Profile so many steps, from the next on, or after some more."""
        self._wanted, self._wait = num_steps, after

    def listen(self, events: Events) -> None:
        """There is nothing to hear."""

    def arm(self) -> bool:
        """An iteration begins; whether its profile does."""
        if not self._wanted or self._profile is not None:
            return False
        if self._wait:
            self._wait -= 1
            return False
        self._num_steps, self._wanted = self._wanted, 0
        self._left = self._num_steps
        if torch._C._autograd._profiler_enabled():
            self.reason = "the training is being profiled already, and torch has one profiler"
            return False
        self.reason = ""
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self._device.type == "cuda" else [])]
        self._profile = profile(activities=activities)
        self._profile.start()
        return True

    def collect(self) -> Sequence[Reading]:
        """The shares, where the last of the steps is over."""
        if self._profile is None:
            return []
        self._left -= 1
        if self._left:
            return []
        done, self._profile = self._profile, None
        done.stop()
        return [Reading((), partial(self._report, done, self._num_steps))]

    def not_measured(self) -> Mapping[str, str]:
        """Where somebody else profiles."""
        return dict.fromkeys(_YIELDS, self.reason) if self.reason else {}

    def close(self) -> None:
        """End a profile that is under way."""
        if self._profile is not None:
            self._profile.stop()
            self._profile = None

    def _report(self, done: profile, num_steps: int, _numbers: Float64) -> Iterable[Row]:
        on_gpu = self._device.type == "cuda"
        took = {e.key: e.self_device_time_total if on_gpu else e.self_cpu_time_total for e in done.key_averages()}
        total, shares = split(took)
        if total > 0:
            most = sorted(took.items(), key=lambda item: -item[1])[:_MOST_NAMED]
            named = {name: microseconds / total for name, microseconds in most}
            self._put_event("operators", {"num_steps": num_steps, "shares": named})
            values = [total * 1e-6 / num_steps, *(shares[tag.partition("/")[2]] for tag in _COLUMNS.tags[1:])]
            yield Row(_COLUMNS, np.array(values, np.float64))


def split(took: Mapping[str, float]) -> tuple[float, dict[str, float]]:
    """The whole time of operators, and the share of each kind.

    Example:
        >>> total, shares = split({"aten::mm": 30.0, "aten::add_": 10.0, "MmBackward0": 60.0})
        >>> total, shares["matmul"], shares["elementwise"], shares["other"]
        (100.0, 0.3, 0.1, 0.6)
    """
    shares = dict.fromkeys((tag.partition("/")[2] for tag in _COLUMNS.tags[1:]), 0.0)
    total = float(sum(took.values()))
    for name, microseconds in took.items():
        shares[kind(name)] += microseconds / total if total > 0 else 0.0
    return total, shares


@cache
def kind(name: str) -> str:
    """What an operator is for, by the name that the profiler gives it.

    Example:
        >>> [kind(f"aten::{name}") for name in ("addmm", "mkldnn_convolution", "relu", "copy_", "native_layer_norm")]
        ['matmul', 'convolution', 'elementwise', 'copy', 'normalisation']
    """
    lower = name.lower()
    if any(part in lower for part in _EXCHANGES):
        return "communication"
    space, _, bare = name.rpartition("::")
    if space != "aten":
        return "copy" if "memcpy" in lower or "memset" in lower else "other"
    for found, names in _KINDS.items():
        if bare in names:
            return found
    for found, parts in _PARTS:
        if any(part in bare for part in parts):
            return found
    return "elementwise" if bare.startswith(("_foreach_", "_fused_")) or _is_pointwise(bare) else "other"


def _is_pointwise(bare: str) -> bool:
    packet = getattr(torch.ops.aten, bare, None)
    return packet is not None and any(
        torch.Tag.pointwise in getattr(packet, overload).tags for overload in packet.overloads()
    )
