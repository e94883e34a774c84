"""Singular values of weight matrices, computed beside the training on a thread of their own.

When a matrix has its turn, its values are copied at the end of the iteration: on a GPU asynchronously, into pinned
memory that was allocated at the start, and the same stream then writes a serial number behind them. The thread looks at
that word in memory, makes no CUDA call, and does the rest on one core.
"""

import contextlib
import math
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sonde.core import late_rows
from sonde.core.frames import Columns, Detail
from sonde.kernels.layouts import memory_order
from sonde.probes.parameters import Watched
from sonde.probes.probe import Reading, Row, Stamp, known
from sonde.probes.spectrum import MOST_VALUES, spectrum

MOST_ELEMENTS = 1 << 26  # 256 MiB of float32 in pinned memory; its product with a vector takes some 25 ms

_MATRICES_A_TABLE = 64  # a row has room for every matrix of its table
_POLL_S = 0.001
_JOIN_S = 2.0

_DTYPES = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})


@final
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

    # In the order of `Spectrum`.
    yields: Mapping[str, str] = {
        "spectrum/largest@": "largest singular value of a weight matrix, its spectral norm",
        "spectrum/smallest@": "smallest singular value; 0 where it is below 1e-7 of the largest",
        "spectrum/condition@": "condition number: largest over smallest singular value",
        "spectrum/stable_rank@": "squared Frobenius norm over squared spectral norm",
        "spectrum/nuclear@": "nuclear norm: sum of the singular values",
        "spectrum/effective_rank@": "exponential of the entropy of the singular values' shares of their sum",
    }

    def __init__(self, parameters: Callable[[], Sequence[Watched]]) -> None:
        self._parameters = parameters
        self._columns: dict[str, Columns] = {}
        self._not_measured: dict[str, str] = {}
        self._waiting: dict[int, None] = {}
        self._slots: list[Watched] = []
        self._ids: list[int] = []
        """Of the parameters when they were last looked at."""
        self._bench: _Bench | None = None
        measurable = [watched.parameter for watched in parameters() if _trouble(watched.parameter) is None]
        if measurable:
            device = measurable[0].device
            self._bench = _Bench(device, max(p.nbytes for p in measurable if p.device == device))
        self._look()

    @property
    def num_slots(self) -> int:
        """The matrices there were at the last turn."""
        return len(self._slots)

    def arm(self, slots: Sequence[int]) -> None:
        """Have these matrices wait for their copy."""
        self._look()
        self._waiting.update(dict.fromkeys(slots))

    def collect(self) -> Sequence[Reading]:
        """What was found since the last time; the next matrix that waits is copied.

        Raises:
            Exception: what went wrong on the thread; it goes on with the next matrix.
        """
        if self._bench is None or self._bench.is_captured():
            return ()
        found = self._bench.take()
        readings = [known(found)] if isinstance(found, Row) else []
        if not self._bench.is_busy and self._waiting:
            slot = next(iter(self._waiting))
            del self._waiting[slot]
            if slot < len(self._slots) and self._is_measurable(self._slots[slot]):
                name, parameter = self._slots[slot]
                stamp = Stamp()
                readings.append(known(stamp=stamp))
                self._bench.begin(parameter, self._columns[name], stamp)
        if isinstance(found, Exception):
            raise found
        return readings

    def not_measured(self) -> Mapping[str, str]:
        """Matrices that are left out, or measured in part, each with its reason."""
        return dict(self._not_measured)

    def close(self) -> None:
        """End the thread, waiting at most two seconds, and let go of everything."""
        self._parameters = list
        self._look()
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
        self._slots = [
            watched for watched in parameters if watched.parameter.dim() > 1 and self._is_measurable(watched)
        ]
        for name, parameter in self._slots:
            if min(len(parameter), parameter.numel() // len(parameter)) > MOST_VALUES:
                reason = f"both dimensions exceed {MOST_VALUES}: only its largest singular value is computed"
                for quantity in ("smallest", "condition", "nuclear", "effective_rank"):
                    self._not_measured[f"spectrum/{quantity}@{name}"] = reason
            if name not in self._columns:
                table = f"{late_rows.TABLES}-{len(self._columns) // _MATRICES_A_TABLE}"
                self._columns[name] = Columns(table, [tag + name for tag in self.yields], Detail.LAYER)

    def _is_measurable(self, watched: Watched) -> bool:
        """Whether a matrix can be measured as it is now: it may have changed its type or device."""
        name, parameter = watched
        reason = _trouble(parameter) or (self._bench.trouble(parameter) if self._bench else "it came after the start")
        if reason is not None:
            self._not_measured[f"spectrum/*@{name}"] = reason
        return reason is None


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


class _Stopped(Exception):
    """The thread is to end."""


@final
class _Bench:
    """One copy of a matrix and the thread that works on it."""

    def __init__(self, device: torch.device, num_bytes: int) -> None:
        self._device, self._on_gpu = device, device.type == "cuda"
        self._memory = torch.empty(num_bytes, dtype=torch.uint8, device="cpu", pin_memory=self._on_gpu)
        self._word = torch.zeros((), dtype=torch.int64, device="cpu", pin_memory=self._on_gpu)
        self._counter = torch.zeros((), dtype=torch.int64, device=device)
        self._arrived: npt.NDArray[np.int64] = self._word.numpy()
        self._serial = 0
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._done: Row | Exception | None = None
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self.is_busy = False
        """From `begin` until its result was taken."""

    def is_captured(self) -> bool:
        """Whether a CUDA graph is being captured, of which a copy would become a part."""
        return self._on_gpu and torch.cuda.is_current_stream_capturing()

    def trouble(self, parameter: Tensor) -> str | None:
        """Why there is no room for a copy of a matrix, None where there is."""
        if parameter.device != self._device:
            return f"it is on {parameter.device}, the others were on {self._device}"
        return "it is larger than all that there were at the start" if parameter.nbytes > len(self._memory) else None

    @torch.no_grad()
    def begin(self, parameter: Tensor, columns: Columns, stamp: Stamp) -> None:
        """Start the copy of a matrix; the thread waits for it."""
        lying = memory_order(parameter)
        order = list(range(parameter.dim())) if lying is None else lying
        source = parameter.detach().permute(order)
        room = self._memory[: parameter.nbytes].view(parameter.dtype).view(source.shape)
        with torch.cuda.device(self._device) if self._on_gpu else contextlib.nullcontext():
            room.copy_(source, non_blocking=True)
            self._counter.add_(1)
            self._word.copy_(self._counter, non_blocking=True)
        self.is_busy = True
        self._serial += 1
        self._jobs.put(_Job(columns, parameter.dtype, tuple(parameter.shape), order, self._serial, stamp))
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="sonde-spectra", daemon=True)
            self._thread.start()

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
