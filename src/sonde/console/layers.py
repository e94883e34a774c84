"""Which layers there are, how their gradients are, and which of them open findings name."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, final

import numpy as np
import numpy.typing as npt

from sonde.console.view import Layers
from sonde.core.findings import Finding, Severity
from sonde.core.frames import Columns, Float32, Frame, is_missing

STATISTICS = {"grad/rms": "gradient rms", "grad/norm": "gradient norm"}
"""Which series of a parameter are shown, the first that there is; what they are called."""


class _Plan(NamedTuple):
    """Where, in rows of some columns, which layers are."""

    path: str
    places: npt.NDArray[np.intp]
    of_layer: npt.NDArray[np.intp]
    """The layer of each of these places."""


@final
class Roster:
    """The layers of a model, as rows about their parameters come.

    A layer is the module that a parameter belongs to. Its value is that of its first parameter, its weight as a rule;
    not finite where one of its parameters is.
    """

    def __init__(self) -> None:
        self._names: list[str] = []
        self._number: dict[str, int] = {}
        self._within: dict[str, list[int]] = {}
        """The layers that a name or the beginning of one stands for."""
        self._plans: dict[Columns, _Plan | None] = {}
        self._values: dict[str, list[float | None]] = {path: [] for path in STATISTICS}
        self._marked: tuple[tuple[Finding, ...], int, tuple[str, ...]] = ((), 0, ())

    def take(self, frame: Frame) -> None:
        """A row with statistics of parameters."""
        plan = self._plan(frame.columns)
        if plan is None:
            return
        row = frame.values[plan.places]
        values = self._values[plan.path]
        values.extend([None] * (len(self._names) - len(values)))
        for layer, value in _by_layer(row, plan.of_layer).items():
            values[layer] = value

    def layers(self, findings: Sequence[Finding]) -> Layers:
        """As they are now."""
        for path, what in STATISTICS.items():
            values = self._values[path]
            if any(value is not None for value in values):
                padded = (*values, *[None] * (len(self._names) - len(values)))
                names = tuple(self._names)
                return Layers(names=names, values=padded, marks=self._marks(tuple(findings)), what=what)
        return Layers()

    def _plan(self, columns: Columns) -> _Plan | None:
        if columns not in self._plans:
            if len(self._plans) >= 256:  # which parameters have a gradient may change at every step (experts)
                self._plans.clear()
            self._plans[columns] = self._planned(columns.tags)
        return self._plans[columns]

    def _planned(self, tags: Sequence[str]) -> _Plan | None:
        for path in STATISTICS:
            there = [(place, tag) for place, tag in enumerate(tags) if tag.startswith(f"{path}@")]
            if there:
                layers = [self._layer(tag[len(path) + 1 :]) for _, tag in there]
                return _Plan(path, np.array([place for place, _ in there], np.intp), np.array(layers, np.intp))
        return None

    def _layer(self, parameter: str) -> int:
        name = parameter.rpartition(".")[0] or parameter
        number = self._number.get(name)
        if number is None:
            number = self._number[name] = len(self._names)
            self._names.append(name)
            words = name.split(".")
            for end in range(1, len(words) + 1):
                self._within.setdefault(".".join(words[:end]), []).append(number)
        return number

    def _marks(self, findings: tuple[Finding, ...]) -> tuple[str, ...]:
        if self._marked[:2] != (findings, len(self._names)):
            self._marked = (findings, len(self._names), self._newly_marked(findings))
        return self._marked[2]

    def _newly_marked(self, findings: Iterable[Finding]) -> tuple[str, ...]:
        worst: dict[int, Severity] = {}
        for finding in findings:
            if finding.open and finding.severity.is_alarm:
                for place in finding.where:
                    for layer in self._named(place):
                        worst[layer] = max(finding.severity, worst.get(layer, finding.severity))
        return tuple(worst[layer].value if layer in worst else "" for layer in range(len(self._names)))

    def _named(self, place: str) -> Sequence[int]:
        """The layers that a parameter, a module or a block has."""
        parent = place.rpartition(".")[0]
        if place in self._within:
            return self._within[place]
        return [self._number[parent]] if parent in self._number else []


def _by_layer(row: Float32, of_layer: npt.NDArray[np.intp]) -> Mapping[int, float | None]:
    """The first value of each layer that was measured; one that is not finite goes before it."""
    measured = ~is_missing(row)
    lost = measured & ~np.isfinite(row)
    found: dict[int, float | None] = {}
    # Backwards, so that the first of a layer is what stays.
    for which in (measured, lost):
        found.update(zip(of_layer[which][::-1].tolist(), row[which][::-1].tolist(), strict=True))
    return found
