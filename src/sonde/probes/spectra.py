"""Singular values of weight matrices, computed beside the training on a thread of their own.

When a matrix has its turn, its values are copied at the end of the iteration: on a GPU asynchronously, into pinned
memory that was allocated at the start, and the same stream then writes a serial number behind them. The thread looks at
that word in memory, makes no CUDA call, and does the rest on one core.
"""

import math
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sonde.core import late_rows
from sonde.core.frames import MISSING, Columns, Detail
from sonde.core.records import Float64
from sonde.kernels.layouts import memory_order
from sonde.probes.parameters import Watched
from sonde.probes.probe import Reading, Row, Stamp

MOST_ELEMENTS = 1 << 26  # 256 MiB of float32 in pinned memory; its product with a vector takes some 25 ms
MOST_VALUES = 1024  # a core needs 0.08 s for the eigenvalues of a Gram matrix of this size; the time goes with the cube

# Rounding moved the smallest eigenvalue of Gram matrices by up to 8 ε of the largest, on matrices that lack a rank, 16
# to 1024 wide. What is not well above cannot be told from 0.
_NOISE = 32 * float(np.finfo(np.float64).eps)
_BLOCK_ELEMENTS = 1 << 20
_NUM_ITERATIONS = 32
_MATRICES_A_TABLE = 64  # a row has room for every matrix of its table
_POLL_S = 0.001
_JOIN_S = 2.0

_DTYPES = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})


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
    if tall.shape[1] <= MOST_VALUES:
        return _from_gram(tall, between)
    return _from_largest(tall, between)


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
    squares: Float64 = torch.linalg.eigvalsh(gram).numpy()
    squares[squares <= _NOISE * squares[-1]] = 0.0
    values = np.sqrt(squares)
    largest, smallest, nuclear = float(values[-1]), float(values[0]), float(values.sum())
    if largest == 0:
        return Spectrum(0.0, 0.0, float(MISSING), float(MISSING), 0.0, float(MISSING))
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
    missing = float(MISSING)
    total = 0.0
    for block in _blocks(tall):
        total += float(block.square().sum())
        between()
    if not math.isfinite(total):
        return Spectrum(math.nan, missing, missing, math.nan, missing, missing)
    largest = _largest(tall if tall.dtype is torch.float64 else tall.float(), between)
    stable_rank = total / largest**2 if largest > 0 else missing
    return Spectrum(largest, missing, missing, stable_rank, missing, missing)


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


class _Slot(NamedTuple):
    """A matrix that is measured."""

    watched: Watched
    columns: Columns


class _Job(NamedTuple):
    """A copy on its way: what its bytes are."""

    columns: Columns
    dtype: torch.dtype
    shape: tuple[int, ...]
    order: Sequence[int]
    """The dimensions as they lie in memory, from the slowest to the fastest."""
    serial: int
    stamp: Stamp

    def matrix(self, memory: Tensor) -> Tensor:
        """Flattened to (out, in·k·k)."""
        values = memory[: math.prod(self.shape) * self.dtype.itemsize].view(self.dtype)
        lying = values.view([self.shape[i] for i in self.order])
        return lying.permute(np.argsort(self.order).tolist()).reshape(self.shape[0], -1)


class Spectra:
    """A probe with a slot for every matrix: parameters of two or more dimensions, convolutions as (out, in·k·k).

    One matrix is worked on at a time. Those whose turn finds it busy wait in line, each once, and are copied in later
    iterations. What was found is handed out by the first `collect` after the thread is done; its row bears the stamp of
    the iteration in which the matrix was copied. The thread takes some 10 ms of one core for 256 × 1024, 150 ms for
    768 × 3072, 1.4 s for 50257 × 768, and longer where no core is free. `collect` may be called in any iteration, armed
    or not; the more often, the sooner a matrix is known. What is under way when the probe is closed is lost.

    Not measured: matrices of more than 2²⁶ values, sharded ones, those of other types than float16, bfloat16, float32
    and float64, and those on another device than the first.

    Args:
        parameters: Those that are trained now; asked again at each turn. One that came later, or changed its type, and
            is larger than all there were at the start is not measured: the memory for copies is allocated once.
    """

    def __init__(self, parameters: Callable[[], Sequence[Watched]]) -> None:
        self._parameters = parameters
        self._device: torch.device | None = None
        self._num_bytes = 0
        self._columns: dict[str, Columns] = {}
        self._not_measured: dict[str, str] = {}
        self._waiting: dict[int, None] = {}
        self._closed = False
        self._slots: list[_Slot] = []
        self._ids: list[int] = []
        """Of the parameters when they were last looked at."""
        self._bench: _Bench | None = None
        measurable = [(w, _trouble(w.parameter)) for w in parameters()]
        first = next((w.parameter for w, trouble in measurable if trouble is None), None)
        if first is not None:
            self._device = first.device
            self._num_bytes = max(
                _num_bytes(w.parameter)
                for w, trouble in measurable
                if trouble is None and w.parameter.device == first.device
            )
            self._bench = _Bench(first.device, self._num_bytes)
        self._look()

    @property
    def yields(self) -> Mapping[str, str]:
        """The tags."""
        return {
            "spectrum/largest@": "largest singular value of a weight matrix, its spectral norm",
            "spectrum/smallest@": "smallest singular value; 0 where it is below 1e-7 of the largest",
            "spectrum/condition@": "condition number: largest over smallest singular value",
            "spectrum/stable_rank@": "squared Frobenius norm over squared spectral norm",
            "spectrum/nuclear@": "nuclear norm: sum of the singular values",
            "spectrum/effective_rank@": "exponential of the entropy of the singular values' shares of their sum",
        }

    @property
    def num_slots(self) -> int:
        """The matrices there were at the last turn."""
        return len(self._slots)

    def arm(self, slots: Sequence[int]) -> None:
        """Have these matrices wait for their copy."""
        if not self._closed:
            self._look()
            self._waiting.update(dict.fromkeys(slots))

    def collect(self) -> Sequence[Reading]:
        """What was found since the last time; the next matrix that waits is copied.

        Raises:
            Exception: what went wrong on the thread; it goes on with the next matrix.
        """
        if self._closed or self._bench is None or _capturing(self._device):
            return ()
        readings: list[Reading] = []
        found = self._bench.take()
        if isinstance(found, Row):
            readings.append(Reading((), _Report([found])))
        if not self._bench.is_busy and self._waiting:
            slot = next(iter(self._waiting))
            del self._waiting[slot]
            if slot < len(self._slots) and self._is_measurable(self._slots[slot].watched):
                watched, columns = self._slots[slot]
                if _num_bytes(watched.parameter) <= self._num_bytes:  # it may have changed its type since
                    stamp = Stamp()
                    readings.append(Reading((), _Report([]), stamp))
                    self._bench.begin(watched.parameter, columns, stamp)
        if isinstance(found, Exception):
            raise found
        return readings

    def not_measured(self) -> Mapping[str, str]:
        """Matrices that are left out, or measured in part, each with its reason."""
        return dict(self._not_measured)

    def close(self) -> None:
        """End the thread, waiting at most two seconds, and let go of everything."""
        self._closed = True
        self._slots, self._parameters = [], list
        self._waiting.clear()
        if self._bench is not None:
            self._bench.close()
            self._bench = None

    def _look(self) -> None:
        """Notice parameters that were added or are gone."""
        parameters = self._parameters()
        ids = [id(watched.parameter) for watched in parameters]
        if ids == self._ids:
            return
        self._ids = ids
        self._slots = []
        for watched in parameters:
            name, parameter = watched
            if parameter.dim() < 2 or not self._is_measurable(watched):
                continue
            if min(len(parameter), parameter.numel() // len(parameter)) > MOST_VALUES:
                for quantity in ("smallest", "condition", "nuclear", "effective_rank"):
                    self._not_measured[f"spectrum/{quantity}@{name}"] = (
                        f"both dimensions exceed {MOST_VALUES}: only its largest singular value is computed"
                    )
            if name not in self._columns:
                tags = [f"spectrum/{quantity}@{name}" for quantity in Spectrum._fields]
                table = f"{late_rows.TABLES}-{len(self._columns) // _MATRICES_A_TABLE}"
                self._columns[name] = Columns(table, tags, Detail.LAYER)
            self._slots.append(_Slot(watched, self._columns[name]))

    def _is_measurable(self, watched: Watched) -> bool:
        """Whether a matrix can be measured as it is now: it may have changed its type or device."""
        reason = _trouble(watched.parameter)
        if reason is None and watched.parameter.device != self._device:
            reason = f"it is on {watched.parameter.device}, the others were on {self._device}"
        if reason is None and _num_bytes(watched.parameter) > self._num_bytes:
            reason = "it is larger than all that there were at the start"
        if reason is not None:
            self._not_measured[f"spectrum/*@{watched.name}"] = reason
        return reason is None


class _Report:
    """Hands out rows that are there already."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    def __call__(self, numbers: Float64) -> Iterable[Row]:
        return self._rows


class _Stopped(Exception):
    """The thread is to end."""


class _Bench:
    """One copy of a matrix and the thread that works on it."""

    def __init__(self, device: torch.device, num_bytes: int) -> None:
        on_gpu = device.type == "cuda"
        self._device = device
        self._memory = torch.empty(num_bytes, dtype=torch.uint8, device="cpu", pin_memory=on_gpu)
        self._word = torch.zeros((), dtype=torch.int64, device="cpu", pin_memory=on_gpu)
        self._counter = torch.zeros((), dtype=torch.int64, device=device)
        self._arrived: npt.NDArray[np.int64] = self._word.numpy()
        self._serial = 0
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._done: Row | Exception | None = None
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self.is_busy = False
        """From `begin` until its result was taken."""

    @torch.no_grad()
    def begin(self, parameter: Tensor, columns: Columns, stamp: Stamp) -> None:
        """Start the copy of a matrix; the thread waits for it."""
        lying = memory_order(parameter)
        order = list(range(parameter.dim())) if lying is None else lying
        source = parameter.detach().permute(order)
        room = self._memory[: _num_bytes(parameter)].view(parameter.dtype).view(source.shape)
        if self._device.type == "cuda":
            with torch.cuda.device(self._device):
                self._copy(room, source)
        else:
            self._copy(room, source)
        self.is_busy = True
        self._serial += 1
        self._jobs.put(_Job(columns, parameter.dtype, tuple(parameter.shape), order, self._serial, stamp))
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="sonde-spectra", daemon=True)
            self._thread.start()

    def _copy(self, room: Tensor, source: Tensor) -> None:
        room.copy_(source, non_blocking=True)
        self._counter.add_(1)
        self._word.copy_(self._counter, non_blocking=True)

    def take(self) -> Row | Exception | None:
        """The result, or what went wrong; None where there is none yet."""
        done = self._done
        if done is not None:
            self._done, self.is_busy = None, False
        return done

    def close(self) -> None:
        """End the thread; it is left behind, as a daemon, where it does not end in time."""
        self._closing.set()
        self._jobs.put(None)
        if self._thread is not None:
            self._thread.join(_JOIN_S)

    def _work(self) -> None:
        _use_one_core()
        while (job := self._jobs.get()) is not None:
            try:
                while self._arrived[()] != job.serial:
                    if self._closing.wait(_POLL_S):
                        return
                values = spectrum(job.matrix(self._memory), self._go_on)
                self._done = Row(job.columns, np.array(values, np.float64), job.stamp)
            except _Stopped:
                return
            except Exception as error:  # the training thread hands it to whoever collects
                self._done = error

    def _go_on(self) -> None:
        if self._closing.is_set():
            raise _Stopped


def _use_one_core() -> None:
    """Have this thread, and no other, compute without help.

    Threads that wait for each other beside a training that needs all cores take a hundred times as long, and so does
    the training (numpy's own cannot be restrained for a single thread). What torch is told here holds for the calling
    thread, but also for those that are yet to compute for the first time; so another one takes that back.
    """
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    other = threading.Thread(target=torch.set_num_threads, args=(num_threads,), daemon=True)
    other.start()
    other.join()


def _trouble(parameter: Tensor) -> str | None:
    """Why a parameter cannot be measured, None where it can."""
    if parameter.dim() < 2:
        return "it is no matrix"
    if hasattr(parameter, "__tensor_flatten__"):  # DTensor and the like: its values lie inside of other tensors
        return f"it is a {type(parameter).__name__}: no process has the whole matrix in plain memory"
    if parameter.dtype not in _DTYPES:
        return f"singular values of {parameter.dtype} are not computed"
    if parameter.device.type not in ("cpu", "cuda"):
        return f"copies from {parameter.device.type} would have to be waited for"
    if parameter.numel() == 0:
        return "it has no values"
    if parameter.numel() > MOST_ELEMENTS:
        return f"it has {parameter.numel():,} values, more than {MOST_ELEMENTS:,}"
    return None


def _num_bytes(parameter: Tensor) -> int:
    return parameter.numel() * parameter.element_size()


def _capturing(device: torch.device | None) -> bool:
    return device is not None and device.type == "cuda" and torch.cuda.is_current_stream_capturing()
