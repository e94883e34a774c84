"""Which data an evaluation is on, the training's or others: told from the words of the script and from its memory."""

import itertools
import linecache
import re
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType
from typing import Any, Literal, NamedTuple, final

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from sonde.integrations.finding import user_frames

Data = Literal["training", "other", "unknown", "unclear"]
"""`unclear` is where words of both kinds stand side by side, so that several sets may be mixed."""

_MOST_CALLERS, _MOST_LINES = 8, 24
_SPLITS = ("train", "training", "val", "valid", "validation", "dev", "eval", "test")
_TRAINING = frozenset(("train", "training", "trainset", "trainloader", "traindata", "trn", "tr"))
_VALIDATION = ("val", "valid", "validation", "valset", "valloader", "validloader", "va", "dev", "devset", "holdout")
_OTHER = frozenset((*_VALIDATION, "heldout", "test", "testing", "testset", "testloader", "testdata", "tst", "te"))
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_reference: Any = StorageWeakRef
_STRIDED = torch.strided
_MOST_HELD_BYTES = 1 << 20
_REHEARSAL = "_run_sanity_check"  # Lightning tries the validation on a few batches before it trains


class Place(NamedTuple):
    """What tells evaluations apart."""

    what: Any
    is_known: bool
    """Whether anything says which data it is on."""


def words(text: str) -> Data:
    """What names say about data.

    Example:
        >>> words("loss = criterion(model(X_train), y_train)"), words("evaluate(Xtr)"), words("test(model, loader)")
        ('training', 'training', 'other')
        >>> words("evaluate(model, batches)"), words("losses = evaluate(train), evaluate(val)")
        ('unknown', 'unclear')
    """
    found = {word.lower() for word in _WORD.findall(text)}
    found |= {word[1:] for word in found if word[0] in "xy"}  # `Xtr`
    is_training, is_other = bool(found & _TRAINING), bool(found & _OTHER)
    if is_training and is_other:
        return "unclear"
    return "training" if is_training else "other" if is_other else "unknown"


def names_of(thing: Any) -> str:
    """What the code that is being run calls an object, all names of it."""
    frames = itertools.islice(user_frames(), _MOST_CALLERS)
    held = (
        items for frame in frames for items in (frame.f_locals, getattr(frame.f_locals.get("self"), "__dict__", {}))
    )
    return " ".join(name for items in held for name, value in list(items.items()) if value is thing)


def is_rehearsal() -> bool:
    """Whether a trainer only tries out whether the validation works."""
    return any(frame.f_code.co_name == _REHEARSAL for frame in user_frames())


@final
class Speech:
    """What the script says about the data at the place where it is: in variables (`split = "val"`), else in the line.

    What stands there while it trains says nothing about an evaluation, as `mode = "train"`, or the line `train(model)`.
    """

    def __init__(self) -> None:
        self._lines: set[tuple[CodeType, int]] = set()
        self._variables: set[tuple[CodeType, str, str]] = set()

    def training(self) -> None:
        """Remember where the training is."""
        for frame in itertools.islice(user_frames(), _MOST_LINES):
            self._lines.add((frame.f_code, frame.f_lineno))
            self._variables.update((frame.f_code, name, word) for name, word in _split_words(frame))

    def place(self) -> tuple[Data, Place]:
        """Which data an evaluation here is on, and what tells it from others."""
        frames = list(itertools.islice(user_frames(), _MOST_LINES))
        for frame in frames[:_MOST_CALLERS]:
            for name, word in _split_words(frame):
                if (frame.f_code, name, word) not in self._variables:
                    return ("training" if word in _TRAINING else "other"), Place(word, is_known=True)
        lines = tuple((f.f_code, f.f_lineno) for f in frames if "site-packages" not in f.f_code.co_filename)
        told = self._told(lines)
        return told, Place(lines, is_known=told == "other")

    def _told(self, lines: Iterable[tuple[CodeType, int]]) -> Data:
        for code, number in lines:
            if (code, number) not in self._lines:
                text = linecache.getline(code.co_filename, number).partition("#")[0]
                if (found := words(text)) != "unknown":
                    return found
        return "unknown"


def _split_words(frame: Any) -> Iterator[tuple[str, str]]:
    if frame.f_code.co_name != "<module>":  # variables of the whole script live too long to say what is being done now
        for name, value in list(frame.f_locals.items()):
            if type(value) is str and value in _SPLITS:
                yield name, value


class _Memory(NamedTuple):
    """Where a tensor lies."""

    storage: Any
    """A reference that does not keep it."""
    offset: int
    shape: Sequence[int]
    strides: Sequence[int]


@final
class Memory:
    """The memory that the training read its targets from last, as long as it is that."""

    def __init__(self) -> None:
        self._held: list[Tensor] = []
        """Of small ones, and parts of small ones, the tensors themselves, which is quickly done; …"""
        self._places: list[_Memory] = []
        """… of others, whose memory is not to be kept, where they lay."""

    def training(self, tensors: Iterable[Any]) -> None:
        """It computed a loss from these. Called at every step: what can wait is done later."""
        if self._places:
            self._places = []
        self._held = held = []
        is_small = True
        for t in tensors:
            if type(t) is Tensor and not t.requires_grad and t.layout is _STRIDED:
                held.append(t)
                base = t._base
                is_small = is_small and (t if base is None else base).nbytes <= _MOST_HELD_BYTES
        if not is_small:
            self._places = self._read()
            self._held = []

    def remember(self, tensors: Iterable[Any]) -> None:
        """The same, and no tensor is kept."""
        self.training(tensors)
        self._places, self._held = self._read(), []

    def _read(self) -> list[_Memory]:
        return self._places + [
            _Memory(_reference(t.untyped_storage()), int(t.storage_offset()), t.shape, t.stride()) for t in self._held
        ]

    def has(self, tensors: Iterable[Any]) -> bool:
        """Whether any of these lies there.

        Example:
            >>> memory, both = Memory(), torch.arange(10)
            >>> memory.training([both[:6]])
            >>> memory.has([both[:3]]), memory.has([both[6:]]), memory.has([both.clone()])
            (True, False, False)
        """
        others = Memory()
        others.training(tensors)
        return any(_overlap(one, other) for one in self._read() for other in others._read())


def _overlap(one: _Memory, other: _Memory) -> bool:
    if one[0].cdata != other[0].cdata:  # no other storage gets its address while there is a reference to it
        return False
    (start, end), (first, last) = _extent(one), _extent(other)
    return start < last and first < end


def _extent(memory: _Memory) -> tuple[int, int]:
    """Where in its storage a tensor lies, in values."""
    _, offset, shape, strides = memory
    if 0 in shape:
        return 0, 0
    return offset, offset + 1 + sum((num - 1) * stride for num, stride in zip(shape, strides, strict=True))
