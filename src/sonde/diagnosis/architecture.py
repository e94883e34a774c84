"""Where two models are not the same: parameters and modules, by their tables."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sonde.core.model_table import ModelTable, ParameterRow
from sonde.core.strict_json import Json

_MOST_NAMES = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameter:
    """A parameter that is not in both models, or not alike in both.

    Args:
        name: Of the parameter.
        first: Its row in the reference's table; None where the reference lacks it.
        second: The same in the other run.
    """

    name: str
    first: ParameterRow | None
    second: ParameterRow | None

    @property
    def change(self) -> str:
        """`added`, `removed` or `changed`."""
        return "added" if self.first is None else "removed" if self.second is None else "changed"

    def to_json(self) -> dict[str, Json]:
        rows = self.first, self.second
        return {
            "name": self.name,
            "change": self.change,
            "shapes": [None if row is None else list(row.shape) for row in rows],
            "dtypes": [None if row is None else row.dtype for row in rows],
            "trainable": [None if row is None else row.trainable for row in rows],
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Module:
    """A module that is not in both models, or of another class; the outermost only, of those that one model lacks.

    Args:
        name: Of the module.
        first: Its class in the reference; None where the reference lacks it.
        second: The same in the other run.
    """

    name: str
    first: str | None
    second: str | None

    def to_json(self) -> dict[str, Json]:
        return {"name": self.name, "types": [self.first, self.second]}


def parameter_changes(first: ModelTable, second: ModelTable) -> tuple[Parameter, ...]:
    """The parameters that are not in both, or differ in shape, number format or whether they are trained.

    Example:
        >>> from sonde.core.parameter_kinds import Kind
        >>> one, other = (
        ...     ModelTable(parameters=(ParameterRow(name="w", kind=Kind.MATRIX, shape=(2, n), dtype="float32"),))
        ...     for n in (2, 3)
        ... )
        >>> [(change.name, change.change) for change in parameter_changes(one, other)]
        [('w', 'changed')]
    """
    a, b = first.by_name, second.by_name
    names = dict.fromkeys(row.name for table in (first, second) for row in table.parameters)
    changes = (Parameter(name=name, first=a.get(name), second=b.get(name)) for name in names)
    return tuple(change for change in changes if _looks(change.first) != _looks(change.second))


def module_changes(first: ModelTable, second: ModelTable) -> tuple[Module, ...]:
    """The modules that are not in both, or are of another class."""
    a, b = ({row.name: row.type for row in table.modules} for table in (first, second))
    found = []
    for name in dict.fromkeys((*a, *b)):
        outer = name.rpartition(".")[0]
        is_inside = (outer in a) is not (outer in b)
        if a.get(name) != b.get(name) and not is_inside:
            found.append(Module(name=name, first=a.get(name), second=b.get(name)))
    return tuple(found)


def told(parameters: Sequence[Parameter], modules: Sequence[Module]) -> Iterator[str]:
    """The changes in lines: shapes first, a line each; then what changed in many at once."""
    both = [(p.name, p.first, p.second) for p in parameters if p.first is not None and p.second is not None]
    for module in modules:
        if module.first is not None and module.second is not None:
            yield f"{module.name}  {module.first} → {module.second}"
    for parameter in parameters:
        a, b = parameter.first, parameter.second
        if a is None or b is None:
            row = b or a
            yield f"{parameter.name}  {parameter.change}{'' if row is None else f' {_shape(row)}'}".rstrip()
        elif a.shape != b.shape:
            yield f"{parameter.name}  {_shape(a)} → {_shape(b)}"
    for module in modules:
        if module.first is None or module.second is None:
            yield f"{module.name}  {module.first or module.second} {'added' if module.first is None else 'removed'}"
    formats: dict[tuple[str, str], list[str]] = {}
    for name, a, b in both:
        if a.dtype != b.dtype:
            formats.setdefault((a.dtype, b.dtype), []).append(name)
    for (before, after), names in formats.items():
        yield f"{_listed(names)}  {before} → {after}"
    if frozen := [name for name, a, b in both if a.trainable and not b.trainable]:
        yield f"{_listed(frozen)}  frozen here, trained in the reference"
    if trained := [name for name, a, b in both if b.trainable and not a.trainable]:
        yield f"{_listed(trained)}  trained here, frozen in the reference"


def _looks(row: ParameterRow | None) -> tuple[object, ...] | None:
    return None if row is None else (row.shape, row.dtype, row.trainable)


def _shape(row: ParameterRow) -> str:
    return "×".join(map(str, row.shape)) or "a number"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMES])
    return f"{shown} and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else shown
