"""The one door to the statistics: which path measures a list of tensors is decided when it is prepared."""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, final

import torch
from torch import Tensor

from sonde.core.optional import available
from sonde.core.records import Float64
from sonde.kernels import reference
from sonde.kernels.copies import copied
from sonde.kernels.layouts import Layouts
from sonde.kernels.native import library
from sonde.kernels.native.native_stats import NativeStats
from sonde.kernels.stats import Stats
from sonde.streams.logs import logger

if TYPE_CHECKING:
    from sonde.kernels.triton_steps import TritonSteps

_log = logger("sonde.kernels")


class Path(Protocol):
    """A way to measure: `new`, or `new - old` where `old` is given; and to copy what is measured later."""

    def __call__(
        self, new: Sequence[Tensor], old: Sequence[Tensor] | None, *, histogram: bool, sketch: bool
    ) -> Stats: ...

    def copy(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]: ...


@final
class TensorStats:
    """Statistics of all tensors of a list in one pass over each, prepared once for their shapes.

    On a GPU a call launches a few Triton kernels and returns; it neither waits for the device nor allocates host
    memory. On a CPU it is one call of C, which lets the interpreter go. Neither touches the tensors, autograd or any
    random state. Calls of one object belong on one CUDA stream: it prepares anew where the stream changed.

    The statistics are right to 1e-5 relative for magnitudes from 1e-38 to 1e38 and means far above the spread; counts,
    extremes and histograms are exact. Differences are rounded to float32; those of float64 tensors to float64, whose
    squares overflow above 1e150.

    Args:
        like: The tensors, or others of the same shapes, strides, dtypes and device: float32, bfloat16, float16,
            float64; complex ones as pairs; any other floating-point type is copied to float32 first. None is kept.
        ids: A number for each tensor, stable over steps, that picks its sketch's signs; 0, 1, 2, … where left out.
            Sketches compare only where the numbers agree.

    Attributes:
        path: "native" (on a CPU), "triton", "torch" (plain torch, a few dozen calls a tensor) or "copy" (to the CPU,
            which waits for the device: `rows` are then on the CPU).
        reason: Why the path is one of the last two, else None.

    Raises:
        TypeError: a tensor has integers, is sparse, or has no values.
        ValueError: the tensors lie on several devices, or `ids` are not as many.

    Example:
        >>> stats = TensorStats([torch.zeros(2, 2), torch.zeros(3)])
        >>> stats([torch.tensor([[0.0, 1.0], [2.0, 3.0]]), torch.ones(3)]).rows.tolist()
        [[4.0, 0.0, 1.0, 1.5, 5.0, 0.0, 3.0], [3.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0]]
    """

    def __init__(self, like: Sequence[Tensor], *, ids: Sequence[int] | None = None) -> None:
        numbers = range(len(like)) if ids is None else ids
        if len(numbers) != len(like):
            raise ValueError(f"`ids` must be as many as the tensors, {len(like)}; got {len(numbers)}.")
        layouts = Layouts(like)
        self.path, self.reason = _choose(layouts.device)
        self._measure: Path
        if self.path == "triton":
            from sonde.kernels.triton_stats import TritonStats

            self._measure = TritonStats(layouts, numbers)
        elif self.path == "torch":
            self._measure = PlainStats(layouts, numbers)
        elif self.path == "copy":
            self._measure = _Copied([t.to("cpu", copy=True) for t in like], numbers)
        else:
            self._measure = _native(layouts, numbers)

    def __call__(self, tensors: Sequence[Tensor], *, histogram: bool = False, sketch: bool = False) -> Stats:
        """The statistics of the tensors, in their order.

        Args:
            tensors: As prepared for. Other strides are copied first.
            histogram: Count them as well (see `sonde.kernels.histograms`).
            sketch: Sketch them as well (see `sonde.kernels.sketches`).

        Raises:
            ValueError: they are not as many, or of other shapes, dtypes or device than prepared for.
        """
        return self._measure(tensors, None, histogram=histogram, sketch=sketch)

    def of_difference(
        self, new: Sequence[Tensor], old: Sequence[Tensor], *, histogram: bool = False, sketch: bool = False
    ) -> Stats:
        """The statistics of new - old, tensor by tensor, without storing it; otherwise as a call.

        Example:
            >>> stats = TensorStats([torch.zeros(2)])
            >>> stats.of_difference([torch.tensor([3.0, 5.0])], [torch.tensor([1.0, 1.0])]).rows.tolist()
            [[2.0, 0.0, 0.0, 3.0, 2.0, 2.0, 4.0]]
        """
        return self._measure(new, old, histogram=histogram, sketch=sketch)

    def vector(self, tensors: Sequence[Tensor]) -> Float64 | None:
        """Rows, and behind them norms (see `Stats`), as one vector: what a call gives, for a third of its price.

        None where tensors do not lie exactly as others that were measured before, or another path measures than the
        native one: then call it.
        """
        return self._measure.vector(tensors) if isinstance(self._measure, NativeStats) else None

    def copy(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """Copies of the tensors as they are now, for `of_difference` of this object once they have changed.

        On a GPU they are one piece of memory, filled by one launch a dtype, and `of_difference` finds them there
        without looking at each; elsewhere a list of clones. They cost as much memory as the tensors: forget them soon.

        Args:
            tensors: As prepared for; what is not is refused here or by `of_difference`.

        Example:
            >>> weights = [torch.tensor([1.0, 1.0])]
            >>> stats = TensorStats(weights)
            >>> before = stats.copy(weights)
            >>> _ = weights[0].add_(2)
            >>> stats.of_difference(weights, before).rows.tolist()
            [[2.0, 0.0, 0.0, 2.0, 0.0, 2.0, 2.0]]
        """
        return self._measure.copy(tensors)


def tensor_stats(
    tensors: Sequence[Tensor], *, ids: Sequence[int] | None = None, histogram: bool = False, sketch: bool = False
) -> Stats:
    """The one-shot of `TensorStats`: prepares, measures, forgets.

    Example:
        >>> tensor_stats([torch.tensor([3.0, float("nan"), 4.0])]).rows.tolist()
        [[2.0, 1.0, 0.0, 3.5, 0.5, 3.0, 4.0]]
    """
    return TensorStats(tensors, ids=ids)(tensors, histogram=histogram, sketch=sketch)


def trouble_on(device: torch.device) -> str | None:
    """Why the statistics of a device's tensors are not measured by a kernel made for it; None where they are."""
    return _choose(device)[1]


def steps_of(parameters: Sequence[Tensor], num_slots: int) -> "TritonSteps | None":
    """What measures around the steps of an optimiser with few launches, on the current stream (see `TritonSteps`).

    It is ready for use: its kernels are compiled, and have been launched. None where the tensors are not dense ones of
    usual types on the current CUDA device, or Triton does not work there.
    """
    if not parameters or not all(t.is_cuda for t in parameters):
        return None
    device = parameters[0].device
    if device.index != torch._C._cuda_getDevice() or triton_trouble(device) is not None:
        return None
    from sonde.kernels.triton_steps import TritonSteps, readable

    if not readable(parameters):
        return None
    try:
        steps = TritonSteps(parameters, num_slots)
        steps.warm_up(parameters)
    except Exception as error:  # whatever Triton, its compiler or the driver raise: lists are measured as well
        _log.warning("the steps of an optimiser are measured with more launches than they need: %r", error)
        return None
    return steps


@final
class PlainStats:
    """The reference, tensor by tensor."""

    def __init__(self, layouts: Layouts, ids: Sequence[int]) -> None:
        self._layouts, self._ids = layouts, ids

    def __call__(self, new: Sequence[Tensor], old: Sequence[Tensor] | None, *, histogram: bool, sketch: bool) -> Stats:
        with torch.no_grad():
            arranged = self._layouts.arrange(new)
            if old is not None:
                pairs = zip(arranged, self._layouts.arrange(old), strict=True)
                arranged = [reference.difference(a, b) for a, b in pairs]
            return reference.tensor_stats(arranged, ids=self._ids, with_histogram=histogram, with_sketch=sketch)

    def copy(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        return copied(tensors)


@final
class _Copied:
    """The path of the CPU over copies, for devices that lack float64 or a fast path."""

    def __init__(self, like: Sequence[Tensor], ids: Sequence[int]) -> None:
        path, _ = _choose(torch.device("cpu"))
        self._cpu: Path = (_native if path == "native" else PlainStats)(Layouts(like), ids)

    def __call__(self, new: Sequence[Tensor], old: Sequence[Tensor] | None, *, histogram: bool, sketch: bool) -> Stats:
        copies = [tensor.detach().cpu() for tensor in new]
        others = None if old is None else [tensor.detach().cpu() for tensor in old]
        return self._cpu(copies, others, histogram=histogram, sketch=sketch)

    def copy(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        return copied(tensors)


def _native(layouts: Layouts, ids: Sequence[int]) -> NativeStats:
    *_, best = library.load().entries.values()
    return NativeStats(layouts, ids, best)


def _choose(device: torch.device) -> tuple[str, str | None]:
    if device.type == "cpu":
        trouble = library.load().trouble
        return ("torch", f"{trouble}; plain torch measures, many times slower") if trouble else ("native", None)
    if device.type != "cuda":
        return (
            "copy",
            f"there is no kernel for {device.type}: tensors are copied to the CPU, which waits for the device",
        )
    trouble = triton_trouble(device)
    return ("torch", trouble) if trouble else ("triton", None)


@functools.cache
def triton_trouble(device: torch.device) -> str | None:
    """Why Triton cannot be used on a device, found by using it once: it may lack a compiler or support for the chip."""
    if not available("triton"):
        return "Triton is not installed: pip install triton"
    try:
        from sonde.kernels.triton_stats import TritonStats

        probe = [torch.ones(1, device=device)]
        stats = TritonStats(Layouts(probe), range(1))
        for _ in range(2):  # Triton launches the first, we the second (see `BoundKernel`)
            stats(probe, None, histogram=False, sketch=False)
    except Exception as error:  # whatever Triton, its compiler or the driver raise: another path measures as well
        return f"Triton does not work on {device}: {type(error).__name__}: {error}".splitlines()[0]
    return None
