"""How the tensors of a list lie in memory, and in which order their values are numbered.

The values of a dense tensor are numbered as they lie in memory, whatever the order of its dimensions (channels_last):
it is then read as one flat stretch. Those of any other (a slice, an expanded one) are numbered row by row, from a copy.
A list is prepared once; a tensor that later comes with other strides is copied into the prepared ones, so that a
sketch numbers it as before.
"""

import itertools
import operator
from collections.abc import Sequence
from typing import NamedTuple, final

import torch
from torch import Tensor

from sonde.kernels.layout_guard import LayoutGuard

_READABLE = frozenset({torch.float64, torch.float32, torch.bfloat16, torch.float16})


class Layout(NamedTuple):
    """One tensor's layout."""

    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype


@final
class Layouts:
    """The layouts of a list of tensors on one device.

    Args:
        like: Floating-point or complex tensors, strided. Only their shapes, strides, dtypes and device are kept.

    Raises:
        TypeError: one has integers, is sparse or quantised.
        ValueError: they lie on several devices.
    """

    def __init__(self, like: Sequence[Tensor]) -> None:
        for tensor in like:
            _check(tensor)
        devices = {tensor.device for tensor in like}
        if len(devices) > 1:
            names = ", ".join(sorted(map(str, devices)))
            raise ValueError(f"the tensors lie on {names}; all must be on one device: make one `TensorStats` a device.")
        self.device = devices.pop() if devices else torch.device("cpu")
        self._layouts = [Layout(t.shape, _prepared_stride(t), t.dtype) for t in like]
        read_as = {dtype: _read_as(dtype) for dtype in {t.dtype for t in like}}
        self.dtypes = [read_as[t.dtype] for t in like]
        """Of the values as they are read: parts of complex numbers; float32 where it is none of the four usual ones."""
        self.numels = [t.numel() * (2 if t.is_complex() else 1) for t in like]
        self.plain = all(a.dtype == b for a, b in zip(self._layouts, self.dtypes, strict=True))
        """Whether all tensors are read in the dtype that they have."""
        self.guard = LayoutGuard()

    def __len__(self) -> int:
        return len(self._layouts)

    def shaped(self, i: int, flat: Tensor) -> Tensor:
        """Tensor i of values in its dtype that lie in memory one after another, as a view."""
        return flat.as_strided(self._layouts[i].shape, self._layouts[i].stride)

    def confirms(self, tensors: Sequence[Tensor]) -> bool:
        """Whether these, as many, lie as prepared: quickly, and at times not confirmed though it is true."""
        return self.guard.confirms(tensors)

    def learns(self, tensors: Sequence[Tensor]) -> bool:
        """Whether these lie exactly as prepared, to be confirmed quickly from now on."""
        lying = [Layout(t.shape, t.stride(), t.dtype) for t in tensors]
        if lying != self._layouts or any(t.device != self.device for t in tensors):
            return False
        self.guard.learn(tensors)
        return True

    def arrange(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """The tensors, each dense in the prepared strides and of the dtype in `dtypes`: copied where it was not.

        Raises:
            ValueError: they are not as many, or of other sizes, dtypes or device than prepared. Checked at every
                call: a kernel that reads beyond a tensor's end takes the training with it. Equal addresses prove
                nothing, since memory that was freed is handed out again.
        """
        if len(tensors) != len(self._layouts):
            raise ValueError(f"{len(tensors)} tensors were given, {len(self._layouts)} prepared for.")
        if self.confirms(tensors):
            return tensors
        tensors = list(tensors)
        with torch.no_grad():
            # A view of the negative values has the memory of the others.
            arranged = [self._arranged(i, tensor.resolve_neg()) for i, tensor in enumerate(tensors)]
            if not self.plain:
                return [_real(t.detach()).to(dtype) for t, dtype in zip(arranged, self.dtypes, strict=True)]
        if all(map(operator.is_, arranged, tensors)):
            self.guard.learn(tensors)
        return arranged

    def _arranged(self, i: int, tensor: Tensor) -> Tensor:
        shape, stride, dtype = self._layouts[i]
        if tensor.shape != shape or tensor.dtype is not dtype or tensor.device != self.device:
            raise ValueError(
                f"tensor {i} is {tensor.dtype} {list(tensor.shape)} on {tensor.device}, prepared for was {dtype} "
                f"{list(shape)} on {self.device}: prepare another `TensorStats`."
            )
        given = tensor.stride()
        # A dimension of one value, or an empty tensor, may have any stride.
        if (
            given == stride
            or not tensor.numel()
            or all(n == 1 or a == b for a, b, n in zip(given, stride, shape, strict=True))
        ):
            return tensor
        return torch.empty_strided(shape, stride, dtype=dtype, device=tensor.device).copy_(tensor)


def flat(tensor: Tensor) -> Tensor:
    """A dense tensor's values in the order of memory, as a view."""
    return tensor.detach().as_strided((tensor.numel(),), (1,))


def memory_order(tensor: Tensor) -> list[int] | None:
    """The dimensions from the slowest to the fastest where the tensor is dense, else None.

    Example:
        >>> memory_order(torch.zeros(2, 3).T), memory_order(torch.zeros(2, 3)[:, :2])
        ([1, 0], None)
    """
    stride = tensor.stride()
    order = sorted(range(tensor.dim()), key=lambda i: (-stride[i], i))
    expected = 1
    for i in reversed(order):
        if tensor.shape[i] > 1:
            if stride[i] != expected:
                return None
            expected *= tensor.shape[i]
    return order


def _prepared_stride(tensor: Tensor) -> tuple[int, ...]:
    dense = tensor.numel() == 0 or memory_order(tensor) is not None
    return tensor.stride() if dense else _row_major_stride(tensor.shape)


def _row_major_stride(shape: torch.Size) -> tuple[int, ...]:
    strides = itertools.accumulate((max(n, 1) for n in reversed(shape[1:])), operator.mul, initial=1)
    return tuple(strides)[::-1] if shape else ()


def _read_as(dtype: torch.dtype) -> torch.dtype:
    dtype = _real(torch.empty(0, dtype=dtype)).dtype
    return dtype if dtype in _READABLE else torch.float32


def _real(tensor: Tensor) -> Tensor:
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def _check(tensor: Tensor) -> None:
    if tensor.layout is not torch.strided:
        raise TypeError(f"a {tensor.layout} tensor has no flat memory: pass `tensor.coalesce().values()`.")
    if not (tensor.is_floating_point() or tensor.is_complex()):
        raise TypeError(f"a tensor of {tensor.dtype} was given; floating-point and complex ones are measured.")
    if tensor.is_meta:
        raise TypeError("a meta tensor has no values.")
