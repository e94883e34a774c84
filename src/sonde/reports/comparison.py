"""What a comparison of runs says: as an object, as text, as JSON."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sonde.core import printable
from sonde.core.quantities import number
from sonde.core.records import Float64
from sonde.core.strict_json import Json, dumps, loads
from sonde.core.strict_json import number as as_json
from sonde.diagnosis.architecture import Module, Parameter, told
from sonde.diagnosis.comparison import Contrast
from sonde.diagnosis.divergence import Agreement, Divergence
from sonde.reports.figures import Health

_MAX_LINES = 12
_MAX_CHARS = 40


class Absent:
    """A setting that a run does not have, which is not the same as None."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = Absent()


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """A setting that is not the same in all runs.

    Args:
        key: With its outer keys: `config.model.width`.
        values: One a run; `ABSENT` where it has none.
    """

    key: str
    values: tuple[Json, ...]

    def to_json(self) -> dict[str, Json]:
        return {
            "key": self.key,
            "values": [None if value is ABSENT else value for value in self.values],
            "present": [value is not ABSENT for value in self.values],
        }


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Curve:
    """The compared series of a run on the common axis."""

    x: Float64
    value: Float64


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Variant:
    """A run that was compared.

    Args:
        label: Short and unlike the others'.
        path: Its folder.
        health: Its figures.
        curve: Its compared series; empty where it has none.
    """

    label: str
    path: str
    health: Health
    curve: Curve


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Against:
    """A run held against the reference.

    Args:
        variant: Number of the run; the reference is 0.
        parameters: Where the models are not the same, as far as both runs say what theirs is made of.
        modules: Likewise.
        contrast: Of the two curves.
        whole: First difference of the series that are about the whole model.
        layers: First difference of those of single parameters and modules.
    """

    variant: int
    parameters: tuple[Parameter, ...]
    modules: tuple[Module, ...]
    contrast: Contrast
    whole: Divergence
    layers: Divergence


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Comparison:
    """Two or more runs side by side, the first being the reference; printed, it is what `sonde compare` shows.

    Args:
        tag: The series whose curves are compared.
        by: What they are aligned by: `step`, `samples`, `tokens` or `time` (seconds since the first row).
        tolerance: Relative difference beyond which values count as diverged.
        variants: The runs.
        settings: Configuration and environment, where they differ.
        against: Each run but the reference, held against it.
    """

    schema: ClassVar[int] = 1
    """Of the JSON; keys may be added without a new one."""

    tag: str
    by: str
    tolerance: float
    variants: tuple[Variant, ...]
    settings: tuple[Setting, ...]
    against: tuple[Against, ...]

    def to_json(self) -> dict[str, Json]:
        """One strict JSON object: see docs/reference/cli.md."""
        return {
            "schema": self.schema,
            "tag": self.tag,
            "by": self.by,
            "tolerance": self.tolerance,
            "runs": [
                {"label": variant.label, "path": variant.path, "health": variant.health.to_json()}
                for variant in self.variants
            ],
            # Through text and back: a configuration may hold anything that can be printed.
            "settings": loads(dumps([setting.to_json() for setting in self.settings])),
            "against": [self._against_json(other) for other in self.against],
        }

    def _against_json(self, other: Against) -> dict[str, Json]:
        contrast, separation = other.contrast, other.contrast.separation
        return {
            "label": self.variants[other.variant].label,
            "parameters": [parameter.to_json() for parameter in other.parameters],
            "modules": [module.to_json() for module in other.modules],
            "curves": {
                "points": contrast.num_points,
                "at": _listed(contrast.at),
                "reference": _listed(contrast.first),
                "other": _listed(contrast.second),
                "scatter": _listed(contrast.scatter),
                "undecided": contrast.undecided,
                "separation": None
                if separation is None
                else {
                    "since": separation.since,
                    "resolution": separation.resolution,
                    "difference": as_json(separation.difference),
                    "scatters": as_json(separation.scatters),
                },
            },
            "divergence": {"whole": other.whole.to_json(), "layers": other.layers.to_json()},
        }

    def __str__(self) -> str:
        # Names and settings come from the runs: none may break a line or steer the terminal.
        return "\n".join(map(printable.inline, _lines(self)))


def verdict(comparison: Comparison, other: Against) -> str:
    """Whether a run's curve separates from the reference's, in one sentence."""
    contrast, unit = other.contrast, {"time": " s"}.get(comparison.by, f" {comparison.by}")
    if not contrast.num_points:
        return "the runs have no common points"
    if contrast.separation is not None:
        found = contrast.separation
        where = f"step {found.since:,.0f}" if comparison.by == "step" else f"{number(found.since)}{unit}"
        size = f"{number(abs(found.difference))} {'lower' if found.difference < 0 else 'higher'}"
        scatters = f", {found.scatters:.1f} times the scatter of a value" if math.isfinite(found.scatters) else ""
        return f"separates at {where} (± {number(found.resolution)}): from there on {size}{scatters}"
    end = contrast.end_difference
    size = f"at the end {number(abs(end))} {'lower' if end < 0 else 'higher'}" if end else "at the end the same"
    if contrast.undecided:
        return f"cannot be judged ({contrast.undecided}); {size}"
    scatter = float(contrast.scatter[-1])
    times = f" ({abs(end) / scatter:.1f} times the scatter of a value)" if scatter > 0 and end else ""
    return f"no lasting separation beyond noise; {size}{times}"


def parting(divergence: Divergence, tolerance: float) -> str:
    """Since when two runs are not the same, in one sentence."""
    match divergence.course:
        case Agreement.NOTHING_COMMON:
            return "nothing was measured in both at the same step"
        case Agreement.IDENTICAL:
            return f"identical to the bit ({divergence.num_values:,} values)"
    exact, beyond = divergence.exact, divergence.beyond
    assert exact is not None
    start = (
        "different from the start"
        if divergence.course is Agreement.FROM_START
        else f"identical to the bit before step {exact.step:,}"
    )
    told = f"{start}; first {exact.tag} at step {exact.step:,}: {_digits(exact.first, exact.second)}"
    if beyond is None:
        return f"{told}; never more than {number(tolerance, 2)} apart"
    if beyond.step == exact.step:
        return told
    return f"{told}; more than {number(tolerance, 2)} apart since {beyond.tag} at step {beyond.step:,}"


def health_rows(comparison: Comparison) -> Iterator[tuple[str, list[str]]]:
    """The figures of all runs, a row a figure; those that no run has are left out."""
    healths = [variant.health for variant in comparison.variants]
    rows: list[tuple[str, list[str]]] = [
        ("steps", [f"{h.steps:,}" for h in healths]),
        ("state", [h.ending for h in healths]),
        (f"{comparison.tag}, end", [_shown(h.final) for h in healths]),
        (f"{comparison.tag}, best", [_shown(h.best) for h in healths]),
        ("not finite since", ["-" if h.lost_step is None else f"step {h.lost_step:,}" for h in healths]),
        ("validation, end", [_shown(h.validation) for h in healths]),
        (
            "validation, best",
            [
                "-" if h.validation_best is None else f"{_shown(h.validation_best)} at {h.validation_best_step:,}"
                for h in healths
            ],
        ),
        ("highest learning rate", [_shown(h.lr_highest) for h in healths]),
        (
            "gain, mean ± sd",
            [
                "-"
                if h.gain_mean is None
                else _shown(h.gain_mean) + ("" if h.gain_sd is None else f" ± {number(h.gain_sd, 2)}")
                for h in healths
            ],
        ),
        ("gradient norm", [_shown(h.gradient_norm) for h in healths]),
        ("update ratio", [_shown(h.update_ratio) for h in healths]),
        ("samples/s", [_shown(h.samples_per_s) for h in healths]),
        ("tokens/s", [_shown(h.tokens_per_s) for h in healths]),
        ("seconds a step", [_shown(h.step_s) for h in healths]),
    ]
    yield from ((name, cells) for name, cells in rows if any(cell != "-" for cell in cells))
    yield "alarms", [", ".join(f"{code} {name}" for code, name in h.alarms.items()) or "none" for h in healths]
    if any(h.own_settings for h in healths):
        yield "judged by its own settings", [str(h.own_settings) or "-" for h in healths]


def setting_cells(setting: Setting) -> list[str]:
    """A setting's values, as they are shown."""
    return [
        "-" if value is ABSENT else printable.cut(value if isinstance(value, str) else dumps(value), _MAX_CHARS)
        for value in setting.values
    ]


def _lines(comparison: Comparison) -> Iterator[str]:
    labels = [variant.label for variant in comparison.variants]
    for i, variant in enumerate(comparison.variants):
        yield f"{variant.label}  {variant.path}{'  (reference)' if i == 0 else ''}"
    yield ""
    settings = [(setting.key, setting_cells(setting)) for setting in comparison.settings]
    if settings:
        yield from _grid("what differs", labels, settings[:_MAX_LINES])
        yield from _more(len(settings))
    else:
        yield "configuration and environment are the same"
    yield ""
    width = max(map(len, labels[1:]))
    for other in comparison.against:
        if changes := list(told(other.parameters, other.modules)):
            yield f"model of {labels[other.variant]}"
            yield from (f"  {change}" for change in changes[:_MAX_LINES])
            yield from _more(len(changes))
            yield ""
    yield f"{comparison.tag} by {comparison.by}"
    for other in comparison.against:
        yield f"  {labels[other.variant]:{width}}  {verdict(comparison, other)}"
    yield ""
    yield "first difference"
    for other in comparison.against:
        yield f"  {labels[other.variant]:{width}}  the run: {parting(other.whole, comparison.tolerance)}"
        yield f"  {'':{width}}  tensors: {parting(other.layers, comparison.tolerance)}"
    yield ""
    yield from _grid("health", labels, list(health_rows(comparison)))


def _grid(title: str, labels: Sequence[str], rows: Sequence[tuple[str, list[str]]]) -> Iterator[str]:
    table = [[title, *labels], *([f"  {name}", *cells] for name, cells in rows)]
    table = [[printable.inline(cell) for cell in row] for row in table]
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    for row in table:
        yield "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


def _more(num: int) -> Iterator[str]:
    if num > _MAX_LINES:
        yield f"  and {num - _MAX_LINES} more"


def _shown(value: float | None) -> str:
    return "-" if value is None else number(value)


def _digits(first: float, second: float) -> str:
    """Two numbers with as many digits as it takes to tell them apart."""
    for digits in range(4, 10):
        texts = number(first, digits), number(second, digits)
        if texts[0] != texts[1]:
            break
    return f"{texts[0]} → {texts[1]}"


def _listed(values: Float64) -> list[float | str]:
    return [as_json(value) for value in np.asarray(values, np.float64).tolist()]
