"""Where the memory of a training goes: its own tensors told apart."""

import itertools
import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from sonde.core.frames import MISSING, Columns
from sonde.probes.allocators import allocated
from sonde.probes.events import Events
from sonde.probes.probe import Reading, Row, known

_YIELDS = {
    "memory/parameters": "bytes of the parameters",
    "memory/gradients": "bytes of the gradients, the most that were there when an optimiser had made its step",
    "memory/buffers": "bytes of the models' buffers",
    "memory/optimizer": "bytes of the optimisers' state",
    "memory/activations": "bytes of the peak that are none of those: activations, and whatever else there was then",
}
_ON_CPU, _ON_GPU = Columns("memory", tuple(_YIELDS)[:-1]), Columns("memory", tuple(_YIELDS))
_DEVICE = operator.attrgetter("device")
_PLAIN = (Tensor, nn.Parameter)


@final
class Memory:
    """Counts the bytes of parameters, gradients, buffers and optimiser state; the rest of a GPU's peak are activations.

    Of a tensor its own bytes count, numel × itemsize; of tensors that share memory (tied weights, views) never more
    than that memory has; of a sharded one (DTensor) this process' part. All of them count wherever they lie.

    The peak is torch's own, never reset here. Activations are peak − (parameters + gradients + buffers + optimiser
    state on the GPUs): a lower bound, since gradients may not be there yet when the peak is reached; also the peak of
    an evaluation or of a compilation counts. `MISSING` where the difference is negative: the peak was reset.

    On a CPU there is no peak to ask for: only the tensors are counted (`host/rss` has the whole process).

    Args:
        models: By name.
        optimizers: By name; parameters that only they have are counted too.

    Example:
        >>> net = nn.Linear(3, 2)
        >>> memory = Memory({"": net}, {"": torch.optim.SGD(net.parameters(), lr=0.1)})
        >>> memory.arm([0])
        >>> (reading,) = memory.collect()
        >>> (row,) = reading.report(np.empty(0))
        >>> dict(zip(row.columns.tags, row.values.tolist()))["memory/parameters"]
        32.0
    """

    yields = _YIELDS

    def __init__(self, models: Mapping[str, nn.Module], optimizers: Mapping[str, Optimizer]) -> None:
        self._models, self._optimizers = list(models.values()), list(optimizers.values())
        self._armed = False
        self._parameters: list[Tensor] = []
        self._gradients = -1
        """Their most bytes; negative before they were counted."""
        self._gradients_on_gpu = 0

    @property
    def num_slots(self) -> int:
        """All is measured together."""
        return 1 if self._models or self._optimizers else 0

    def arm(self, slots: Sequence[int]) -> None:
        """Gradients count from here on."""
        self._armed, self._gradients, self._gradients_on_gpu = bool(slots), -1, 0
        of_optimizers = (group["params"] for optimizer in self._optimizers for group in optimizer.param_groups)
        everyone = itertools.chain(*(model.parameters() for model in self._models), *of_optimizers)
        self._parameters = list({id(parameter): parameter for parameter in everyone}.values())

    def listen(self, events: Events) -> None:
        """Gradients are counted when an optimiser is entered and when it has made its step: later they may be None.

        Otherwise they are counted by `collect`, when there may be none left.
        """
        events.gradients.append(self.stepped)
        events.optimizer_left.append(self.stepped)

    def stepped(self, _optimizer: Optimizer | None = None) -> None:
        """An optimiser has gradients, or has made its step."""
        if self._armed:
            found = num_bytes((p.grad for p in self._parameters if p.grad is not None), {})
            self._gradients = max(self._gradients, found.total())
            self._gradients_on_gpu = max(self._gradients_on_gpu, sum(n for d, n in found.items() if d.type == "cuda"))

    def collect(self) -> Sequence[Reading]:
        """All numbers as they are now, and the gradients as they were."""
        if not self._armed:
            return []
        if self._gradients < 0:
            self.stepped()
        counted: dict[int, int] = {}
        parameters = num_bytes(self._parameters, counted)
        self._armed, self._parameters = False, []
        buffers = num_bytes((buffer for model in self._models for buffer in model.buffers()), counted)
        state = num_bytes(itertools.chain.from_iterable(_tensors(o.state) for o in self._optimizers), counted)
        together = parameters + buffers + state
        gpus = [device for device in together if device.type == "cuda"]
        values: list[float] = [parameters.total(), self._gradients, buffers.total(), state.total()]
        if gpus:
            own = sum(together[device] for device in gpus) + self._gradients_on_gpu
            rest = sum(allocated(device).peak for device in gpus) - own
            values.append(rest if rest >= 0 else float(MISSING))
        return [known(Row(_ON_GPU if gpus else _ON_CPU, np.array(values, np.float64)))]

    def not_measured(self) -> Mapping[str, str]:
        """Nothing: where there is no GPU there is no allocator to ask, and nothing is missed."""
        return {}

    def close(self) -> None:
        """Let go of models and optimisers."""
        self._armed = False
        self._models, self._optimizers, self._parameters = [], [], []


def num_bytes(tensors: Iterable[Tensor], counted: dict[int, int]) -> Counter[torch.device]:
    """The bytes of tensors on each device, memory that several share once.

    Args:
        tensors: Any; lazy ones count nothing, sparse ones with their indices, sharded and quantised ones with what they
            are made of here.
        counted: What was counted of each piece of memory before; added to.

    Example:
        >>> x = torch.zeros(10)
        >>> num_bytes([x, x[:4], x.view(2, 5), torch.zeros(2, dtype=torch.float16)], {}).total()
        44
    """
    total: Counter[torch.device] = Counter()
    parts = itertools.chain.from_iterable(map(_parts, itertools.filterfalse(is_lazy, tensors)))
    for device, on_device in itertools.groupby(parts, _DEVICE):  # adding up by device for each tensor takes longest
        num = 0
        for part in on_device:
            memory = part.untyped_storage()
            before = counted.get(memory._cdata, 0)
            after = min(before + part.nbytes, memory.nbytes())
            if after > before:
                counted[memory._cdata] = after
                num += after - before
        if num:
            total[device] += num
    return total


def _parts(tensor: Tensor) -> Iterable[Tensor]:
    """The plain tensors that one is made of; those without memory of their own are none."""
    wrapper: Any = tensor
    if type(tensor) not in _PLAIN and is_traceable_wrapper_subclass(wrapper):
        names, _ = wrapper.__tensor_flatten__()
        inside = (getattr(wrapper, name) for name in names)
        return itertools.chain.from_iterable(_parts(part) for part in inside if isinstance(part, Tensor))
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    return (tensor,) if tensor.layout is torch.strided and not tensor.is_meta else ()


def _tensors(thing: Any) -> Iterator[Tensor]:
    if isinstance(thing, Tensor):
        yield thing
    elif isinstance(thing, Mapping | list | tuple):
        for value in thing.values() if isinstance(thing, Mapping) else thing:
            yield from _tensors(value)
