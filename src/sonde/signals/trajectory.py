"""In how many directions the gradient has pointed lately."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sonde.core.records import Float64, Int64


class TrajectoryState(NamedTuple):
    """The last directions, oldest first, and how many sketches were taken in all."""

    directions: Float64
    """(window, size), each of length 1; rows of zeros stand first until there are as many."""
    num_values: Int64
    """One number in an array, as in other states."""


class TrajectoryOut(NamedTuple):
    """What the last directions span; NaN until the window is full."""

    dimension: float
    """From 1, where all point the same way or the opposite, to the window, where no two have anything in common."""
    share: float
    """Of the one direction that explains most, from 1/window to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """The effective dimension of the path that the gradient's direction takes.

    With u_i = s_i/‖s_i‖ the last n = `window` sketches, each of length 1, G = (u_i·u_j) their Gram matrix, not centred,
    and λ its eigenvalues, which sum up to n:

        dimension = (Σλ)²/Σλ² = n²/Σ_ij (u_i·u_j)²  (participation ratio),  share = max λ/Σλ.

    Lengths do not count, so one spike does not hide the rest; signs do not either. A sketch that is zero, or has a NaN
    or infinite value, has no direction and changes nothing: the last numbers are given again. All is NaN until the
    window is full: before, the dimension could not exceed the number of sketches, and would seem to grow.

    Of vectors projected at random to k numbers, products u_i·u_j of unrelated ones are not 0 but ±1/√k. That lowers the
    dimension d of the full vectors to about 1/(1/d + (1 − 1/n)/k), or less where products are far from 0: with k = 256
    and n = 64, 64 reads as 51, 10 as 9.6, 2 as 2.0.

    Args:
        window: n, at least 2; larger sees more directions and is later.

    References:
        Gur-Ari, Roberts, Dyer: Gradient descent happens in a tiny subspace. arXiv:1812.04754, 2018.
        Gao et al.: A theory of multineuronal dimensionality, dynamics and measurement. bioRxiv 214262, 2017
        (participation ratio).
        Johnson, Lindenstrauss: Extensions of Lipschitz mappings into a Hilbert space. 1984.

    Example:
        >>> trajectory = Trajectory(window=4)
        >>> state = trajectory.init(3)
        >>> for sketch in ([1.0, 0, 0], [0, 5.0, 0], [-2.0, 0, 0], [0, 1.0, 0]):
        ...     state, out = trajectory.step(state, np.array(sketch))
        >>> out
        TrajectoryOut(dimension=2.0, share=0.5)
    """

    window: int = 64

    def __post_init__(self) -> None:
        if self.window < 2:
            raise ValueError(f"`Trajectory(window=...)` must be at least 2, got {self.window}.")

    def init(self, size: int) -> TrajectoryState:
        """The state before the first of the sketches, which have `size` numbers each."""
        return TrajectoryState(np.zeros((self.window, size)), np.zeros(1, np.int64))

    def step(self, state: TrajectoryState, sketch: Float64) -> tuple[TrajectoryState, TrajectoryOut]:
        """Take a sketch of the whole gradient."""
        wide = np.asarray(sketch, np.float64)
        largest = np.max(np.abs(wide), initial=0.0)
        if 0 < largest < np.inf:
            scaled = wide / largest  # its square is in range
            direction = scaled / np.linalg.norm(scaled)
            state = TrajectoryState(np.vstack([state.directions[1:], direction]), state.num_values + 1)
        if state.num_values[0] < self.window:
            return state, TrajectoryOut(np.nan, np.nan)
        gram = state.directions @ state.directions.T
        dimension = self.window**2 / np.sum(gram**2)
        share = np.linalg.eigvalsh(gram)[-1] / self.window
        return state, TrajectoryOut(float(dimension), float(share))
