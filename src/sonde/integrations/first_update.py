"""Finding out that a script without an optimiser updates its weights by hand."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad

from sonde.integrations.hand_updates import drawn
from sonde.probes.apart import apart
from sonde.probes.seams import Clip

_MOST_BYTES = 2**28  # of weights whose copies are kept until the first update is over
_MOST_LOOKS = 1_000  # a script that differentiates and never updates is not looked at for ever
_MOST_TRACKED = 4
_MOST_AGREE = 0.9
"""Of the values that moved, so many did so in one direction as seen from their gradients. By chance a half does; three
quarters where the weights are set anew and the gradients point along them (of a loss that wants weights small)."""
_PLAIN = frozenset({Tensor, nn.Parameter})


class _Kept(NamedTuple):
    """A parameter with its gradient, as `backward` left them."""

    parameter: Tensor
    weight: Tensor
    gradient: Tensor
    version: int
    place: int


@final
class FirstUpdate:
    """Compares the weights of modules that have gradients with what they were when `backward` was over.

    Weights that have changed were updated with those gradients if nearly all values moved against them, or nearly all
    along with them: in a first step of any method that descends (or ascends) they do, and weights that are loaded or
    set anew do not. Until then copies are kept of weights and gradients, unless they are large: so the first update,
    which is over when it is found, is measured as all others are.
    """

    def __init__(self) -> None:
        self._kept: list[_Kept] = []
        self._clips: list[Clip] = []
        self._is_whole = False
        """Whether all values are kept, and not only some of each tensor."""
        self._num_looks = 0

    @property
    def is_fresh(self) -> bool:
        """Whether it was told of nothing yet."""
        return not self._kept and not self._num_looks

    @property
    def parameters(self) -> list[Tensor]:
        """Those that have gradients."""
        return [kept.parameter for kept in self._kept]

    def trained(self, modules: Iterable[nn.Module]) -> list[Tensor]:
        """All that can be trained of the modules that have some of them."""
        known = set(map(id, self.parameters))
        some = [module for module in modules if any(id(p) in known for p in module.parameters())]
        return list({id(p): p for module in some for p in module.parameters() if p.requires_grad}.values())

    def differentiated(self, modules: Iterable[nn.Module]) -> None:
        """`backward` is over.

        Args:
            modules: Those that the script has called.
        """
        if self._num_looks >= _MOST_LOOKS:
            return
        every = {id(p): p for module in modules for p in module.parameters()}
        some = [p for p in every.values() if p.grad is not None and type(p) in _PLAIN and type(p.grad) in _PLAIN]
        some = [p for p in some if p.is_floating_point() and p.grad is not None and p.grad.layout is torch.strided]
        some = [p for p in some if p.dtype == some[0].dtype and p.device == some[0].device]
        self._clips = []
        if not some or (some[0].device.type == "cuda" and torch.cuda.is_current_stream_capturing()):
            self._kept = []
            return
        self._is_whole = _has_room(some)
        before = {id(kept.parameter): kept.weight for kept in self._kept}  # where gradients are added up
        with apart(some[0].device):
            self._kept = [
                _Kept(p, before[id(p)] if id(p) in before else self._copy(p), self._copy(p.grad), *_marks(p))
                for p in some
                if p.grad is not None
            ]

    def _copy(self, tensor: Tensor) -> Tensor:
        return tensor.detach().clone() if self._is_whole else drawn([tensor]).clone()

    def clipped(self, clip: Clip) -> None:
        """Torch has clipped gradients, or is about to."""
        if self._kept and clip.done:
            norm = None if clip.norm is None else clip.norm.detach().clone()
            self._clips.append(clip._replace(norm=norm))

    def has_come(self) -> bool:
        """Whether the script has updated the weights."""
        if not self._kept or self._num_looks >= _MOST_LOOKS:
            return False
        self._num_looks += 1
        with apart(self._kept[0].weight.device):
            before, gradient = (
                drawn([kept.weight for kept in self._kept]),
                drawn([kept.gradient for kept in self._kept]),
            )
            moved = drawn(self.parameters) - before
            seen = torch.sign(moved) * torch.sign(gradient)
            lost = moved.isnan() & ~before.isnan()
            num_along, num_against, num_lost = torch.stack([(seen > 0).sum(), (seen < 0).sum(), lost.sum()]).tolist()
        num = num_along + num_against
        if num_lost or (num and max(num_along, num_against) >= _MOST_AGREE * num):
            return True
        if num:  # something else has changed them
            self._kept = []
        return False

    def tracked(self) -> list[Tensor]:
        """A few parameters that have moved, from all over the model; those whose moves are the most against their size.

        Some parts of a model may have no gradient in some steps.
        """
        with apart(self._kept[0].weight.device):
            sizes = []
            for kept in self._kept:
                before = drawn([kept.weight])
                moved = (drawn([kept.parameter]) - before).abs().mean()
                sizes.append(moved / before.abs().mean().clamp(min=torch.finfo(before.dtype).tiny))
            size = torch.stack(sizes).nan_to_num(nan=1.0).tolist()
        places = [place for place in range(len(size)) if size[place] > 0]
        length = -(-len(places) // _MOST_TRACKED)
        parts = [places[start : start + length] for start in range(0, len(places), max(length, 1))]
        return [self._kept[max(part, key=size.__getitem__)].parameter for part in parts]

    def is_silent(self) -> bool:
        """Whether it changed neither the weights' versions nor where they lie."""
        return all(_marks(kept.parameter) == (kept.version, kept.place) for kept in self._kept)

    @contextlib.contextmanager
    def as_before(self) -> Iterator[bool]:
        """Have weights and gradients be what they were when `backward` was over, for the time being.

        Gives whether they are.
        """
        now = [(p, p.data, p.grad) for p in self.parameters]
        try:
            if self._is_whole:
                for parameter, weight, gradient, *_ in self._kept:
                    parameter.data, parameter.grad = weight, gradient
            yield self._is_whole
        finally:
            for parameter, data, given in now:
                parameter.data, parameter.grad = data, given

    def clip_again(self) -> None:
        """Clip the gradients as they were clipped; within `as_before`."""
        known = set(map(id, self.parameters))
        for clip in self._clips:
            some = [p for p in clip.parameters if id(p) in known]
            if clip.norm is None:
                torch.nn.utils.clip_grad_value_(some, clip.limit)
            else:
                clip_grad._clip_grads_with_norm_(some, clip.limit, clip.norm)


def _marks(parameter: Tensor) -> tuple[int, int]:
    return parameter._version, parameter.data_ptr()


def _has_room(parameters: Sequence[Tensor]) -> bool:
    num_bytes = sum(p.nbytes for p in parameters)
    if parameters[0].device.type != "cuda":
        return num_bytes <= _MOST_BYTES
    free = torch.cuda.memory_reserved(parameters[0].device) - torch.cuda.memory_allocated(parameters[0].device)
    return 2 * num_bytes <= min(free, _MOST_BYTES)
