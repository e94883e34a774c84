"""Why a series has stopped falling: it has arrived, or it is stuck."""

import enum

import numpy as np

from sonde.core.records import Float64, Int64


class Stall(enum.IntEnum):
    """What a plateau is, as far as first-order measurements can tell."""

    UNKNOWN = 0
    """Too little was measured."""
    CONVERGED = 1
    """Little is left to gain, or the gradient has died down together with the loss."""
    FLAT = 2
    """Small gradients that agree from step to step: a long gentle slope, walked with too small a rate."""
    SADDLE = 3
    """Small gradients that do not agree, and the loss is still high."""
    BOUNCING = 4
    """Gradients as large as ever: the steps leap from wall to wall and cannot settle."""


def stall(
    loss_left: Float64,
    gradient_left: Float64,
    gradient_cosine: Float64,
    *,
    low: float = 0.1,
    small: float = 0.3,
    agreeing: float = 0.5,
) -> Int64:
    """The kind of each plateau; ask only where there is one (`plateau.Plateau`).

    Converged: loss_left < `low`. Otherwise bouncing where gradient_left ≥ `small` or the cosine is below −`agreeing`,
    flat where the cosine is above `agreeing`, and else a saddle. Whether a saddle is one, only the Hessian can say:
    this names the suspicion that is worth its cost. The loss is asked first, because minibatch noise keeps gradients
    large and cosines near 0 even at a minimum. NaN in what a decision needs makes it UNKNOWN.

    Args:
        loss_left: The share of the reachable descent that is still to come, (L − L∞)/(L₀ − L∞), with L∞ from
            `learning_curve` or known (0 where nothing better is).
        gradient_left: Gradient norm now over its norm at the start.
        gradient_cosine: Mean cos(g_t, g_{t−1}) over the plateau.
        low: Below this share of the descent the series has arrived.
        small: Below this the gradient has died down.
        agreeing: Cosine from which successive gradients point the same way.

    Example:
        >>> kinds = stall(np.array([0.02, 0.6, 0.6]), np.array([0.1, 0.05, 1.2]), np.array([0.0, 0.9, -0.8]))
        >>> [Stall(kind).name for kind in kinds]
        ['CONVERGED', 'FLAT', 'BOUNCING']
    """
    with np.errstate(invalid="ignore"):
        return np.select(
            [
                np.isnan(loss_left),
                loss_left < low,
                gradient_cosine < -agreeing,
                np.isnan(gradient_left),
                gradient_left >= small,
                np.isnan(gradient_cosine),
                gradient_cosine > agreeing,
            ],
            [
                np.int64(kind)
                for kind in (
                    Stall.UNKNOWN,
                    Stall.CONVERGED,
                    Stall.BOUNCING,
                    Stall.UNKNOWN,
                    Stall.BOUNCING,
                    Stall.UNKNOWN,
                    Stall.FLAT,
                )
            ],
            default=np.int64(Stall.SADDLE),
        )
