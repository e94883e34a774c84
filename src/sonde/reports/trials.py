"""How far the settings of a rule would have to be moved for it to be silent in a run."""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from sonde.reports.diagnosing import diagnose
from sonde.rules.catalogue import all_rules
from sonde.rules.rule import Look, Rule, Sighting
from sonde.store.reader import Run

# How far a setting may be moved, in steps: beyond the last one the rule would be blind to the fault itself.
_RATIOS = (1.1, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)
# Settings that say how much of a series is remembered: they move what is judged, not how strictly.
_LENGTHS = frozenset({"window", "history", "block", "horizon", "reach", "budget"})


class Trial(NamedTuple):
    """A setting and the way in which it is moved."""

    code: str
    setting: str
    default: float
    is_up: bool

    def value(self, ratio: float) -> float:
        """The setting after it was moved by a ratio above 1: counts stay whole, what is between 0 and 1 stays there.

        Example:
            >>> Trial("GRD004", "share", 0.1, False).value(2), Trial("GRD004", "patience", 20, True).value(1.25)
            (0.05263, 25)
        """
        factor = ratio if self.is_up else 1 / ratio
        if isinstance(self.default, int):
            moved = self.default * factor
            return max(1, math.ceil(moved) if self.is_up else math.floor(moved))
        size = abs(self.default)
        if size < 1:
            odds = factor * size / (1 - size)
            size = odds / (1 + odds)
        else:
            size *= factor
        return float(f"{math.copysign(size, self.default):.4g}")


def trials(kind: type[Rule]) -> Iterator[Trial]:
    """All thresholds of a rule, up and down, in the order in which it has them."""
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]  # rules are dataclasses
        default: Any = field.default
        is_number = isinstance(default, int | float) and not isinstance(default, bool)
        if is_number and default and field.name not in _LENGTHS:
            yield from (Trial(kind.code, field.name, default, is_up) for is_up in (True, False))


def needs(run: Run, codes: frozenset[str]) -> dict[Trial, float]:
    """How far each setting of the rules that alarm would have to be moved; those that never silence are left out."""
    kinds = [kind for kind in all_rules() if kind.code in codes]
    # First as far as it goes: what does not help there need not be looked at in between.
    hopeful = _silent(run, {kind: [(trial, _RATIOS[-1]) for trial in trials(kind)] for kind in kinds})
    silent = _silent(
        run, {kind: [(trial, r) for trial, _ in hopeful if trial.code == kind.code for r in _RATIOS] for kind in kinds}
    )
    found: dict[Trial, float] = {}
    for trial, _ in hopeful:
        for ratio in reversed(_RATIOS):
            if (trial, ratio) not in silent:
                break  # silent from there on: a lucky value below does not count
            found[trial] = ratio
    return found


def _silent(run: Run, candidates: Mapping[type[Rule], Sequence[tuple[Trial, float]]]) -> frozenset[tuple[Trial, float]]:
    panels = [_Panel(kind, several) for kind, several in candidates.items() if several]
    if not panels:
        return frozenset()
    diagnose(run, rules=cast("list[Rule]", panels))  # a rule in all but where its constants stand
    # Where the default settings are silent as well, what it alarmed by is not among the rows: ranks are compared with
    # each other elsewhere.
    return frozenset(key for panel in panels if None not in panel.silent for key in panel.silent if key is not None)


_Key = tuple[Trial, float] | None


class _Panel:
    """A rule that looks with many settings at once, and notes which of them would alarm."""

    def __init__(self, kind: type[Rule], candidates: Iterable[tuple[Trial, float]]) -> None:
        self.code, self.name, self.needs, self.points_to = kind.code, kind.name, kind.needs, kind.points_to
        self.quiet_steps = kind.quiet_steps
        self.silent: dict[_Key, Rule] = {None: kind()}  # the default settings, to see that they alarm here as well
        for trial, ratio in candidates:
            try:
                self.silent[trial, ratio] = kind(**{trial.setting: trial.value(ratio)})
            except ValueError:  # the rule refuses it
                continue

    def init(self) -> dict[_Key, Any]:
        return {key: rule.init() for key, rule in self.silent.items()}

    def step(self, states: dict[_Key, Any], look: Look) -> tuple[dict[_Key, Any], Sequence[Sighting]]:
        for key, rule in list(self.silent.items()):
            try:
                states[key], sightings = rule.step(states[key], look)
                is_alarm = any(sighting.severity.is_alarm for sighting in sightings)
            except (ArithmeticError, IndexError, ValueError):  # a value that makes no sense is no candidate
                is_alarm = True
            if is_alarm:
                del self.silent[key]
        return states, ()
