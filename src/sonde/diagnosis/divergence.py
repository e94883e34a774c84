"""The first step and series at which two runs are no longer the same."""

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sonde.core.frames import Float32, is_missing
from sonde.core.records import Int64
from sonde.core.strict_json import Json, number
from sonde.core.tags import Tag, parse_tag

# The order in which a step computes its numbers. What is not here (times, memory, the machine, what other programs
# logged) is not a function of the training alone and never counts as a divergence.
_STAGES = {
    "batch": 0,
    "label": 0,
    "act": 1,
    "attn": 1,
    "logits": 2,
    "loss": 3,
    "gain": 4,
    "grad": 4,
    "amp": 5,
    "clip": 5,
    "lr": 6,
    "adam": 7,
    "update": 7,
    "weight": 8,
    "val": 9,
}
_BACKWARD = 4
# They look back over the steps at which the monitor happened to look, which the load of the machine decides.
_UNSTEADY = {"act/dead", "grad/trajectory_dimension", "grad/trajectory_share"}
# Their sums over a whole model are put together from what was looked at in that step or before, by one kernel or
# another: the same training may give other bits. The tensors themselves tell as much.
_OF_TENSORS = {"gain", "grad", "update", "weight"}
# Sums of both signs, near zero as a rule: relative to themselves they differ by much as soon as they differ at all.
_CANCELLING = {"mean", "p25", "p50", "p75", "cosine", "skewness", "kurtosis"}


class Agreement(enum.StrEnum):
    """How far two runs go together."""

    NOTHING_COMMON = "nothing-common"
    """No series was measured in both at the same step."""
    IDENTICAL = "identical"
    """Every common value is the same, to the bit."""
    IDENTICAL_UNTIL = "identical-until"
    """The same at first: nondeterminism, or something that was changed on the way."""
    FROM_START = "from-start"
    """Different at the first common step: another seed, model, data or setting."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """A value that is not the same in both runs.

    Args:
        step: Where.
        tag: In which series.
        first: The reference's value.
        second: The other run's.
    """

    step: int
    tag: str
    first: float
    second: float

    def to_json(self) -> dict[str, Json]:
        return {"step": self.step, "tag": self.tag, "values": [number(self.first), number(self.second)]}


@dataclass(frozen=True, kw_only=True, slots=True)
class Divergence:
    """Where two runs part.

    Args:
        num_values: Values that were compared.
        start: First step at which any series is in both runs.
        exact: The first difference in any bit.
        beyond: The first difference beyond the tolerance.
    """

    num_values: int = 0
    start: int | None = None
    exact: Difference | None = None
    beyond: Difference | None = None

    @property
    def course(self) -> Agreement:
        """How far the runs go together."""
        if self.start is None:
            return Agreement.NOTHING_COMMON
        if self.exact is None:
            return Agreement.IDENTICAL
        return Agreement.FROM_START if self.exact.step <= self.start else Agreement.IDENTICAL_UNTIL

    def to_json(self) -> dict[str, Json]:
        return {
            "course": self.course.value,
            "values_compared": self.num_values,
            "start": self.start,
            "exact": None if self.exact is None else self.exact.to_json(),
            "beyond_tolerance": None if self.beyond is None else self.beyond.to_json(),
        }


def comparable(tags: Iterable[str]) -> list[str]:
    """The series that are a function of the training alone, so that a rerun gives the same numbers.

    Example:
        >>> comparable(["grad/norm@head.weight", "grad/norm", "loss", "time/step", "my/metric"])
        ['grad/norm@head.weight', 'loss']
    """
    names = [parse_tag(tag) for tag in tags]
    of_tensors = {name.where for name in names if name.where and _family(name) in _OF_TENSORS}
    whole = {None, *(where[:i] for where in of_tensors for i, letter in enumerate(where) if letter == ".")}
    return [
        str(name)
        for name in names
        if _family(name) in _STAGES
        and name.path not in _UNSTEADY
        and not (_family(name) in _OF_TENSORS and name.where in whole)
    ]


def _family(name: Tag) -> str:
    return name.path.partition("/")[0]


def ordered(tags: Sequence[str], depth: Mapping[str, int]) -> list[str]:
    """Series in the order in which a step computes them.

    Inputs, activations from first to last, the loss, gradients from last to first, the learning rate, updates, weights,
    evaluations.

    Args:
        tags: Comparable ones.
        depth: How deep in the model a parameter or module is; unknown ones count as 0.

    Example:
        >>> ordered(["weight/norm@a", "grad/norm@a", "grad/norm@b", "loss"], {"a": 0, "b": 1})
        ['loss', 'grad/norm@b', 'grad/norm@a', 'weight/norm@a']
    """

    def place(tag: str) -> tuple[int, int, int, bool, str]:
        name = parse_tag(tag)
        stage = _STAGES[_family(name)]
        deep = depth.get(name.where or "", 0)
        # What sums up several layers is known after them. Of several statistics of a tensor the norm says most.
        is_sum = int(name.where is None and name.path != "loss")
        return stage, is_sum, -deep if stage == _BACKWARD else deep, not name.path.endswith("/norm"), tag

    return sorted(tags, key=place)


def extend(
    found: Divergence, step: Int64, tags: Sequence[str], first: Float32, second: Float32, *, tolerance: float
) -> Divergence:
    """What is known once some more values have been compared.

    A value differs where its bits do, except that all measured NaNs are the same and so are both zeros; it differs
    beyond the tolerance r where |a - b| > r · max(|a|, |b|), or one of them is not finite and the other is not that.
    Means, middle percentiles and cosines, which are near zero as a rule, count there only when one of them is not
    finite. What only one run measured is not compared. Of several differences the earliest step counts, and of several
    at one step the first in the order of `tags`: some tags of the same steps after others must come in that order.

    Args:
        found: What is known so far; `Divergence()` at first.
        step: Of the columns of `first` and `second`.
        tags: Of their rows, as `ordered` gives them.
        first: The reference's values; `MISSING` where nothing was measured.
        second: The other run's.
        tolerance: At least 0.

    Example:
        >>> first, second = (np.array([[4, 3, last]], np.float32) for last in (2.0, 2.5))
        >>> found = extend(Divergence(), np.array([10, 20, 30]), ["loss"], first, second, tolerance=1e-3)
        >>> found.course.value, found.exact.step
        ('identical-until', 30)
    """
    compared = ~(is_missing(first) | is_missing(second))
    if not compared.any():
        return found
    with np.errstate(invalid="ignore", over="ignore"):
        a, b = first.astype(np.float64), second.astype(np.float64)
        differs = compared & ~((a == b) | (np.isnan(a) & np.isnan(b)))
        close = np.abs(a - b) <= tolerance * np.maximum(np.abs(a), np.abs(b))
    finite = np.isfinite(a) & np.isfinite(b)
    cancels = np.array([tag.partition("@")[0].rpartition("/")[2] in _CANCELLING for tag in tags], bool)
    beyond = differs & ~(finite & (close | cancels[:, None]))
    start = int(step[compared.any(axis=0)].min())
    return Divergence(
        num_values=found.num_values + int(np.count_nonzero(compared)),
        start=start if found.start is None else min(start, found.start),
        exact=_earlier(found.exact, step, tags, differs, (first, second)),
        beyond=_earlier(found.beyond, step, tags, beyond, (first, second)),
    )


def _earlier(
    known: Difference | None,
    step: Int64,
    tags: Sequence[str],
    differs: npt.NDArray[np.bool_],
    values: tuple[Float32, Float32],
) -> Difference | None:
    columns = np.flatnonzero(differs.any(axis=0))
    if not len(columns) or (known is not None and known.step <= int(step[columns[0]])):
        return known
    column = int(columns[0])
    row = int(np.flatnonzero(differs[:, column])[0])
    first, second = (float(side[row, column]) for side in values)
    return Difference(step=int(step[column]), tag=tags[row], first=first, second=second)
