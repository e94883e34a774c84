"""Whether the running squares that Adam and its relatives divide by still fit the gradients.

With v a tensor's running mean of squares (`exp_avg_sq`; under amsgrad the largest so far, `max_exp_avg_sq`), t its
number of steps and v̂ = v/(1 − β₂ᵗ), the step divides by √v̂ + ε.
"""

import itertools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeGuard, final

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from sonde.core.frames import MISSING, Columns, Detail
from sonde.core.records import Float64
from sonde.kernels import TensorStats
from sonde.kernels.columns import NUM_COLUMNS, Column, rms, zero_fraction
from sonde.kernels.histograms import NUM_BINS, SHIFT, edges
from sonde.probes.events import Events
from sonde.probes.parameters import num_parameters, of_optimizer
from sonde.probes.probe import Reading, Row, columns_at
from sonde.probes.settings import on_host

# Which parameters have a gradient may change at every step (experts); what was prepared for them must not pile up.
_MOST_PREPARED = 256
_SLOT = operator.attrgetter("slot")

_BINS, _LOWER, _UPPER = edges()
_LOWER, _UPPER = _LOWER[_BINS < NUM_BINS // 2], _UPPER[_BINS < NUM_BINS // 2]  # of values that are not negative


class SecondMoment(NamedTuple):
    """What is known of the running squares of n tensors after a step, an entry or row a tensor.

    Attributes:
        gradient: Rows of statistics of the gradients, as the optimiser got them.
        rows: Rows of statistics of v.
        below: Counted values of v in bins below the window.
        window: Counted values of v in each bin of the window.
        counted: Counted values of v.
        step: t.
        beta2: β₂.
        epsilon: ε.
        first_bin: Where the window begins (see `sonde.kernels.histograms`).
    """

    gradient: Float64
    rows: Float64
    below: Float64
    window: Float64
    counted: Float64
    step: Float64
    beta2: Float64
    epsilon: Float64
    first_bin: int


def threshold_bins(settings: Iterable[tuple[float, float]]) -> range:
    """The histogram bins in which ε²(1 − β₂ᵗ) may lie, whatever t ≥ 1 is, for pairs (β₂, ε).

    That is what v is compared with: √v̂ < ε where v < ε²(1 − β₂ᵗ), and 1 − β₂ᵗ lies between 1 − β₂ and 1. So t, which
    may be on the device, need not be known to cut a histogram down to a few dozen numbers.

    Example:
        >>> len(threshold_bins([(0.999, 1e-8)]))
        41
    """
    pairs = list(settings)
    lowest = min((_bin(epsilon**2 * (1 - beta2)) for beta2, epsilon in pairs), default=0)
    highest = max((_bin(epsilon**2) for _, epsilon in pairs), default=-1)
    return range(lowest, highest + 1)


def _bin(value: float) -> int:
    finite = min(max(value, 0.0), float(np.finfo(np.float32).max))
    return int(np.float32(finite).view(np.uint32) >> SHIFT)


def health(moment: SecondMoment) -> Float64:
    """(n, 3): the ratio, the share below ε and the share of zeros (see `SecondMoments`).

    All `MISSING` of a tensor with t < 1: the step was withheld. The ratio is `MISSING` where v and the gradient are
    zero, infinite where v alone is, NaN where a value of either is not finite.
    """
    correction = 1 - moment.beta2**moment.step
    mean = np.where(moment.rows[:, Column.NONFINITE] > 0, np.nan, moment.rows[:, Column.MEAN])
    square = rms(moment.gradient) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where((mean == 0) & (square == 0), MISSING, square * correction / mean)
        threshold = moment.epsilon**2 * correction
        bins = np.arange(moment.first_bin, moment.first_bin + moment.window.shape[1])
        lower, upper = _LOWER[bins], _UPPER[bins]
        # Inside its bin the threshold divides the values as if they were spread evenly. The first bin has no width:
        # what is in there, zeros above all, counts as below any ε but 0.
        part = np.where(upper > lower, (threshold[:, None] - lower) / (upper - lower), threshold[:, None] > 0)
        share = (moment.below + np.sum(np.clip(part, 0, 1) * moment.window, axis=1)) / moment.counted
        found = np.stack([ratio, share, zero_fraction(moment.rows)], axis=1)
    return np.where(moment.step[:, None] < 1, MISSING, found)


class _Member(NamedTuple):
    """A parameter of an optimiser."""

    name: str
    parameter: Tensor
    group: int
    slot: int


@dataclass(slots=True)
class _Followed:
    """An optimiser and its parameters, as they were when last looked at."""

    name: str
    optimizer: Optimizer
    place: int
    """Among those that are followed."""
    num: int = -1
    members: list[_Member] = field(default_factory=list)


class _Before(NamedTuple):
    """What was read before an optimiser's step."""

    members: list[_Member]
    rows: Tensor
    scale: list[Tensor]
    """One where the gradients were scaled, else none."""


@final
class SecondMoments:
    """A probe of all optimisers that keep `exp_avg_sq`: Adam, AdamW, NAdam, RAdam and others with that key.

    For each tensor P of the slots that have their turn, where its optimiser made a step:

    - `adam/v_ratio@P` = mean(g²)/mean(v̂): about 1 where gradients are as they were, far above after a jump, far below
      while old, large gradients are still remembered. g is the gradient that the optimiser got, without a weight decay
      that it adds itself.
    - `adam/epsilon_share@P`: the share of elements with √v̂ < ε, whose steps ε damps. From the histogram of v: exact but
      for elements with √v̂ within 12% of ε; of a tensor of 65,536 values or more a sample is counted. Elements with
      v = 0 are among them. (RAdam adds ε to √v instead, which is more while t is small.)
    - `adam/zero_share@P`: the share of elements with v exactly 0 after a step: squares that underflow, or elements that
      never had a gradient (rows of an embedding).

    An amsgrad step divides by the largest v so far, so that is v here. Gradients are read at the step: afterwards they
    are gone, or unscaled. Slot s has the tensors s, s + num_slots, … of each optimiser.
    A pass over g and one over v, on their device; t is read there where it is there.

    Not measured: sparse gradients, sharded tensors, states without `exp_avg_sq`, settings that are on a device.

    Args:
        optimizers: By name, empty where there is only one.
        names: Gives the parameters' names by their `id` (see `parameter_names`); asked again when an optimiser has more
            of them.
        num_slots: Over how many turns the tensors are spread, at least 1; larger means less work in each.

    References:
        Kingma, Ba: Adam: a method for stochastic optimization. ICLR 2015, algorithm 1.
        Reddi, Kale, Kumar: On the convergence of Adam and beyond. ICLR 2018 (amsgrad).
        Wortsman et al.: Stable and low-precision training for large-scale vision-language models. NeurIPS 2023 (an
        element-wise form of the ratio, as a forerunner of loss spikes).
    """

    yields: Mapping[str, str] = {
        "adam/v_ratio@": "mean square of the gradient over the mean of Adam's bias-corrected running square",
        "adam/epsilon_share@": "share of elements whose root of the running square is below epsilon",
        "adam/zero_share@": "share of elements whose running square is exactly zero after a step",
    }

    def __init__(
        self, optimizers: Mapping[str, Optimizer], names: Callable[[], Mapping[int, str]], *, num_slots: int = 8
    ) -> None:
        if num_slots < 1:
            raise ValueError(f"`SecondMoments(num_slots=...)` must be at least 1, got {num_slots}.")
        self._names = names
        self._num_slots = num_slots
        self._followed: dict[int, _Followed] = {}
        self._not_measured: dict[str, str] = {}
        self._prepared: dict[Any, TensorStats] = {}
        self._armed: list[int] = []
        self._before: dict[int, _Before] = {}
        for name, optimizer in optimizers.items():
            if any(_settings(group) is not None for group in optimizer.param_groups):
                self._followed[id(optimizer)] = _Followed(name, optimizer, len(self._followed))
            else:
                where = f"@{name}" if name else ""
                reason = f"{type(optimizer).__name__} has no betas and eps to judge running squares by"
                self._not_measured[f"adam/*{where}"] = reason

    @property
    def num_slots(self) -> int:
        """As given; 0 where no optimiser is of that kind."""
        return self._num_slots if self._followed else 0

    def arm(self, slots: Sequence[int]) -> None:
        """Have the gradients of these slots read before the next step."""
        self._armed = list(dict.fromkeys(slots))
        self._before.clear()

    def listen(self, events: Events) -> None:
        """Be told when the gradients of an optimiser are as it uses them."""
        events.gradients.append(self.read_gradients)

    def read_gradients(self, optimizer: Optimizer) -> None:
        """Read the gradients that an optimiser uses; of two steps in an iteration the later counts."""
        if self._armed and (followed := self._followed.get(id(optimizer))) is not None:
            self._read_gradients(optimizer, followed)

    @torch.no_grad()  # which costs as much as all other questions in a step that has no turn
    def _read_gradients(self, optimizer: Optimizer, followed: _Followed) -> None:
        self._look(followed)
        turn = [member for slot in self._armed for member in followed.members[slot :: self._num_slots]]
        members = [member for member in turn if self._has_gradient(member, followed.members[0].parameter.device)]
        gradients = [member.parameter.grad for member in members if member.parameter.grad is not None]
        if gradients:
            rows = self._stats("gradient", members, gradients)(gradients).rows
            scale = getattr(optimizer, "grad_scale", None)  # set on fused optimisers by a gradient scaler
            scales = [scale.detach().clone()] if isinstance(scale, Tensor) else []  # the scaler changes it in place
            self._before[id(optimizer)] = _Before(members, rows, scales)

    @torch.no_grad()
    def collect(self) -> Sequence[Reading]:
        """A reading for every optimiser that made a step."""
        readings = [
            reading for key, before in self._before.items() for reading in self._read(self._followed[key], before)
        ]
        self._armed = []
        self._before.clear()
        return readings

    def not_measured(self) -> Mapping[str, str]:
        """Optimisers and parameters that are left out, each with its reason."""
        return dict(self._not_measured)

    def close(self) -> None:
        """Let go of optimisers and tensors."""
        self._armed = []
        self._before.clear()
        self._followed.clear()
        self._prepared.clear()
        self._names = dict

    def _look(self, followed: _Followed) -> None:
        """Notice parameters that were added."""
        num = num_parameters(followed.optimizer)
        if num != followed.num:
            groups = {id(p): i for i, group in enumerate(followed.optimizer.param_groups) for p in group["params"]}
            watched = of_optimizer(followed.optimizer, self._names(), followed.name)
            members = [_Member(*w, groups[id(w.parameter)], i % self._num_slots) for i, w in enumerate(watched)]
            followed.num, followed.members = num, members

    def _has_gradient(self, member: _Member, device: torch.device) -> bool:
        gradient = member.parameter.grad
        if gradient is None:
            return False
        reason = None
        if gradient.layout is not torch.strided:
            reason = "its gradient is sparse"
        elif hasattr(gradient, "__tensor_flatten__"):  # DTensor and the like: its values lie inside of other tensors
            reason = f"its gradient is a {type(gradient).__name__}"
        elif gradient.device != device:
            reason = f"it is on {gradient.device}, the optimiser's first parameter is on {device}"
        if reason is not None:
            self._not_measured[f"adam/*@{member.name}"] = reason
        return reason is None

    def _stats(self, kind: str, members: Sequence[_Member], tensors: Sequence[Tensor]) -> TensorStats:
        key = kind, tuple(member.name for member in members), tuple(t.dtype for t in tensors), tensors[0].device
        if key not in self._prepared:
            if len(self._prepared) >= _MOST_PREPARED:
                self._prepared.clear()
            self._prepared[key] = TensorStats(tensors)
        return self._prepared[key]

    def _read(self, followed: _Followed, before: _Before) -> Iterable[Reading]:
        groups = [(group, _settings(group)) for group in followed.optimizer.param_groups]
        found: list[tuple[Any, ...]] = []
        for place, member in enumerate(before.members):
            group, pair = groups[member.group]
            state: Mapping[str, Any] = followed.optimizer.state.get(member.parameter, {})
            moment = state.get("max_exp_avg_sq" if group.get("amsgrad") else "exp_avg_sq")
            step = state.get("step", group.get("step"))
            reason = _trouble(moment, step, pair, before.rows.device)
            if reason is None:
                found.append((place, moment, pair, step))
            else:
                self._not_measured[f"adam/*@{member.name}"] = reason
        if not found:
            return
        places, moments, settings, steps = map(list, zip(*found, strict=True))
        members = [before.members[place] for place in places]
        stats = self._stats("moment", members, moments)(moments, histogram=True)
        assert stats.histogram is not None
        bins = threshold_bins(settings)
        positive = stats.histogram[:, : NUM_BINS // 2]
        below, window = positive[:, : bins.start].sum(1), positive[:, bins.start : bins.stop]
        tensors = [before.rows, stats.rows, below, positive.sum(1), window, *before.scale]
        if late := [step.reshape(()) for step in steps if _is_away(step)]:
            tensors.append(torch.stack(late))
        table, tags = f"second-moments-{followed.place}", tuple(self.yields)
        columns = [
            columns_at(f"{table}-{slot}", tags, tuple(member.name for member in some), Detail.LAYER)
            for slot, some in itertools.groupby(members, _SLOT)
        ]
        host_steps = [math.nan if _is_away(step) else float(step) for step in steps]
        yield Reading(
            tensors, _Report(columns, len(before.members), places, settings, host_steps, bins, bool(before.scale))
        )


@dataclass(frozen=True, slots=True)
class _Report:
    """Works the numbers of one optimiser out, in the background."""

    columns: list[Columns]
    """Of each slot in turn."""
    num_gradients: int
    places: list[int]
    """Of the tensors among those whose gradients were read."""
    settings: list[tuple[float, float]]
    steps: list[float]
    """NaN where the number is among those of the device."""
    bins: range
    is_scaled: bool

    def __call__(self, numbers: Float64) -> Iterable[Row]:
        num = len(self.places)
        sizes = [self.num_gradients * NUM_COLUMNS, num * NUM_COLUMNS, num, num, num * len(self.bins), self.is_scaled]
        gradient, rows, below, counted, window, scale, late = np.split(numbers, np.cumsum(sizes))
        gradient = gradient.reshape(-1, NUM_COLUMNS)[self.places]
        if self.is_scaled:
            gradient[:, Column.MEAN] /= scale[0]
            gradient[:, Column.M2] /= scale[0] ** 2
        step = np.array(self.steps)
        step[np.isnan(step)] = late
        beta2, epsilon = np.array(self.settings).T
        rows, window = rows.reshape(-1, NUM_COLUMNS), window.reshape(num, -1)
        moment = SecondMoment(gradient, rows, below, window, counted, step, beta2, epsilon, self.bins.start)
        parts = np.split(health(moment).reshape(-1), np.cumsum([columns.width for columns in self.columns])[:-1])
        return [Row(columns, part) for columns, part in zip(self.columns, parts, strict=True)]


def _settings(group: Mapping[str, Any]) -> tuple[float, float] | None:
    """β₂ and ε of a group, None where it lacks one of them or has it on a device."""
    betas = group.get("betas")
    if not isinstance(betas, (tuple, list)) or len(betas) < 2:
        return None
    beta2, epsilon = on_host(betas[1]), on_host(group.get("eps"))
    return None if beta2 is None or epsilon is None else (beta2, epsilon)


def _is_away(step: Any) -> TypeGuard[Tensor]:
    return isinstance(step, Tensor) and step.device.type != "cpu"


def _trouble(moment: Any, step: Any, pair: tuple[float, float] | None, device: torch.device) -> str | None:
    """Why a tensor's running squares cannot be measured, None where they can."""
    if not isinstance(moment, Tensor):
        return "its optimiser keeps no exp_avg_sq for it"
    if hasattr(moment, "__tensor_flatten__"):
        return f"its running squares are a {type(moment).__name__}"
    if moment.layout is not torch.strided or not (moment.is_floating_point() or moment.is_complex()):
        return "its running squares are no floating-point values in plain memory"
    if moment.device != device:
        return f"its running squares are on {moment.device}, its gradient is on {device}"
    if not isinstance(step, (Tensor, int, float)):
        return "its optimiser does not say how many steps it made"
    if _is_away(step) and step.device != device:
        return f"its number of steps is on {step.device}"
    if pair is None:
        return "the betas or eps of its group are missing or on a device"
    return None
