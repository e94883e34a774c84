"""NUM001 gradients-underflow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.rules.depth import matrices
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Severity, Sighting, When

_SMALLEST = 2.0**-24  # of fp16, subnormal


class GradientsUnderflowState(NamedTuple):
    """Looks in a row that found it."""

    num_looks: int = 0
    since: int = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class GradientsUnderflow:
    """Gradients are too small for fp16 and become exactly zero.

    What it detects:
        More than `share` of the elements exactly zero in most weight matrices, without a gradient scaler, while the
        typical size of the elements that are left is within a factor of `near` of fp16's smallest number 2^-24, at
        `num_looks` looks in a row. A matrix of nothing but zeros counts as well, provided that some gradient is left
        and that none is farther from that number. Zeros alone may be dead units or sparse inputs (ACT001): the size
        tells. A warning unless the loss is nearly gone.

    Why it matters:
        What is rounded to zero is lost; early layers stop first.

    Evidence:
        `grad/zeros@…`, `grad/rms@…`; no `amp/scale`.

    What to do:
        Use a gradient scaler with fp16, or bf16, which needs none.

    When it is wrong:
        A solved task has tiny gradients in any format; then it is information. Formats are not recorded: float32
        gradients that happen to be as small and as sparse look the same.

    References:
        Micikevicius et al., Mixed precision training, ICLR 2018, figure 3.
    """

    code: ClassVar[str] = "NUM001"
    name: ClassVar[str] = "gradients-underflow"
    needs: ClassVar[tuple[str, ...]] = ("grad/zeros@", "grad/rms@")
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.MISSING_LOSS_SCALING: (
            For("gradients are zero or near fp16's smallest number, without a scaler"),
            For(when=When.ALARM),
        ),
        Cause.PRECISION_UNDERFLOW: For(),
        Cause.NO_LEARNABLE_SIGNAL: Against("gradients are lost in fp16"),
        Cause.DEAD_UNITS: Against("what is left is as small as fp16's smallest number: rounding"),
    }
    quiet_steps: ClassVar[int] = 200
    guide: ClassVar[str] = "vanishing"

    share: float = 0.2
    near: float = 64.0
    num_looks: int = 2

    def init(self) -> GradientsUnderflowState:
        """Before the first step."""
        return GradientsUnderflowState()

    def step(self, state: GradientsUnderflowState, look: Look) -> tuple[GradientsUnderflowState, Sequence[Sighting]]:
        """Look at the layers where they were measured."""
        scene = look.scene
        zeros, sizes = scene.layers("grad/zeros"), scene.layers("grad/rms")
        if zeros is None or sizes is None or "amp/scale" in scene:
            return state, ()
        zeros, sizes = matrices(zeros, look.scenes), matrices(sizes, look.scenes)
        if not zeros.names or zeros.names != sizes.names:
            return state, ()
        with np.errstate(divide="ignore", invalid="ignore"):
            left = sizes.values / np.sqrt(np.maximum(1 - zeros.values, 0))  # RMS of what is not zero
        gone, near = zeros.values == 1, left < self.near * _SMALLEST
        # Of a gradient that is gone nothing tells its size, but what is left of the others does.
        fades = bool(near.any() and (near | gone).all())
        small = (zeros.values > self.share) & (near | gone if fades else near & ~gone)
        found = small.sum() > len(small) / 2
        since = state.since if state.num_looks else scene.step
        state = GradientsUnderflowState(state.num_looks + 1, since) if found else self.init()
        if state.num_looks < self.num_looks:
            return state, ()
        names = tuple(name for name, is_small in zip(zeros.names, small, strict=True) if is_small)
        place = zeros.names.index(names[0])
        sizes_left = left[near & ~gone]
        message = (
            f"{zeros.values[place]:.0%} of the gradient of {names[0]} is exactly zero, as much is of "
            f"{len(names)} of {len(zeros.names)} matrices, and what is left of them is about "
            f"{float(np.median(sizes_left)):.2g}, near fp16's smallest number"
        )
        evidence = Evidence(
            tag=f"grad/zeros@{names[0]}", step=scene.step, value=float(zeros.values[place]), expected=0.0
        )
        severity = Severity.INFO if look.picture.progress > 0.9 else Severity.WARNING
        return state, (Sighting(severity, message, where=names, evidence=(evidence,), since=state.since),)
