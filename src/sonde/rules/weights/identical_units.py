"""WGT005 identical-units."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from sonde.core.parameter_kinds import Kind
from sonde.core.quantities import count
from sonde.rules.history.level import has_level
from sonde.rules.rule import Against, Cause, Claims, Evidence, For, Look, Severity, Sighting


class IdenticalUnitsState(NamedTuple):
    """The matrices of rank one at their latest look, and the first of those looks."""

    names: tuple[str, ...] = ()
    since: int = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class IdenticalUnits:
    """All units of a layer compute the same.

    What it detects:
        Either of these:
        - A weight matrix of several rows and columns has an effective rank below `rank`, and its smallest singular
          value is below a thousandth of the largest: all rows are multiples of one row.
        - Within the first 20 steps, a weight matrix of `least_values` values or more has the same value everywhere, and
          that value is not zero. This needs the model table, which says how many values a matrix has.

        It is information. It is a warning after `least_steps` steps if the loss does not fall or rises.

    Why it matters:
        Units that start equal get equal gradients and stay equal: a layer of a thousand such units can do no more than
        a layer of one.

    Evidence:
        `spectrum/effective_rank@…` or `weight/std@…`.

    What to do:
        Initialise at random (He, Xavier). A constant is right for biases and scales only.

    When it is wrong:
        - Last layers and adapters that start at zero are healthy: they are zero, not of rank one, and leave zero by
          themselves.
        - Matrices that collapse late, as with few classes, have lost rank, but their units were not equal from the
          start.

    References:
        Goodfellow, Bengio and Courville, Deep learning, 2016, section 8.4 (breaking symmetry).
    """

    code: ClassVar[str] = "WGT005"
    name: ClassVar[str] = "identical-units"
    needs: ClassVar[tuple[str, ...]] = ("weight/std@",)
    reads: ClassVar[tuple[str, ...]] = ("spectrum/effective_rank@", "weight/std@")
    points_to: ClassVar[Mapping[Cause, Claims]] = {
        Cause.SYMMETRIC_INITIALISATION: For("all units of a layer are equal"),
        Cause.WARMUP_TOO_SHORT: Against("units are equal from the start"),
    }
    quiet_steps: ClassVar[int] = 2000
    guide: ClassVar[str] = "layer-not-learning"

    rank: float = 1.1
    least_steps: int = 100
    least_values: int = 16

    def init(self) -> IdenticalUnitsState:
        """Before the first step."""
        return IdenticalUnitsState()

    def waits(self, state: IdenticalUnitsState) -> bool:
        """Whether the loss of such units is looked at now and then."""
        return bool(state.names)

    def step(self, state: IdenticalUnitsState, look: Look) -> tuple[IdenticalUnitsState, Sequence[Sighting]]:
        """Look at the matrices."""
        found = dict.fromkeys(state.names)
        new = self._by_spectrum(look, found) | self._by_spread(look, found)
        if not new and not (found and "loss" in look.view and look.run.num_losses % 50 == 0):
            return state, ()
        since = state.since if state.since >= 0 else look.view.step
        state = IdenticalUnitsState(tuple(found), since if found else -1)
        if not found:
            return state, ()
        run = look.run
        bad = run.is_impaired and run.num_losses > self.least_steps and has_level(look)
        names = tuple(found)
        others = f" and of {count(len(names) - 1, 'other')}" if len(names) > 1 else ""
        message = f"all units of `{names[0]}`{others} are equal"
        evidence = tuple(self._evidence(name, look) for name in names[:3])
        severity = Severity.WARNING if bad else Severity.INFO
        return state, (Sighting(severity, message, names, evidence, since),)

    def _by_spectrum(self, look: Look, found: dict[str, None]) -> bool:
        """Note the matrices of rank one, strike those that are not; whether any was measured."""
        ranks, largest, smallest = (
            look.view.layers(f"spectrum/{part}") for part in ("effective_rank", "largest", "smallest")
        )
        if ranks is None or largest is None or smallest is None:
            return False
        for name, rank, high, low in zip(ranks.names, ranks.values, largest.values, smallest.values, strict=True):
            if rank < self.rank and high > 0 and low < 1e-3 * high:
                found[name] = None
            else:
                found.pop(name, None)
        return True

    def _by_spread(self, look: Look, found: dict[str, None]) -> bool:
        """Note weights of one value only; whether there were any. Their spread grows later, their units stay equal."""
        std, rms = look.view.layers("weight/std"), look.view.layers("weight/rms")
        if std is None or rms is None or std.names != rms.names or look.run.num_losses > 20:
            return False
        kinds = look.view.kinds
        flat = (std.values < 1e-6 * rms.values) & (rms.values > 0)
        of_one_value = [std.names[place] for place in np.flatnonzero(flat)]
        names = [
            name
            for name in of_one_value
            if kinds.of(name) is Kind.MATRIX and (kinds.num_values(name) or 0) >= self.least_values
        ]
        found.update(dict.fromkeys(names))
        return bool(names)

    def _evidence(self, name: str, look: Look) -> Evidence:
        ranks = look.views.latest("spectrum/effective_rank")
        if ranks is not None and name in ranks.names:
            value = float(ranks.values[ranks.names.index(name)])
            return look.evidence(f"spectrum/effective_rank@{name}", value)
        std = look.views.latest("weight/std")
        value = float("nan") if std is None else float(std.values[std.names.index(name)])
        return look.evidence(f"weight/std@{name}", value)
