"""Fits the rules' settings to runs that are known to be good."""

import dataclasses
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sonde.core.quantities import share
from sonde.reports.diagnosing import diagnose
from sonde.reports.trials import Trial, needs, trials
from sonde.rules.catalogue import all_rules
from sonde.rules.configuring import configured
from sonde.store.profiles import profile_text
from sonde.store.reader import Run, load


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A setting that was moved.

    Attributes:
        code: The rule's.
        setting: Its field.
        before: The default.
        after: What it is now, margin included.
        runs: The runs that had alarmed.
    """

    code: str
    setting: str
    before: float
    after: float
    runs: tuple[str, ...]

    def __str__(self) -> str:
        of = f"{len(self.runs)} run{'s' if len(self.runs) > 1 else ''}"
        return f"{self.code}.{self.setting}  {self.before:g} → {self.after:g}  (alarmed in {of})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What was fitted to known-good runs, and what it changed.

    Attributes:
        num_runs: How many there were.
        before: Share of runs with a false alarm by the default settings.
        after: The same with the profile.
        held_out: The same where the profile is fitted to all runs but the one that is judged: what to expect of a new
            run of this kind. NaN with fewer than two runs.
        changes: The settings that were moved.
        left: Rules that still alarm, by code, with the runs: no single setting silences them.
    """

    num_runs: int
    before: float
    after: float
    held_out: float
    changes: tuple[Change, ...] = ()
    left: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    @property
    def profile(self) -> dict[str, float]:
        """The settings by name, as `diagnose(profile=...)` takes them."""
        return {f"{change.code}.{change.setting}": change.after for change in self.changes}

    def to_toml(self) -> str:
        """The profile as the text of a file."""
        head = (
            f"Settings of Sonde's rules, fitted to {self.num_runs} known-good runs by `sonde calibrate`.\n"
            f"Runs with a false alarm: {share(self.before)} before, {share(self.after)} after, "
            f"{_share(self.held_out)} of runs that were held out."
        )
        remarks = {
            f"{change.code}.{change.setting}": f"{change.before:g} by default; alarmed in {', '.join(change.runs[:3])}"
            + (f" and {len(change.runs) - 3} more" if len(change.runs) > 3 else "")
            for change in self.changes
        }
        return profile_text(self.profile, {name: " ".join(remark.split()) for name, remark in remarks.items()}, head)

    def __str__(self) -> str:
        lines = [
            f"{self.num_runs} known-good runs; with a false alarm: {share(self.before)} before, "
            f"{share(self.after)} after, {_share(self.held_out)} held out",
            *(f"  {change}" for change in self.changes),
            *(
                f"  {code} still alarms in {', '.join(runs[:3])}: no single setting silences it; are these runs good?"
                for code, runs in self.left.items()
            ),
        ]
        return "\n".join(lines)


def calibrate(runs: Iterable[Run | str | os.PathLike[str]], *, margin: float = 1.25) -> Calibration:
    """Settings by which runs that are known to be good raise no alarm.

    The runs are diagnosed by the default settings. For each rule that alarms, each of its thresholds is moved up and
    down step by step, by factors of 1.1 to 16, until the rule is silent in every run (a threshold between 0 and 1 moves
    on the scale of odds, so that it stays there). Of those that silence it the one that had to move least is taken,
    levels before counts of steps, and moved by `margin` more. At the end the runs are diagnosed with the profile. Each
    run is read four times at most.

    Args:
        runs: The runs, or their folders. The more, and the more different, the better.
        margin: Factor, at least 1; larger means fewer alarms, and later ones.

    Raises:
        ValueError: there are no runs, or the margin is below 1.
        RunNotFound, RunUnreadable: a folder holds no run.
    """
    if not margin >= 1:
        raise ValueError(f"`calibrate(margin=...)` must be at least 1, got {margin}.")
    opened = [run if isinstance(run, Run) else load(run) for run in runs]
    if not opened:
        raise ValueError("`calibrate(runs)` needs at least one run, got none.")
    names = [str(run.path) for run in opened]
    alarming = [_alarms(run, {}) for run in opened]
    needed = [needs(run, codes) for run, codes in zip(opened, alarming, strict=True)]
    picks = {code: _pick(code, needed) for code in sorted(set().union(*alarming))}
    changes = tuple(
        Change(
            code=code,
            setting=pick.trial.setting,
            before=pick.trial.default,
            after=pick.trial.value(pick.ratio * margin),
            runs=tuple(name for name, codes in zip(names, alarming, strict=True) if code in codes),
        )
        for code, pick in picks.items()
        if pick is not None
    )
    profile = {f"{change.code}.{change.setting}": change.after for change in changes}
    still = [_alarms(run, profile) if codes else codes for run, codes in zip(opened, alarming, strict=True)]
    left = {
        code: tuple(name for name, codes in zip(names, still, strict=True) if code in codes)
        for code in sorted(set().union(*still))
    }
    held_out = [_alarms_held_out(place, picks, needed, alarming, margin) for place in range(len(opened))]
    return Calibration(
        num_runs=len(opened),
        before=_mean([bool(codes) for codes in alarming]),
        after=_mean([bool(codes) for codes in still]),
        held_out=_mean(held_out) if len(opened) > 1 else math.nan,
        changes=changes,
        left=left,
    )


class _Pick(NamedTuple):
    trial: Trial
    ratio: float


def _alarms(run: Run, profile: Mapping[str, float]) -> frozenset[str]:
    """The codes of the rules that alarm."""
    return frozenset(finding.code for finding in diagnose(run, rules=configured(profile)) if finding.severity.is_alarm)


def _pick(code: str, needed: Sequence[Mapping[Trial, float]]) -> _Pick | None:
    """The setting that silences a rule in all runs that can be silenced, and has to move least; levels before counts.

    A count that is longer than the runs silences everything, and says nothing.
    """
    concerned = [need for need in needed if any(trial.code == code for trial in need)]
    common = (
        set.intersection(*({trial for trial in need if trial.code == code} for need in concerned)) if concerned else ()
    )
    order = {trial: place for kind in all_rules() if kind.code == code for place, trial in enumerate(trials(kind))}
    ranked = sorted(
        common, key=lambda trial: (isinstance(trial.default, int), max(need[trial] for need in concerned), order[trial])
    )
    return _Pick(ranked[0], max(need[ranked[0]] for need in concerned)) if ranked else None


def _alarms_held_out(
    place: int,
    picks: Mapping[str, _Pick | None],
    needed: Sequence[Mapping[Trial, float]],
    alarming: Sequence[frozenset[str]],
    margin: float,
) -> bool:
    """Whether a run would alarm by settings that were fitted to the others."""
    for code in alarming[place]:
        pick = picks[code]
        if pick is None or pick.trial not in needed[place]:
            return True
        others = [need[pick.trial] for at, need in enumerate(needed) if at != place and pick.trial in need]
        if not others or needed[place][pick.trial] > max(others) * margin:
            return True
    return False


def _mean(values: Sequence[bool]) -> float:
    return sum(values) / len(values)


def _share(value: float) -> str:
    return "unknown" if math.isnan(value) else share(value)
