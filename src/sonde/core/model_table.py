"""What a model is made of: its modules and parameters, as they were when the training began."""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

from sonde.core.errors import FormatError
from sonde.core.json_fields import count, flag, list_of, mapping, member, one_of, text
from sonde.core.parameter_kinds import Kind
from sonde.core.printable import is_printable
from sonde.core.strict_json import Json, dumps
from sonde.core.tags import is_name

Shape = tuple[int, ...]

_MOST_CHARS = 200
_MOST_DIMENSIONS = 64  # as many as torch has
_MOST_VALUES = 1 << 63
_MOST_TIED = 16
# Of the JSON, together three quarters of what a reader takes of `run.json`: 10⁵ of each fit.
_PARAMETERS_BYTES, _MODULES_BYTES = 16 << 20, 8 << 20
NO_ROOM = "beyond the room that the table has"


class Passed(NamedTuple):
    """What a module was given and gave at its first call: the shapes of the first tensors; None where there is none."""

    input: Shape | None
    output: Shape | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ModuleRow:
    """A module of a model; wrappers (`torch.compile`, DDP, checkpointing) are none.

    Args:
        name: As in tags, without wrappers; the model itself is `model`, or its name where there are several.
        type: Its class.
        depth: How many modules it lies inside of; the model itself is 0.
        input: Shape of the first tensor that it was given at its first call; None where that is not known.
        output: Shape of the first tensor that it gave then, likewise.
    """

    name: str
    type: str
    depth: int
    input: Shape | None = None
    output: Shape | None = None

    def to_json(self) -> dict[str, Json]:
        """One JSON object; shapes that are not known are left out."""
        told: dict[str, Json] = {"name": self.name, "type": self.type, "depth": self.depth}
        told |= {key: list(shape) for key in ("input", "output") if (shape := getattr(self, key)) is not None}
        return told

    @classmethod
    def from_json(cls, data: Json) -> "ModuleRow":
        told = mapping(data)
        return cls(
            name=member(told, "name", _name),
            type=member(told, "type", _word),
            depth=member(told, "depth", count),
            input=member(told, "input", _shape) if "input" in told else None,
            output=member(told, "output", _shape) if "output" in told else None,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ParameterRow:
    """A parameter of a model or optimiser.

    Args:
        name: As in tags: what stands behind `@`.
        kind: What it is for.
        shape: Of the whole, where processes hold a piece each.
        dtype: As torch calls it: `float32`.
        device: Where it is, as torch calls it: `cuda:0`; of a piece, where this process has it. Empty where unknown.
        trainable: Whether it asks for gradients; if not, it is frozen.
        group: Number of its group in its optimiser; None where it is in none.
        optimizer: Name of that optimiser, where there are several.
        tied: Other names of the same tensor.
    """

    name: str
    kind: Kind
    shape: Shape
    dtype: str
    device: str = ""
    trainable: bool = True
    group: int | None = None
    optimizer: str = ""
    tied: tuple[str, ...] = ()

    @property
    def num_values(self) -> int:
        """How many values it has."""
        return math.prod(self.shape)

    def to_json(self) -> dict[str, Json]:
        """One JSON object; what is as usual (trainable, not tied, a single optimiser) is left out."""
        told: dict[str, Json] = {
            "name": self.name,
            "kind": self.kind.value,
            "shape": list(self.shape),
            "dtype": self.dtype,
            "group": self.group,
        }
        if self.device:
            told["device"] = self.device
        if not self.trainable:
            told["trainable"] = False
        if self.optimizer:
            told["optimizer"] = self.optimizer
        if self.tied:
            told["tied"] = list(self.tied)
        return told

    @classmethod
    def from_json(cls, data: Json) -> "ParameterRow":
        told = mapping(data)
        return cls(
            name=member(told, "name", _name),
            kind=member(told, "kind", one_of(Kind)),
            shape=member(told, "shape", _shape),
            dtype=member(told, "dtype", _word),
            device=member(told, "device", _word) if "device" in told else "",
            trainable=member(told, "trainable", flag) if "trainable" in told else True,
            group=member(told, "group", _group),
            optimizer=member(told, "optimizer", _word) if "optimizer" in told else "",
            tied=member(told, "tied", _tied) if "tied" in told else (),
        )


@dataclass(frozen=True, kw_only=True)
class ModelTable:
    """The modules and parameters of the models of a training, in their order, which is that of depth in most of them.

    Args:
        modules: Each once, however often it is used.
        parameters: Each once; a tensor with several names has the first, as its tags have.
        left_out: How many modules and parameters are not in the table, by the reason.

    Example:
        >>> weight = ParameterRow(name="head.weight", kind=Kind.MATRIX, shape=(10, 64), dtype="float32", group=0)
        >>> table = ModelTable(parameters=(weight,))
        >>> table.num_values, ModelTable.from_json(table.to_json()) == table
        (640, True)
    """

    version: ClassVar[int] = 1

    modules: tuple[ModuleRow, ...] = ()
    parameters: tuple[ParameterRow, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)

    @functools.cached_property
    def by_name(self) -> Mapping[str, ParameterRow]:
        """The parameters by their names."""
        return {row.name: row for row in reversed(self.parameters)}  # secrets are hidden, which may make two alike

    @functools.cached_property
    def types(self) -> Mapping[str, str]:
        """The classes of the modules by their names."""
        return {row.name: row.type for row in reversed(self.modules)}

    @functools.cached_property
    def places(self) -> Mapping[str, int]:
        """Where each parameter stands in the model: the first is 0."""
        return {row.name: place for place, row in reversed(list(enumerate(self.parameters)))}

    @functools.cached_property
    def dtypes(self) -> frozenset[str]:
        """The number formats of all parameters."""
        return frozenset(row.dtype for row in self.parameters)

    @functools.cached_property
    def is_batch_normed(self) -> bool:
        """Whether a module is a batch norm, whose running statistics stand for the batch's in evaluation."""
        return any("BatchNorm" in row.type for row in self.modules)

    @property
    def num_values(self) -> int:
        """Values of all parameters together."""
        return sum(row.num_values for row in self.parameters)

    @property
    def num_trainable(self) -> int:
        """Values of those that are not frozen."""
        return sum(row.num_values for row in self.parameters if row.trainable)

    @functools.cached_property
    def width(self) -> int | None:
        """How wide the layers inside of the model are: the median of what all matrices but the first take in.

        None where there are fewer than two.
        """
        taken = [row.shape[1] for row in self.parameters if row.kind is Kind.MATRIX and len(row.shape) > 1]
        inner = sorted(size for size in taken[1:] if size > 1)  # 1 is that of a convolution of single channels
        return inner[len(inner) // 2] if inner else None

    def with_shapes(self, shapes: Mapping[str, Passed]) -> "ModelTable":
        """The same, with what modules were given and gave, by their names."""
        rows = [replace(row, **shapes[row.name]._asdict()) if row.name in shapes else row for row in self.modules]
        return replace(self, modules=tuple(rows))

    def to_json(self) -> dict[str, Json]:
        """One JSON object for `run.json`; rows for which there is no room are counted in `left_out`."""
        parameters, without_parameters = _fitting(self.parameters, _PARAMETERS_BYTES)
        modules, without_modules = _fitting(self.modules, _MODULES_BYTES)
        left_out = dict(self.left_out)
        if without := without_parameters + without_modules:
            left_out[NO_ROOM] = left_out.get(NO_ROOM, 0) + without
        return {
            "version": self.version,
            "modules": modules,
            "parameters": parameters,
            "left_out": left_out,
        }

    @classmethod
    def from_json(cls, data: Json) -> "ModelTable":
        """What `to_json` gave.

        Raises:
            FormatError: it is something else, or of another version.
        """
        version = member(data, "version", count)
        if version != cls.version:
            raise FormatError(f"version: expected {cls.version}, got {version}.")
        return cls(
            modules=member(data, "modules", list_of(ModuleRow.from_json)),
            parameters=member(data, "parameters", list_of(ParameterRow.from_json)),
            left_out=member(data, "left_out", _left_out),
        )


def _fitting(rows: Sequence[ModuleRow] | Sequence[ParameterRow], most_bytes: int) -> tuple[list[Json], int]:
    """The first rows as JSON, as many as fit, and how many do not."""
    told: list[Json] = []
    used = 0
    for row in rows:
        plain = row.to_json()
        used += len(dumps(plain)) + 2
        if used > most_bytes:
            break
        told.append(plain)
    return told, len(rows) - len(told)


def _name(value: Json) -> str:
    name = text(value)
    if not is_name(name):
        raise FormatError("expected a name of at most 960 characters, none of which is a control character.")
    return name


def _word(value: Json) -> str:
    word = text(value)
    if not 0 < len(word) <= _MOST_CHARS or not is_printable(word):
        raise FormatError(f"expected a word of at most {_MOST_CHARS} printable characters.")
    return word


def _group(value: Json) -> int | None:
    return None if value is None else count(value)


def _shape(value: Json) -> Shape:
    shape = list_of(count)(value)
    if len(shape) > _MOST_DIMENSIONS or math.prod(shape) >= _MOST_VALUES:
        raise FormatError(f"expected at most {_MOST_DIMENSIONS} dimensions and 2⁶³ values.")
    return shape


def _tied(value: Json) -> tuple[str, ...]:
    names = list_of(_name)(value)
    if len(names) > _MOST_TIED:
        raise FormatError(f"expected at most {_MOST_TIED} names.")
    return names


def _left_out(value: Json) -> dict[str, int]:
    told = mapping(value)
    return {_word(reason): member(told, reason, count) for reason in told}
