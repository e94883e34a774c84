"""What the model is given: the batch that goes in, and its targets where they are known."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from sonde.core.frames import Columns
from sonde.core.records import Float64
from sonde.probes.events import Events
from sonde.probes.inputs import CLASSES, EXTREMES, WHOLE, Statistic
from sonde.probes.probe import Reading, Row
from sonde.probes.roots import Roots
from sonde.probes.stopwatch import Stopwatch

_YIELDS = {
    "batch/nonfinite@": "NaN and infinite values of a floating-point input",
    "batch/mean@": "mean of its finite values",
    "batch/std@": "standard deviation of its finite values",
    "batch/absmax@": "largest magnitude of its finite values",
    "batch/min@": "smallest value of an integer input",
    "batch/max@": "largest value of an integer input",
    "batch/size": "first dimension of the first input of the first forward: the micro-batch",
    "batch/sequence": "second dimension of that input, where it is of integers and 2-D, or of floats and 3-D",
    "batch/samples": "first dimensions of the first input, summed over the forwards of the iteration",
    "batch/tokens": "values of the first input where it is of integers and 2-D, summed likewise",
    "label/num_distinct": "classes that occur among the targets",
    "label/share_max": "share of the commonest class among the targets",
    "label/entropy": "entropy of the classes of the targets, in nats",
    "label/nonfinite": "NaN and infinite values of floating-point targets",
    "label/mean": "mean of the finite values of floating-point targets",
    "label/std": "their standard deviation",
    "label/absmax": "their largest magnitude",
}
_MOST_INPUTS = 16
_MOST_FORWARDS = 8  # of one model in an iteration; a model that is called for every token has a thousand
# Where a compiled function calls the model, nobody is told of it: it is looked for now and then only.
_REST = 99
_MOST_DEPTH = 8  # of containers in containers, one of which may contain itself
_MOST_COLUMNS = 64  # inputs may come under other names at every step


class _Finding(NamedTuple):
    """Numbers, and what they are."""

    numbers: Tensor
    values: Callable[[Float64], dict[str, float]]
    tag: str
    """Its first `{}` stands for the name of a value."""


@final
class Batches:
    """Measures what the models are given in the grad-enabled forwards of an iteration, and the targets.

    It is cheap enough for every step, so that a bad batch is named when it comes: a pass over each input and some over
    a sample of it (see `WHOLE`). How the features of an input differ is `Features`'.

    Inputs are the tensors among the arguments, through tuples, lists and mappings, the first 16; the part behind `@`
    is their place, such as `0`, `input_ids` or `0.image`, with the model's name before it where it has one. Scalars,
    empty tensors, masks of booleans, sharded and other special tensors are left out, and so is everything while a CUDA
    graph is being captured. What was computed with gradients on the way here is no data either (what a generator made),
    nor is the state of a recurrent model that is passed from call to call (see `is_state`).

    Of several forwards in an iteration (accumulation) the first eight are measured: non-finite values are added up,
    extremes are those of all, means and deviations those of the first. After an iteration in which no forward was seen
    inputs are left alone for 99.

    Args:
        models: By name.
    """

    yields = _YIELDS
    """Sizes have the model's name behind `@` where it has one."""

    def __init__(self, models: Mapping[str, nn.Module], *, clock: Stopwatch | None = None) -> None:
        self._roots = Roots(models, clock)
        self._armed = self._attached = False
        self._findings: list[_Finding] = []
        self._counts: dict[str, dict[str, float]] = {}
        self._num_forwards: dict[str, int] = {}
        self._others: list[tuple[_Finding, torch.Size]] = []
        """Of the inputs of the present forward but the first, with their shapes."""
        self._num_targets = 0
        self._rest = 0
        self._columns: dict[tuple[str, ...], Columns] = {}

    @property
    def num_slots(self) -> int:
        """All is measured together."""
        return 1 if len(self._roots) else 0

    def arm(self, slots: Sequence[int]) -> None:
        """Look at what the models are given in this iteration."""
        if slots:
            self._armed, self._num_targets = True, 0
            self._findings, self._counts, self._num_forwards = [], {}, {}
            self._attached = self._rest == 0
            self._rest = max(self._rest - 1, 0)
            if self._attached:
                self._roots.attach(self._given, self._gave)

    def listen(self, events: Events) -> None:
        """Be told of batches, for their targets."""
        events.batch.append(lambda _batch, targets: self.labels(targets))

    def labels(self, target: Any) -> None:
        """Look at the targets of this iteration; does nothing where it is not armed.

        Of what is given the first tensor counts. Integers are classes: 0 to 1,023 are counted, negative ones (what a
        loss ignores) left out; with more classes than that the values are `MISSING`; of several calls in an iteration
        the first counts. Of floating-point targets the mean, standard deviation, largest magnitude and number of
        non-finite values are taken, of several calls as of several forwards.
        """
        if not self._armed or self._num_targets >= _MOST_FORWARDS:
            return
        tensor = next((tensor for _, tensor in _tensors(target) if _is_readable(tensor)), None)
        if tensor is None:
            return
        self._num_targets += 1
        if tensor.is_floating_point():
            self._measure(WHOLE, tensor, "label/{}")
        elif not tensor.is_complex() and self._num_targets == 1:
            self._measure(CLASSES, tensor, "label/{}")

    def collect(self) -> Sequence[Reading]:
        """What was found, in one row."""
        if not self._armed:
            return []
        self._armed = False
        findings, counts = self._findings, self._counts
        self._findings, self._counts = [], {}
        if self._attached:
            self._attached = False
            self._rest = 0 if self._num_forwards else _REST
            self._roots.release()
        if not findings and not any(counts.values()):
            return []
        # What lies on the CPU is read here: it may be the targets of a training on a GPU, whose other numbers come
        # home in a copy from there.
        here = {i: f.numbers.reshape(-1).numpy() for i, f in enumerate(findings) if f.numbers.is_cpu}
        away = [finding.numbers for finding in findings if not finding.numbers.is_cpu]
        ends = np.cumsum([tensor.numel() for tensor in away])

        def report(numbers: Float64) -> Iterable[Row]:
            arrived = iter(np.split(numbers, ends))
            row: dict[str, float] = {}
            for i, finding in enumerate(findings):
                values = finding.values(here[i] if i in here else next(arrived))
                for name, value in values.items():
                    tag = finding.tag.replace("{}", name, 1)
                    row[tag] = _together(name, row[tag], value) if tag in row else value
            for shapes in counts.values():
                row |= shapes
            return [Row(self._table(tuple(row)), np.fromiter(row.values(), np.float64, len(row)))]

        return [Reading(away, report)]

    def not_measured(self) -> Mapping[str, str]:
        """Inputs of models whose forwards cannot be seen."""
        return {
            pattern: reason
            for name, reason in self._roots.trouble().items()
            for pattern in ((f"batch/*@{name}", f"batch/*@{name}.*") if name else ("batch/*",))
        }

    def close(self) -> None:
        """Let go of the models and of what was found."""
        self._armed = self._attached = False
        self._findings, self._counts, self._others = [], {}, []
        self._roots.close()

    def _given(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        samples, tokens = counts_of((args, kwargs))
        at = f"@{name}" if name else ""
        num = self._num_forwards[name] = self._num_forwards.get(name, 0) + 1
        counts = self._counts.get(name)
        if counts is not None:  # a further micro-batch
            for quantity, count in (("samples", samples), ("tokens", tokens)):
                if count is not None and f"batch/{quantity}{at}" in counts:
                    counts[f"batch/{quantity}{at}"] += count
        else:
            shapes = {"size": samples, "sequence": _sequence((args, kwargs)), "samples": samples, "tokens": tokens}
            self._counts[name] = {f"batch/{key}{at}": float(n) for key, n in shapes.items() if n is not None}
        self._others = []
        if num <= _MOST_FORWARDS:
            for i, (place, tensor) in enumerate(inputs_of(args, kwargs)):
                statistic = WHOLE if tensor.is_floating_point() else EXTREMES
                self._measure(statistic, tensor, f"batch/{{}}@{'.'.join(filter(None, (name, place)))}")
                if i:
                    self._others.append((self._findings[-1], tensor.shape))

    def _gave(self, _name: str, output: Any) -> None:
        others, self._others = self._others, []
        states = [finding for finding, shape in others if is_state(shape, output)]
        if states:
            self._findings = [finding for finding in self._findings if not any(finding is state for state in states)]

    def _measure(self, statistic: Statistic, tensor: Tensor, tag: str) -> None:
        with torch.no_grad():
            # A subclass of tensors may give operations another meaning.
            numbers = statistic.take(tensor.detach().as_subclass(Tensor))
        self._findings.append(_Finding(numbers, statistic.values, tag))

    def _table(self, tags: tuple[str, ...]) -> Columns:
        if tags not in self._columns:
            if len(self._columns) >= _MOST_COLUMNS:
                self._columns.clear()
            self._columns[tags] = Columns("batches", tags)
        return self._columns[tags]


def inputs_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    """The tensors among a forward's arguments whose values can be measured, each with its place.

    Example:
        >>> [place for place, _ in inputs_of(({"image": torch.zeros(2, 3)}, 7), {"ids": torch.ones(2)})]
        ['0.image', 'ids']
    """
    for place, tensor in itertools.islice(itertools.chain(_tensors(args), _tensors(kwargs)), _MOST_INPUTS):
        is_given = tensor.grad_fn is None
        if is_given and _is_readable(tensor) and tensor.dtype is not torch.bool and not tensor.is_complex():
            yield place, tensor


def is_state(shape: Sequence[int], output: Any) -> bool:
    """Whether an input of this shape, not the first one, is what a recurrent model remembers from call to call.

    It is where the output has another tensor of the same shape behind its first one: `output, hidden = rnn(x, hidden)`.

    Example:
        >>> hidden = torch.zeros(2, 5)
        >>> is_state(hidden.shape, (torch.zeros(3, 5), hidden)), is_state(hidden.shape, hidden)
        (True, False)
    """
    behind = itertools.islice(_tensors(output), 1, _MOST_INPUTS)
    return any(tensor.shape == shape for _, tensor in behind)


def counts_of(batch: Any) -> tuple[int | None, int | None]:
    """How many samples and tokens a batch has, as far as its shapes tell; no value is looked at.

    The first tensor counts that has a dimension, through tuples, lists and mappings: samples are its first dimension,
    tokens all its values where it is of integers and 2-D. None where there is no such tensor.

    Example:
        >>> counts_of((torch.zeros(8, 3, 32, 32), torch.zeros(8)))
        (8, None)
        >>> counts_of({"input_ids": torch.zeros(4, 128, dtype=torch.int64)})
        (4, 512)
        >>> counts_of("a batch of another kind")
        (None, None)
    """
    first = _first(batch)
    if first is None:
        return None, None
    is_text = first.dim() == 2 and _is_integer(first)
    return int(first.shape[0]), int(first.numel()) if is_text else None


def shapes_of(batch: Any) -> dict[str, list[int]]:
    """The shapes of the tensors of a batch, the first 16, by their places; no value is looked at.

    Example:
        >>> shapes_of({"image": torch.zeros(8, 3, 32, 32), "label": [torch.zeros(8)]})
        {'image': [8, 3, 32, 32], 'label.0': [8]}
    """
    tensors = itertools.islice(_tensors(batch), _MOST_INPUTS)
    return {place: list(tensor.shape) for place, tensor in tensors if not tensor.is_nested}


def targets_of(batch: Any) -> Any:
    """The labels of a batch by the two customs there are: the second of a pair, or an entry with such a name."""
    if isinstance(batch, Mapping):
        return next((batch[name] for name in ("labels", "label", "targets", "target", "y") if name in batch), None)
    return batch[1] if isinstance(batch, tuple | list) and len(batch) == 2 else None


def _together(name: str, first: float, other: float) -> float:
    """One statistic of two micro-batches, as well as it can be told."""
    if math.isnan(first) or math.isnan(other):
        return other if math.isnan(first) else first
    if name == "nonfinite":
        return first + other
    if name == "min":
        return min(first, other)
    return max(first, other) if name in ("absmax", "max") else first


def _sequence(batch: Any) -> int | None:
    first = _first(batch)
    if first is None:
        return None
    has_one = (first.dim() == 2 and _is_integer(first)) or (first.dim() == 3 and first.is_floating_point())
    return int(first.shape[1]) if has_one else None


def _first(batch: Any) -> Tensor | None:
    quick = batch[0] if type(batch) in (list, tuple) and batch else batch
    if type(quick) is Tensor and quick.dim() > 0 and not quick.is_nested:  # asked at every step
        return quick
    tensors = (tensor for _, tensor in _tensors(batch))
    return next((t for t in tensors if t.dim() > 0 and not t.is_nested), None)


def _is_integer(tensor: Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool)


def _tensors(thing: Any, place: str = "", depth: int = 0) -> Iterator[tuple[str, Tensor]]:
    """The tensors inside, each with its place."""
    if isinstance(thing, Tensor):
        yield place, thing
        return
    items: Iterable[tuple[Any, Any]] = ()
    if depth < _MOST_DEPTH and isinstance(thing, Mapping):
        items = thing.items()
    elif depth < _MOST_DEPTH and isinstance(thing, list | tuple):
        items = enumerate(thing)
    for key, value in items:
        word = str(key) if str(key).isprintable() else ascii(key)
        yield from _tensors(value, f"{place}.{word}" if place else word, depth + 1)


def _is_readable(tensor: Tensor) -> bool:
    """Whether it is a plain tensor with values that can be looked at."""
    anything: Any = tensor
    return (
        tensor.layout is torch.strided
        and tensor.dim() > 0
        and tensor.numel() > 0
        and not tensor.is_meta
        and not tensor.is_quantized
        and not is_traceable_wrapper_subclass(anything)
        # Inside a transformation of torch.func there are no values yet.
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        # What is launched now would become part of the user's graph.
        and not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())
    )
