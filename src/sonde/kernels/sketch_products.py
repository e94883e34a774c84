"""What is needed of the sketches of two steps to compare them: three numbers a tensor instead of 512."""

import functools

import torch
from torch import Tensor

from sonde.kernels import sketches
from sonde.kernels.bound_kernel import BoundKernel
from sonde.kernels.dispatch import triton_trouble

NUM_PRODUCTS = 3


def sketch_products(now: Tensor, before: Tensor) -> Tensor:
    """Inner products of sketches, a row a tensor: (now, before), (now, now), (before, before).

    They are estimates of the tensors' inner product and squared norms (see `sonde.kernels.sketches`). The
    cosine is the first over the root of the product of the others; those of several tensors as one vector follow from
    the sums of their rows. On a GPU with Triton this is one launch; nowhere does it wait for the device.

    Args:
        now: Sketches, float32 (n, 256), of tensors at one step.
        before: Sketches of the same tensors at another step, made with the same numbers.

    Returns:
        float64 (n, 3), on the device of the sketches. A row is NaN or infinite where a sketch is.

    Raises:
        ValueError: they are no sketches, or not of as many tensors.

    Example:
        >>> a = torch.ones(1, 256)
        >>> sketch_products(a, -3 * a).tolist()
        [[-768.0, 256.0, 2304.0]]
    """
    shape = now.shape
    if shape != before.shape or now.dim() != 2 or shape[1] != sketches.SIZE or now.device != before.device:
        raise ValueError(
            f"sketches are (tensors, {sketches.SIZE}), two of one size on one device; got {list(shape)} on "
            f"{now.device} and {list(before.shape)} on {before.device}."
        )
    if now.is_cuda and (kernel := _kernel(len(now), now.device)) and _is_plain(now) and _is_plain(before):
        if now.device.index == torch._C._cuda_getDevice():
            return _launch(kernel, now, before)
        with torch.cuda.device(now.device):
            return _launch(kernel, now, before)
    with torch.no_grad():
        a, b = now.to(torch.float64), before.to(torch.float64)
        return torch.stack([(a * b).sum(1), (a * a).sum(1), (b * b).sum(1)], dim=1)


def _is_plain(sketch: Tensor) -> bool:
    return sketch.dtype is torch.float32 and sketch.is_contiguous() and sketch.data_ptr() % 16 == 0


def _launch(kernel: BoundKernel, now: Tensor, before: Tensor) -> Tensor:
    out = torch.empty((len(now), NUM_PRODUCTS), dtype=torch.float64, device=now.device)
    kernel(torch._C._cuda_getCurrentRawStream(now.device.index), now, before, out)
    return out


@functools.lru_cache(maxsize=64)  # a model has few numbers of tensors to compare
def _kernel(num_tensors: int, device: torch.device) -> BoundKernel | None:
    """The kernel for so many on this device; None where there is none, or nothing to launch."""
    if num_tensors == 0 or triton_trouble(device) is not None:
        return None
    from sonde.kernels.triton_folds import multiply_sketches

    return BoundKernel(multiply_sketches, (num_tensors, 1, 1), lasting=(), constants=())
