"""NUM001 gradients-underflow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.quantities import amount, count
from sonde.core.quantities import share as percent
from sonde.rules.layer_depth import matrices
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Severity, Sighting, When

_SMALLEST = 2.0**-24  # of fp16, subnormal


class GradientsUnderflowState(NamedTuple):
    """Looks in a row that found it."""

    num_looks: int = 0
    since: int = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class GradientsUnderflow:
    """Gradients are too small for float16 and become exactly zero.

    What it detects:
        - No gradient scaler is used.
        - In more than half of the weight matrices more than `share` of the gradient is exactly zero, and the typical
          size of the rest is within a factor of `near` of float16's smallest number, 2^-24, at `num_looks` measurements
          in a row.
        - A gradient of nothing but zeros counts as well, if the rest of all other gradients is as small.
        - Zeros alone may come from dead units or sparse inputs (ACT001); the size of the rest tells these apart.
        - Warning, unless more than 90% of the loss is gone: then it is information.

    Why it matters:
        A gradient that is rounded to zero is lost. The early layers stop learning first.

    Evidence:
        `grad/zeros@…`, `grad/rms@…`; no `amp/scale`.

    What to do:
        - Use a gradient scaler with float16.
        - Or train in bf16, which needs no scaler.

    When it is wrong:
        - A solved task has tiny gradients in any format.
        - The formats of gradients are not recorded. Float32 gradients that happen to be as small and as sparse look the
          same.

    References:
        Micikevicius et al., Mixed precision training, ICLR 2018, figure 3.
    """

    code: ClassVar[str] = "NUM001"
    name: ClassVar[str] = "gradients-underflow"
    needs: ClassVar[tuple[str, ...]] = ("grad/zeros@", "grad/rms@")
    reads: ClassVar[tuple[str, ...]] = needs
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.MISSING_LOSS_SCALING: (
            For("gradients are lost in float16, without a scaler"),
            For(when=When.ALARM),
        ),
        Cause.PRECISION_UNDERFLOW: For(),
        Cause.NO_LEARNABLE_SIGNAL: Against("gradients are lost in float16"),
        Cause.DEAD_UNITS: Against("rounding to float16 makes these zeros"),
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
        view = look.view
        zeros, sizes = view.layers("grad/zeros"), view.layers("grad/rms")
        if zeros is None or sizes is None or "amp/scale" in view:
            return state, ()
        zeros, sizes = matrices(zeros, look.views), matrices(sizes, look.views)
        if not zeros.names or zeros.names != sizes.names:
            return state, ()
        with np.errstate(divide="ignore", invalid="ignore"):
            left = sizes.values / np.sqrt(np.maximum(1 - zeros.values, 0))  # RMS of what is not zero
        gone, near = zeros.values == 1, left < self.near * _SMALLEST
        # Of a gradient that is gone nothing tells its size, but what is left of the others does.
        fades = bool(near.any() and (near | gone).all())
        small = (zeros.values > self.share) & (near | gone if fades else near & ~gone)
        found = small.sum() > len(small) / 2
        since = state.since if state.num_looks else view.step
        state = GradientsUnderflowState(state.num_looks + 1, since) if found else self.init()
        if state.num_looks < self.num_looks:
            return state, ()
        names = tuple(name for name, is_small in zip(zeros.names, small, strict=True) if is_small)
        place = zeros.names.index(names[0])
        sizes_left = left[near & ~gone]
        message = (
            f"much of the gradient is exactly zero in {len(names)} of "
            f"{count(len(zeros.names), 'weight matrix', 'weight matrices')} "
            f"({percent(float(zeros.values[place]))} of `{names[0]}`), and the rest is about "
            f"{amount(float(np.median(sizes_left)))}, near float16's smallest number"
        )
        evidence = Evidence(
            tag=f"grad/zeros@{names[0]}", step=view.step, value=float(zeros.values[place]), expected=0.0
        )
        severity = Severity.INFO if look.run.progress > 0.9 else Severity.WARNING
        return state, (Sighting(severity, message, where=names, evidence=(evidence,), since=state.since),)
