"""The singular values of a matrix, and what they say about it."""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sonde.core.frames import MISSING

MOST_VALUES = 1024  # a core needs 0.08 s for the eigenvalues of a Gram matrix of this size; the time goes with the cube

# Rounding moved the smallest eigenvalue of Gram matrices by up to 8 ε of the largest, on matrices that lack a rank, 16
# to 1024 wide. What is not well above cannot be told from 0.
_NOISE = 32 * float(np.finfo(np.float64).eps)
_BLOCK_ELEMENTS = 1 << 20
_NUM_ITERATIONS = 32
_MISSING = float(MISSING)


class Spectrum(NamedTuple):
    """What the singular values σ₁ ≥ σ₂ ≥ … of a matrix say about it; `MISSING` where it was not computed.

    Attributes:
        largest: σ₁ = ‖W‖₂.
        smallest: The last of min(m, n); what lies below 1e-7·σ₁ reads as 0.
        condition: σ₁ over the smallest; infinite where that reads as 0.
        stable_rank: ‖W‖_F²/‖W‖₂².
        nuclear: Σσ.
        effective_rank: exp(−Σ p·log p), p = σ/Σσ: from 1 to min(m, n), the latter where all σ are equal.
    """

    largest: float
    smallest: float
    condition: float
    stable_rank: float
    nuclear: float
    effective_rank: float


@torch.no_grad()
def spectrum(matrix: Tensor, between: Callable[[], None] = lambda: None) -> Spectrum:
    """The spectrum of a real matrix.

    Where min(m, n) ≤ 1024, singular values are the square roots of the eigenvalues of the smaller Gram matrix, in
    float64. Squaring costs half the digits: with κ = σ₁/σ, σ is right to about 1e-15·κ², that is 0.1% at κ = 1e6. What
    is smaller than 8e-8·σ₁ cannot be told from 0 and reads as 0; the float32 weights themselves are not known better.

    Of a larger matrix only σ₁ and the stable rank are given, by 32 steps of Lanczos bidiagonalisation in float32
    (float64 where it has that) from a fixed random vector: it costs what as many steps of power iteration do and comes
    far closer. σ₁ is then too low, if anything: by less than 1% for matrices of independent values, the hardest case.

    A matrix with a NaN or infinite value has nothing but NaN. Of a zero matrix what divides by σ₁ is `MISSING`.

    Args:
        matrix: (m, n), not empty, in the memory of the CPU.
        between: Called between pieces of work that take some ten milliseconds each.

    References:
        Roy, Vetterli: The effective rank: a measure of effective dimensionality. EUSIPCO 2007.
        Rudelson, Vershynin: Sampling from large matrices: an approach through geometric functional analysis. JACM 54,
        2007 (stable rank, there called numerical).
        Golub, Kahan: Calculating the singular values and pseudo-inverse of a matrix. SIAM J. Numer. Anal. B 2, 1965.
        Kuczyński, Woźniakowski: Estimating the largest eigenvalue by the power and Lanczos algorithms with a random
        start. SIAM J. Matrix Anal. Appl. 13, 1992.

    Example:
        >>> found = spectrum(torch.diag(torch.tensor([4.0, 2.0, 2.0])))
        >>> round(found.condition, 6), round(found.stable_rank, 6), round(found.effective_rank, 6)
        (2.0, 1.5, 2.828427)
    """
    tall = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T
    return (_from_gram if tall.shape[1] <= MOST_VALUES else _from_largest)(tall, between)


def _blocks(tall: Tensor) -> Iterator[Tensor]:
    num_rows = max(_BLOCK_ELEMENTS // tall.shape[1], 1)
    for first in range(0, tall.shape[0], num_rows):
        yield tall[first : first + num_rows].double()


def _from_gram(tall: Tensor, between: Callable[[], None]) -> Spectrum:
    gram = torch.zeros(tall.shape[1], tall.shape[1], dtype=torch.float64, device="cpu")
    for block in _blocks(tall):
        gram.addmm_(block.T, block)
        between()
    if not math.isfinite(float(gram.trace())):
        return Spectrum(*[math.nan] * len(Spectrum._fields))
    squares = torch.linalg.eigvalsh(gram).numpy()
    squares[squares <= _NOISE * squares[-1]] = 0.0
    values = np.sqrt(squares)
    largest, smallest, nuclear = float(values[-1]), float(values[0]), float(values.sum())
    if largest == 0:
        return Spectrum(0.0, 0.0, _MISSING, _MISSING, 0.0, _MISSING)
    share = values[values > 0] / nuclear
    return Spectrum(
        largest=largest,
        smallest=smallest,
        condition=largest / smallest if smallest > 0 else math.inf,
        stable_rank=float(squares.sum() / squares[-1]),
        nuclear=nuclear,
        effective_rank=float(np.exp(-np.sum(share * np.log(share)))),
    )


def _from_largest(tall: Tensor, between: Callable[[], None]) -> Spectrum:
    total = 0.0
    for block in _blocks(tall):
        total += float(block.square().sum())
        between()
    if not math.isfinite(total):
        return Spectrum(math.nan, _MISSING, _MISSING, math.nan, _MISSING, _MISSING)
    largest = _largest(tall if tall.dtype is torch.float64 else tall.float(), between)
    stable_rank = total / largest**2 if largest > 0 else _MISSING
    return Spectrum(largest, _MISSING, _MISSING, stable_rank, _MISSING, _MISSING)


def _largest(tall: Tensor, between: Callable[[], None]) -> float:
    """σ₁ by bidiagonalisation: W·V = U·B with orthonormal U and V, so that ‖B‖₂ is a lower bound."""
    start = np.random.default_rng(0).normal(size=tall.shape[1])
    right = tall.new_zeros(_NUM_ITERATIONS, tall.shape[1])
    right[0] = torch.from_numpy(start / np.linalg.norm(start))
    left = tall.new_zeros(tall.shape[0])
    bidiagonal = np.zeros((_NUM_ITERATIONS, _NUM_ITERATIONS))
    above = 0.0
    for i in range(_NUM_ITERATIONS):
        left = tall @ right[i] - above * left
        between()
        bidiagonal[i, i] = diagonal = _norm(left)
        if diagonal == 0 or i + 1 == _NUM_ITERATIONS:
            break
        left /= diagonal
        following = left @ tall
        between()
        for _ in range(2):  # rounding leaves a part of the earlier vectors, which would be found a second time
            following -= (right[: i + 1] @ following) @ right[: i + 1]
        above = _norm(following)
        if above <= 1e-6 * float(np.max(bidiagonal)):
            break
        bidiagonal[i, i + 1] = above
        right[i + 1] = following / above
    return float(np.linalg.norm(bidiagonal, 2))


def _norm(vector: Tensor) -> float:
    return float(torch.linalg.vector_norm(vector, dtype=torch.float64))
