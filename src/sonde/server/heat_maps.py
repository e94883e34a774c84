"""Statistics of layers: which there are, and each as a picture of layers and steps."""

from collections.abc import Sequence
from typing import NamedTuple

from sonde.core.model_table import ModelTable
from sonde.core.strict_json import Json
from sonde.server import binary
from sonde.store.reader import Run

MOST_LAYERS = 20_000
_MOST_CELLS = 8 << 20
# Where a run does not say what its model is made of: what stands behind `@` in these is a group, an input or a part.
_NOT_OF_LAYERS = ("lr", "loss", "batch", "label", "optimizer", "time", "memory", "device", "val", "phase", "epoch")
_OF_PARAMETERS = ("grad", "weight", "update", "adam", "spectrum")


class _Names(NamedTuple):
    parameters: dict[str, int]
    modules: dict[str, int]


def layer_paths(tags: Sequence[str], model: ModelTable | None) -> list[dict[str, Json]]:
    """The statistics that exist of layers: `path`, how many layers have it, and what a layer of it is.

    Args:
        tags: Of the run.
        model: What the model is made of, where the run says it.
    """
    counts: dict[str, dict[str, int]] = {}
    names = _names(model)
    for tag in tags:
        path, at, name = tag.partition("@")
        if at and (kind := _kind(path, name, names)):
            kinds = counts.setdefault(path, {})
            kinds[kind] = kinds.get(kind, 0) + 1
    return [
        {"path": path, "layers": sum(kinds.values()), "kind": max(kinds, key=lambda kind: kinds[kind])}
        for path, kinds in sorted(counts.items())
    ]


def heat_map(
    run: Run,
    tags: Sequence[str],
    path: str,
    *,
    start: int | None,
    end: int | None,
    columns: int,
    by_depth: bool,
) -> bytes:
    """A statistic of all layers as one matrix, a row a layer.

    Args:
        run: The run.
        tags: Its tags.
        path: Of the statistic: `grad/rms`.
        start: First step wanted.
        end: Last step wanted, included.
        columns: The most columns; fewer where the matrix would be too large.
        by_depth: Whether rows are in the order of the model, else of their names.
    """
    wanted = [tag for tag in tags if tag.startswith(f"{path}@")]
    names = _names(run.model)
    order = names if by_depth else _names(None)
    wanted.sort(key=lambda tag: _place(tag.partition("@")[2], order))
    left_out = max(0, len(wanted) - MOST_LAYERS)
    wanted = wanted[:MOST_LAYERS]
    picture = run.heat(wanted, start=start, end=end, columns=max(1, min(columns, _MOST_CELLS // max(1, len(wanted)))))
    layers = [tag.partition("@")[2] for tag in wanted]
    header = {
        "schema": 1,
        "path": path,
        "rows": len(layers),
        "columns": len(picture.step),
        "names": layers,
        "modules": [_module(layer, names) for layer in layers],
        "steps": picture.step.tolist(),
        "left_out": left_out,
        "offset": 0,
    }
    if not layers:
        header["reason"] = f"the run has no series {path}@…"
    return binary.packed(header, [binary.float32(picture.value)])


def _names(model: ModelTable | None) -> _Names:
    if model is None:
        return _Names({}, {})
    modules = {row.name: place for place, row in reversed(list(enumerate(model.modules)))}
    return _Names(dict(model.places), modules)


def _kind(path: str, name: str, names: _Names) -> str:
    """What a name stands for: "parameter", "module", or "" where it is no layer."""
    if name in names.parameters:
        return "parameter"
    if name in names.modules:
        return "module"
    family = path.partition("/")[0]
    if names.modules or names.parameters or family in _NOT_OF_LAYERS:
        return ""
    return "parameter" if family in _OF_PARAMETERS else "module"


def _module(name: str, names: _Names) -> str | None:
    """The module that a layer is, or that a parameter belongs to; None where the run does not say."""
    while name not in names.modules:
        name, dot, _ = name.rpartition(".")
        if not dot:
            return None
    return name


def _place(name: str, names: _Names) -> tuple[int, tuple[tuple[int, str], ...]]:
    place = names.parameters.get(name, names.modules.get(name))
    return (1 << 62 if place is None else place), _natural(name)


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """For an order in which `blocks.10` comes after `blocks.9`."""
    return tuple((int(word), "") if word.isdecimal() and len(word) < 18 else (-1, word) for word in name.split("."))
