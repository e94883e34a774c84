"""What is known at one step: the rows that were measured, and what was said about the run."""

import math
from collections.abc import Callable, KeysView, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from sonde.core.frames import Columns, Frame, is_missing
from sonde.core.model_table import ModelTable
from sonde.core.records import Float64, Int64
from sonde.rules.layer_kinds import Kinds

Derived = TypeVar("Derived")

_DENSE = ("gradients", "weights", "grad-cosines", "update-cosines")  # tables that have a row a step on a GPU
_REST_STEPS = 8
_UNUSUAL = 4.0  # times the gradient norm of the last look
_NAN = math.nan
_FIRST_STEPS = 20


class Layers(NamedTuple):
    """One statistic of several parameters or modules."""

    names: tuple[str, ...]
    values: Float64
    steps: Int64 | None = None
    """When each was measured, where they are the latest ones."""


class Fact(NamedTuple):
    """An event of the run: what preflight found, what is not measured, a skipped step, a burst."""

    kind: str
    data: Mapping[str, Any]


_Places = npt.NDArray[np.intp] | slice
"""Where values lie; neighbours as a slice, which costs a tenth."""


class _Group(NamedTuple):
    """The values of one path within a table's row."""

    path: str
    names: tuple[str, ...]
    places: _Places


class _Split(NamedTuple):
    tags: tuple[str, ...]
    """Of the whole run …"""
    places: _Places
    """… and where they are."""
    groups: tuple[_Group, ...]


class StepView:
    """The numbers of one step.

    A number that was measured as NaN is NaN and *there*; one that was not measured is not there.

    Attributes:
        step: The training's step.
        facts: Events since the step before.
        kinds: What the parameters are for.
    """

    def __init__(
        self,
        step: int,
        scalars: Mapping[str, float],
        layers: Mapping[str, Sequence[Layers]],
        facts: Sequence[Fact],
        kinds: Kinds | None = None,
    ) -> None:
        self.step, self.facts, self.kinds = step, tuple(facts), kinds or Kinds()
        self._scalars, self._layers = scalars, layers
        self._joined: dict[str, Layers] = {}

    def __contains__(self, tag: str) -> bool:
        return tag in self._scalars

    def value(self, tag: str) -> float:
        """A number of the whole run, such as `loss`; NaN where it was not measured, or was NaN."""
        return self._scalars.get(tag, _NAN)

    def layers(self, path: str) -> Layers | None:
        """What was measured of a statistic (`grad/rms`) at this step, a value a layer; None where nothing was."""
        parts = self._layers.get(path)
        if not parts:
            return None
        if len(parts) == 1:
            return parts[0]
        joined = self._joined.get(path)
        if joined is None:
            names = tuple(name for part in parts for name in part.names)
            joined = self._joined[path] = Layers(names, np.concatenate([part.values for part in parts]))
        return joined

    def tags(self) -> KeysView[str]:
        """The numbers of the whole run that were measured."""
        return self._scalars.keys()

    def paths(self) -> KeysView[str]:
        """The statistics of layers that were measured."""
        return self._layers.keys()


class StepViews:
    """Makes views of steps out of rows, and remembers the latest value of every layer.

    Numbers of the whole run are in the view of every step, but for the loss where several optimisers have losses of
    their own, parts by their names: nobody minimises the sum of two opponents' losses. Layers that are measured at
    every step are looked at in every eighth, after the first twenty.

    Args:
        model: What the parameters are; None where the run does not say.

    Example:
        >>> views = StepViews()
        >>> columns = Columns("step", ("loss", "grad/rms@a", "grad/rms@b"))
        >>> view = views.take(3, [Frame(columns, 3, 0.0, np.array([2.0, 0.1, 0.2], np.float32))], [])
        >>> view.value("loss"), view.layers("grad/rms").names, "lr" in view
        (2.0, ('a', 'b'), False)
    """

    def __init__(self, model: ModelTable | None = None) -> None:
        self.kinds = Kinds(model)
        self._splits: dict[int, tuple[Columns, _Split]] = {}
        self._latest: dict[str, _Latest] = {}
        self._kept: dict[str, tuple[list[int], Any]] = {}
        self._judged: dict[str, int] = {}
        """The step at which each table's layers were last looked at."""
        self._norm = self._judged_norm = math.inf
        """The gradient norm of the present step, and of that at which layers were last looked at."""

    def take(self, step: int, frames: Sequence[Frame], facts: Sequence[Fact]) -> StepView:
        """The view of a step, from all of its rows."""
        scalars: dict[str, float] = {}
        layers: dict[str, list[Layers]] = {}
        if len(frames) > 1:  # the norm of the step says what to look at
            frames = sorted(frames, key=lambda frame: frame.columns.table != "step")
        for frame in frames:
            if frame.columns.bins > 1:
                continue
            split = self._split(frame.columns)
            missing = is_missing(frame.values)
            some_missing = np.count_nonzero(missing) > 0
            wide = frame.values.astype(np.float64)
            if split.tags:
                tags, numbers = split.tags, wide[split.places].tolist()
                if some_missing:
                    gone = missing[split.places].tolist()
                    known = zip(tags, numbers, gone, strict=True)
                    scalars.update((tag, number) for tag, number, is_gone in known if not is_gone)
                else:
                    scalars.update(zip(tags, numbers, strict=True))
            self._norm = scalars.get("grad/norm", math.nan)
            for group in () if self._rests(frame, missing) else split.groups:
                values, names = wide[group.places], group.names
                if some_missing:
                    there = ~missing[group.places]
                    if np.count_nonzero(there) < len(names):
                        values = values[there]
                        names = tuple(name for name, is_there in zip(names, there, strict=True) if is_there)
                if names:
                    layers.setdefault(group.path, []).append(Layers(names, values))
                    latest = self._latest.get(group.path)
                    if latest is None:
                        latest = self._latest[group.path] = _Latest()
                    latest.note(names, values, step)
        if "lr" not in scalars and "lr" in layers:  # of several optimisers
            scalars["lr"] = max(float(part.values.max()) for part in layers["lr"])
        return StepView(step, scalars, layers, facts, self.kinds)

    def _rests(self, frame: Frame, missing: npt.NDArray[np.bool_]) -> bool:
        """Whether a table of layers is left out, having been looked at a few steps ago: they change slowly.

        Not in the beginning, not where something is not finite, and not where the gradient norm has jumped.
        """
        if not frame.columns.table.startswith(_DENSE):
            return False
        last = self._judged.get(frame.columns.table)
        if last is None or frame.step <= _FIRST_STEPS or not 0 < frame.step - last < _REST_STEPS:
            self._judged[frame.columns.table] = frame.step
            self._judged_norm = self._norm
            return False
        if self._norm > _UNUSUAL * self._judged_norm:  # it is to be told whose gradients those are
            return False
        return bool((np.isfinite(frame.values) | missing).all())

    def describe(self, model: ModelTable | None) -> None:
        """From here on the model is this one: parameters were added, or have got their shape."""
        self.kinds, self._kept = Kinds(model), {}

    def latest(self, path: str) -> Layers | None:
        """Every layer's latest value of a statistic that is measured in turns; None where there is none yet."""
        latest = self._latest.get(path)
        return None if latest is None else latest.layers()

    def derived(self, key: str, paths: Sequence[str], compute: Callable[[], Derived]) -> Derived:
        """What follows from the latest values of some statistics: computed once for all rules, until one changes."""
        latest = self._latest
        versions = [latest[path].version if path in latest else 0 for path in paths]
        kept = self._kept.get(key)
        if kept is None or kept[0] != versions:
            kept = self._kept[key] = versions, compute()
        value: Derived = kept[1]
        return value

    def state(self) -> dict[str, Any]:
        """All that is remembered."""
        return {"latest": {path: latest.layers() for path, latest in self._latest.items()}, "judged": self._judged}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave."""
        self._latest, self._kept, self._judged = {}, {}, dict(state["judged"])
        for path, layers in state["latest"].items():
            latest = self._latest[path] = _Latest()
            latest.note(layers.names, layers.values, 0)
            latest.date(layers.steps)

    def _split(self, columns: Columns) -> _Split:
        known = self._splits.get(id(columns))
        if known is not None and known[0] is columns:
            return known[1]
        tags: list[str] = []
        whole: list[int] = []
        groups: dict[str, tuple[list[str], list[int]]] = {}
        for place, tag in enumerate(columns.tags):
            path, at, where = tag.partition("@")
            if at:
                names, places = groups.setdefault(path, ([], []))
                names.append(where)
                places.append(place)
            else:
                tags.append(tag)
                whole.append(place)
        if "loss" in tags and len(_names(groups, "loss/part") & _names(groups, "lr")) > 1:
            del whole[tags.index("loss")]
            tags.remove("loss")
        split = _Split(
            tuple(tags),
            _places(whole),
            tuple(_Group(path, tuple(names), _places(places)) for path, (names, places) in groups.items()),
        )
        if len(self._splits) >= 1024:
            self._splits.clear()
        self._splits[id(columns)] = columns, split
        return split


def _names(groups: Mapping[str, tuple[list[str], list[int]]], path: str) -> set[str]:
    return set(groups[path][0]) if path in groups else set()


def _places(places: list[int]) -> _Places:
    if places and places == list(range(places[0], places[0] + len(places))):
        return slice(places[0], places[0] + len(places))
    return np.array(places, np.intp)


class _Latest:
    def __init__(self) -> None:
        self._given: Layers | None = None
        """What was given away: its arrays are then changed no more."""
        self._places: dict[str, int] = {}
        self._names: tuple[str, ...] = ()
        self._values = np.empty(0)
        self._steps = np.empty(0, np.int64)
        self._known: dict[int, tuple[tuple[str, ...], _Places]] = {}
        self.version = 0

    def note(self, names: tuple[str, ...], values: Float64, step: int) -> None:
        self.version += 1
        known = self._known.get(id(names))
        if known is None or known[0] is not names:
            new = [name for name in names if name not in self._places]
            if new:
                self._places.update({name: len(self._names) + i for i, name in enumerate(new)})
                self._names += tuple(new)
                self._values = np.concatenate([self._values, np.full(len(new), np.nan)])
                self._steps = np.concatenate([self._steps, np.full(len(new), -1)])
            if len(self._known) >= 256:
                self._known.clear()
            known = self._known[id(names)] = names, _places([self._places[name] for name in names])
        if self._given is not None:
            self._values, self._steps, self._given = self._values.copy(), self._steps.copy(), None
        self._values[known[1]] = values
        self._steps[known[1]] = step

    def date(self, steps: Int64 | None) -> None:
        if steps is not None:
            self._steps, self._given = steps.copy(), None

    def layers(self) -> Layers:
        if self._given is None:
            self._given = Layers(self._names, self._values, self._steps)
        return self._given
