"""A model in a few rows: its parts, those that repeat together."""

from collections.abc import Sequence
from typing import NamedTuple

from sonde.core.model_table import ModelTable, ParameterRow
from sonde.core.quantities import count

_MOST_WORDS = 3


class Part(NamedTuple):
    """A part of a model.

    Attributes:
        name: Of the module; of several alike the first and the last one's.
        type: Its class; several of one number of a list are joined.
        num_modules: How many it stands for.
        num_parameters: Tensors of all of them together …
        num_values: … and their values.
        num_trainable: Values of those that are not frozen.
    """

    name: str
    type: str
    num_modules: int
    num_parameters: int
    num_values: int
    num_trainable: int


def sentence(table: ModelTable) -> str:
    """How large a model is, in one sentence without a full stop.

    Example:
        >>> sentence(ModelTable())
        '0 parameters with 0 values in 0 modules'
    """
    size = f"{count(len(table.parameters), 'parameter')} with {count(table.num_values, 'value')}"
    said = [f"{size} in {count(len(table.modules), 'module')}"]
    if frozen := table.num_values - table.num_trainable:
        said.append(f"{frozen:,} of the values are frozen")
    if tied := sum(bool(row.tied) for row in table.parameters):
        said.append(f"{count(tied, 'parameter')} shared under several names")
    if formats := sorted(table.dtypes):
        said.append(", ".join(formats[:_MOST_WORDS]) + (" and others" if len(formats) > _MOST_WORDS else ""))
    if missing := sum(table.left_out.values()):
        said.append(f"{missing:,} more modules and parameters are not in the table: {'; '.join(table.left_out)}")
    return "; ".join(said)


def parts(table: ModelTable) -> list[Part]:
    """The parts of a model that have parameters, in their order; members of one list are one part.

    Example:
        >>> from sonde.core.parameter_kinds import Kind
        >>> names = ("wte.weight", "blocks.0.up.weight", "blocks.1.up.weight", "head.weight")
        >>> rows = (ParameterRow(name=name, kind=Kind.MATRIX, shape=(2, 2), dtype="float32") for name in names)
        >>> [(part.name, part.num_values) for part in parts(ModelTable(parameters=tuple(rows)))]
        [('wte', 4), ('blocks.0 … blocks.1', 8), ('head', 4)]
    """
    types = {row.name: row.type for row in table.modules}
    models = {row.name for row in table.modules if row.depth == 0}
    found: dict[str, tuple[dict[str, None], list[ParameterRow]]] = {}
    for row in table.parameters:
        key, member = _part(row.name, models)
        members, rows = found.setdefault(key, ({}, []))
        members[member] = None
        rows.append(row)
    return [_summed(list(members), rows, types) for members, rows in found.values()]


def _summed(members: Sequence[str], rows: Sequence[ParameterRow], types: dict[str, str]) -> Part:
    classes = list(dict.fromkeys(types[member] for member in members if member in types))
    return Part(
        name=members[0] if len(members) == 1 else f"{members[0]} … {members[-1]}",
        type=", ".join(classes[:_MOST_WORDS]) + (" …" if len(classes) > _MOST_WORDS else ""),
        num_modules=len(members),
        num_parameters=len(rows),
        num_values=sum(row.num_values for row in rows),
        num_trainable=sum(row.num_values for row in rows if row.trainable),
    )


def _part(name: str, models: set[str]) -> tuple[str, str]:
    """The part that a parameter belongs to, and the module that is a member of it.

    A part is a list with numbered members, the first on the way; else the module that has the parameter. Numbers right
    below the model are the layers of a `Sequential`, which are parts each.
    """
    words = name.split(".")
    start = 1 if words[0] in models else 0
    number = next((i for i, word in enumerate(words[:-1]) if word.isdecimal() and i >= start), None)
    if number is None or number == start:
        module = ".".join(words[: start + 1] if number == start else words[:-1]) or "model"
        return module, module
    return ".".join(words[:number]), ".".join(words[: number + 1])
