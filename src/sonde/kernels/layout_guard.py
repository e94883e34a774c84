"""Whether tensors lie exactly as others did that were looked at before, in one call of C++ for all of them."""

from collections.abc import Callable, Sequence
from typing import Any, final

from torch import Tensor

# Each costs 0.2 ms for 150 tensors. Lists that keep changing between kinds (in and out of an autocast, parameters and
# plain tensors) are told apart by slower questions once these are spent.
_MOST_LESSONS = 8


@final
class LayoutGuard:
    """Remembers how the tensors of a list lie: type, shape, strides, dtype, device. None of them is kept.

    What it confirms is certain. What it denies may still be fine: it also minds whether a tensor is a parameter,
    whether it requires a gradient, the modes of the dispatcher, and tensors that are twice in the list.

    This is the check that torch.compile makes before it runs compiled code. It is private to torch; where it is missing
    or has changed, everything is denied.
    """

    def __init__(self) -> None:
        self._check: Callable[..., bool] | None = None
        self._lessons_left = _MOST_LESSONS

    def confirms(self, tensors: Sequence[Tensor]) -> bool:
        """Whether these, of the number learned, lie as those that were learned last."""
        return self._check is not None and self._check(*tensors)

    def learn(self, tensors: Sequence[Tensor]) -> None:
        """Confirm tensors like these from now on."""
        if not self._lessons_left:
            return
        self._lessons_left -= 1
        shapes: Any = [list(tensor.shape) for tensor in tensors]  # torch's annotation is of one tensor
        strides: Any = [list(tensor.stride()) for tensor in tensors]
        try:
            from torch._C._dynamo.guards import TensorGuards

            check = TensorGuards(*tensors, dynamic_dims_sizes=shapes, dynamic_dims_strides=strides).check
            self._check = check if check(*tensors) is True else None
        except Exception:  # whatever another version of torch may raise: the slow questions are always right
            self._check, self._lessons_left = None, 0
