"""The figures over many judged runs, as text, as data and as a picture."""

import collections
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.faults.judging import FEW_STEPS, Judgement


@dataclass(frozen=True)
class Share:
    """How many of how many."""

    what: str
    hits: int
    of: int
    goal: str = ""

    @property
    def share(self) -> float:
        """From 0 to 1, NaN of none."""
        return self.hits / self.of if self.of else math.nan

    def __str__(self) -> str:
        share = f"{self.share:.1%}" if self.of else "-"
        return f"| {self.what} | {share} | {self.hits} of {self.of} | {self.goal} |"


def shares(runs: Sequence[Judgement]) -> list[Share]:
    """The main figures; of what no run is about, 0 of 0."""
    faulty = [run for run in runs if run.kind == "faulty"]
    hard = [run for run in faulty if run.hard]
    statistical = [run for run in faulty if not run.hard]
    slow = [run for run in faulty if run.foreseeable]
    sudden = [run for run in faulty if run.diverges and not run.foreseeable]
    poisoned = [run for run in faulty if run.cause == "nonfinite-input"]
    known = [run for run in faulty if run.nonfinite_parameters]
    late = [run for run in faulty if run.onset > 0]
    return [
        _share("faults detected", faulty, lambda run: run.detected, "≥ 95%"),
        _share("right cause first", faulty, lambda run: run.first, "≥ 80%"),
        _share("right cause in the first two", faulty, lambda run: run.second, "≥ 90%"),
        _share("alarms on healthy runs", _of("healthy", runs), lambda run: bool(run.codes), "≤ 1 of 300"),
        _share("alarms on repaired twins", _of("twin", runs), lambda run: bool(run.codes), "≤ 3%"),
        _share("alarms before the onset of a fault", late, lambda run: run.early),
        _share("hard faults found within 5 steps", hard, lambda run: run.in_time, "all"),
        _share("others found within 50 steps or an epoch", statistical, lambda run: run.in_time, "all"),
        _share("… of the first harm", statistical, lambda run: run.in_time_of_harm),
        _share(f"divergences after {FEW_STEPS} steps, warned of before", slow, lambda run: run.lead is not None, "all"),
        _share("… 20 steps before or more", slow, lambda run: (run.lead or 0) >= 20, "most"),
        _share("sudden divergences, critical within 2 steps", sudden, lambda run: run.critical_in_time, "all"),
        _share("poisoned batches, critical within 2 steps", poisoned, lambda run: run.critical_in_time, "all"),
        _share("first non-finite parameter named", known, lambda run: run.names_parameter, "all"),
    ]


def _of(kind: str, runs: Sequence[Judgement]) -> list[Judgement]:
    return [run for run in runs if run.kind == kind]


def _share(what: str, runs: Sequence[Judgement], hit: Callable[[Judgement], bool], goal: str = "") -> Share:
    return Share(what, sum(map(hit, runs)), len(runs), goal)


@dataclass(frozen=True)
class Surprise:
    """A run that became non-finite with less warning than it should have had."""

    name: str
    seed: int
    onset: int
    nonfinite_step: int
    finite_steps: int
    alarm: str
    """The first alarm since the onset, with its step, "" where there was none."""
    why: str

    def __str__(self) -> str:
        alarm = self.alarm or "none"
        return f"| {self.name} {self.seed} | {self.onset} | {self.nonfinite_step} | {alarm} | {self.why} |"


def surprises(runs: Sequence[Judgement]) -> list[Surprise]:
    """The faulty runs that fall short of what is asked of warnings before a non-finite loss.

    A poisoned batch and a divergence in the first steps cannot be foreseen: they are to be critical within 2 steps.
    """
    found = []
    for run in runs:
        if run.kind != "faulty" or run.nonfinite_step is None:
            continue
        if run.foreseeable:
            why = "" if (run.lead or 0) >= 20 else f"{run.lead} steps before" if run.lead else "no warning before"
        else:
            why = "" if run.critical_in_time else "not critical within 2 steps"
        if why:
            alarms = [alarm for alarm in run.alarms if alarm.step >= run.onset - 1]
            alarm = f"{alarms[0].code} at {alarms[0].step}" if alarms else ""
            found.append(Surprise(run.name, run.seed, run.onset, run.nonfinite_step, run.finite_steps, alarm, why))
    return found


def quantile(values: Sequence[int], share: float) -> int | None:
    """The least value that this share of them does not exceed; None of none."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] if values else None


@dataclass(frozen=True)
class Bin:
    """Runs whose first suspect had about the same confidence."""

    low: float
    high: float
    num: int
    confidence: float
    right: float


@dataclass(frozen=True)
class Calibration:
    """How far confidence can be believed.

    Args:
        bins: By confidence, those without a run left out.
        error: Expected calibration error: the mean over runs of |confidence - share of right ones in its bin|.
    """

    bins: tuple[Bin, ...]
    error: float


def calibration(runs: Sequence[Judgement], num_bins: int = 10) -> Calibration:
    """Of the first suspect of every run with an alarm; one on a healthy run or on a twin is wrong.

    Args:
        runs: Judged.
        num_bins: Of equal width.
    """
    held = collections.defaultdict[int, list[Judgement]](list)
    for run in runs:
        if run.confidence is not None:
            held[min(num_bins - 1, int(num_bins * run.confidence))].append(run)
    bins = []
    for place, members in sorted(held.items()):
        mean = sum(run.confidence or 0.0 for run in members) / len(members)
        right = sum(run.kind == "faulty" and run.first for run in members) / len(members)
        bins.append(Bin(place / num_bins, (place + 1) / num_bins, len(members), mean, right))
    total = sum(one.num for one in bins)
    error = sum(one.num * abs(one.confidence - one.right) for one in bins) / total if total else math.nan
    return Calibration(tuple(bins), error)


@dataclass(frozen=True)
class CauseRow:
    """How faults of one cause fared."""

    cause: str
    num: int
    detected: int
    first: int
    second: int
    confusion: str
    """The wrong cause that was named first most often, with how often."""


def per_cause(runs: Sequence[Judgement]) -> list[CauseRow]:
    """A row for each cause that there is a faulty run of, the worst first."""
    held = collections.defaultdict[str, list[Judgement]](list)
    for run in runs:
        if run.kind == "faulty":
            held[run.cause].append(run)
    rows = []
    for cause, members in held.items():
        wrong = collections.Counter(run.causes[0] for run in members if run.causes and not run.first)
        confusion = " ".join(f"{name} ({num})" for name, num in wrong.most_common(1))
        rows.append(
            CauseRow(
                cause,
                len(members),
                sum(run.detected for run in members),
                sum(run.first for run in members),
                sum(run.second for run in members),
                confusion,
            )
        )
    return sorted(rows, key=lambda row: (row.first / row.num, row.second / row.num, row.cause))


def render(runs: Sequence[Judgement]) -> str:
    """All of it as Markdown."""
    faulty = _of("faulty", runs)
    lines = ["| what | share | runs | goal |", "|---|---|---|---|", *map(str, shares(runs)), ""]
    delays = [run.delay for run in faulty if run.delay is not None]
    leads = [run.lead for run in faulty if run.foreseeable and run.lead is not None]
    if delays:
        lines.append(f"delay from the onset: median {quantile(delays, 0.5)} steps, 90% within {quantile(delays, 0.9)}")
    if leads:
        lines.append(f"lead before the first non-finite loss: median {quantile(leads, 0.5)} steps, least {min(leads)}")
    short = surprises(runs)
    if short:
        lines += ["", "Non-finite losses that were warned of too late, or not at all:", ""]
        lines += ["| run | onset | non-finite at | first alarm | what is short |", "|---|---|---|---|---|"]
        lines += map(str, short)
    checked = calibration(runs)
    if checked.bins:
        lines += [
            "",
            f"Confidence of the first cause and how often it was right (mean calibration error {checked.error:.3f}):",
            "",
            "| confidence | runs | mean | right | |",
            "|---|---|---|---|---|",
        ]
        for one in checked.bins:
            # The bar is the share of right ones, the mark the confidence: calibrated, the bar ends at the mark.
            cells = ["█" if place < 20 * one.right else "·" for place in range(20)]
            cells[min(19, int(20 * one.confidence))] = "|"
            span, bar = f"{one.low:.1f}-{one.high:.1f}", "".join(cells)
            lines.append(f"| {span} | {one.num} | {one.confidence:.2f} | {one.right:.0%} | `{bar}` |")
    rows = per_cause(runs)
    if rows:
        lines += ["", "| cause | runs | detected | first | first two | taken for |", "|---|---|---|---|---|---|"]
        lines += [
            f"| {row.cause} | {row.num} | {row.detected} | {row.first} | {row.second} | {row.confusion} |"
            for row in rows
        ]
    false = collections.Counter(code for run in runs if run.kind != "faulty" for code in run.codes)
    if false:
        told = ", ".join(f"{code} {num}" for code, num in false.most_common())
        lines += ["", f"Alarms where there should be none: {told}"]
    return "\n".join(lines)


def listing(runs: Sequence[Judgement]) -> str:
    """The runs that were judged wrongly, a line each."""
    lines = []
    for run in runs:
        if run.kind == "faulty":
            what = (
                "missed" if not run.detected else "wrong cause" if not run.second else "second" if not run.first else ""
            )
            what = what or ("late" if not run.in_time else "")
        else:
            what = "false alarm" if run.codes else ""
        if what:
            delay = "-" if run.delay is None else str(run.delay)
            lines.append(
                f"{what:12}{run.name:42}{run.seed:3} {run.cause or run.kind:28}{','.join(run.causes[:2]) or '-':52}"
                f"{delay:>5}  {','.join(run.codes) or '-'}"
            )
    return "\n".join(lines)


def to_json(runs: Sequence[Judgement]) -> dict[str, Any]:
    """All of it as plain data, the runs included."""
    faulty = _of("faulty", runs)
    delays = [run.delay for run in faulty if run.delay is not None]
    leads = [run.lead for run in faulty if run.foreseeable and run.lead is not None]
    checked = calibration(runs)
    return {
        "shares": [{"what": s.what, "hits": s.hits, "of": s.of, "goal": s.goal} for s in shares(runs)],
        "delay_steps": {"median": quantile(delays, 0.5), "p90": quantile(delays, 0.9)},
        "lead_steps": {"median": quantile(leads, 0.5), "least": min(leads, default=None)},
        "surprises": [vars(one) for one in surprises(runs)],
        "calibration": {
            "error": checked.error if checked.bins else None,
            "bins": [vars(one) for one in checked.bins],
        },
        "causes": [vars(row) for row in per_cause(runs)],
        "runs": [run.to_json() for run in runs],
    }


def diagram(checked: Calibration) -> str:
    """The reliability diagram as SVG: confidence to the right, share of right ones upwards, area by runs."""
    size, edge = 240, 36
    total = max((one.num for one in checked.bins), default=1)

    def place(x: float, y: float) -> tuple[float, float]:
        return round(edge + size * x, 1), round(edge + size * (1 - y), 1)

    (x0, y0), (x1, y1) = place(0, 0), place(1, 1)
    marks = []
    for one in checked.bins:
        x, y = place(one.confidence, one.right)
        radius = round(3 + 9 * math.sqrt(one.num / total), 1)
        marks.append(
            f'<circle cx="{x}" cy="{y}" r="{radius}" fill="#2166ac" fill-opacity="0.7">'
            f"<title>{one.num} runs: confidence {one.confidence:.2f}, right {one.right:.0%}</title></circle>"
        )
    ticks = []
    for tick in (0, 0.5, 1):
        ticks.append(f'<text x="{place(tick, 0)[0]}" y="{y0 + 14}" text-anchor="middle">{tick:g}</text>')
        ticks.append(f'<text x="{x0 - 6}" y="{place(0, tick)[1] + 4}" text-anchor="end">{tick:g}</text>')
    width = size + 2 * edge
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{width}" viewBox="0 0 {width} {width}" '
            'font-family="sans-serif" font-size="11">',
            f'<rect width="{width}" height="{width}" fill="white"/>',
            f'<rect x="{x0}" y="{y1}" width="{size}" height="{size}" fill="none" stroke="#999"/>',
            f'<line x1="{x0}" y1="{y0}" x2="{x1}" y2="{y1}" stroke="#999" stroke-dasharray="4 4"/>',
            *marks,
            *ticks,
            f'<text x="{x0 + size / 2}" y="{y0 + 28}" text-anchor="middle">confidence of the first cause</text>',
            f'<text x="{x0}" y="{y1 - 10}">share of runs in which it was right (error {checked.error:.3f})</text>',
            "</svg>",
        ]
    )
