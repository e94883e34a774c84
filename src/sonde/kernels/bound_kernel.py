"""A Triton kernel that is launched at every step with nearly the same arguments."""

from collections.abc import Sequence
from typing import Any, final

from torch import Tensor


@final
class BoundKernel:
    """A kernel with its grid and those of its arguments that stay.

    Triton looks at every argument of every launch to find the variant that fits, which takes 15 to 30 µs. Here the
    constants tell it: all other arguments are aligned memory of torch's, and plain numbers. So the variant is found by
    the first launch, and later ones go to its launcher directly, with addresses in place of tensors: 6 to 8 µs. Hooks
    for launches, which Triton's own profiler sets, are not called.

    Args:
        kernel: The kernel. Its arguments are the fresh ones, the lasting ones, the constants.
        grid: Programs in three dimensions.
        lasting: Arguments of all launches; tensors among them are kept.
        constants: What the variant is compiled for.
        num_warps: Of a program.
    """

    def __init__(
        self,
        kernel: Any,
        grid: tuple[int, int, int],
        *,
        lasting: Sequence[Tensor | int],
        constants: tuple[Any, ...],
        num_warps: int = 4,
    ) -> None:
        self._kernel, self._grid, self._num_warps = kernel, grid, num_warps
        self._lasting, self._constants = lasting, constants
        self._tail = (*(x.data_ptr() if isinstance(x, Tensor) else x for x in lasting), *constants)
        self._run: Any = None
        self._variant: tuple[Any, ...] = ()

    def at(self, stream: int, *fresh: int) -> None:
        """Launch it with addresses and numbers, once the variant is found."""
        self._run(*self._grid, stream, *self._variant, *fresh, *self._tail)

    def __call__(self, stream: int, *fresh: Tensor) -> None:
        """Launch it on the current stream, whose handle is `stream`."""
        if self._run is not None:
            self.at(stream, *map(Tensor.data_ptr, fresh))
            return
        self.find(*fresh)

    def find(self, *fresh: Tensor | int) -> None:
        """Launch it for the first time, with numbers among the fresh arguments where it takes some."""
        compiled = self._kernel[self._grid](*fresh, *self._lasting, *self._constants, num_warps=self._num_warps)
        if compiled is not None:  # as it is where Triton interprets
            no_hooks = None, None, None
            self._run, self._variant = compiled.run, (compiled.function, compiled.packed_metadata, *no_hooks)
