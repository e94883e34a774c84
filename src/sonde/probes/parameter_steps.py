"""The probe of gradients, weights and updates: listens to the steps of all optimisers."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from sonde.probes.events import Events
from sonde.probes.gradient_flow import GradientFlow
from sonde.probes.gradients import Gradients
from sonde.probes.optimizer_numbers import Key, Part, StepNote
from sonde.probes.optimizer_report import OptimizerReport
from sonde.probes.optimizers import WatchedOptimizer
from sonde.probes.probe import Reading
from sonde.probes.schedule import Schedule
from sonde.probes.seams import Clip, ScalerStep
from sonde.probes.weights import Weights


class _Followed:
    """One optimiser."""

    def __init__(self, watched: WatchedOptimizer, schedule: Schedule, label: str, flow: GradientFlow) -> None:
        self.watched = watched
        self.gradients, self.weights = Gradients(watched, schedule), Weights(watched, schedule)
        steps = watched.cadences.histograms.interval_steps
        self.report = OptimizerReport(watched.name, label, histogram_steps=steps, flow=flow)

    def refresh(self) -> None:
        if self.watched.refresh():
            self.weights.refreshed()


class ParameterSteps:
    """Measures gradients, weights and updates of all parameters around the steps of their optimisers.

    Args:
        watched: The optimisers.
        schedule: What has its turn.
        on: What is measured: `gradients`, and `weights` with their updates.
        blocks: For each model the names of its blocks in the order of depth.
    """

    def __init__(
        self,
        watched: Sequence[WatchedOptimizer],
        schedule: Schedule,
        on: frozenset[str],
        blocks: Sequence[Sequence[str]],
    ) -> None:
        labels = _labels([one.name for one in watched])
        self._schedule, self._has_gradients, self._has_weights = schedule, "gradients" in on, "weights" in on
        self._flow = GradientFlow(blocks)
        self._flow_reading = Reading((), self._flow)
        self._followed = {id(one.optimizer): _Followed(one, schedule, labels[one.name], self._flow) for one in watched}
        for one in watched:
            if one.on_gpu:
                self._followed[id(one.optimizer)].weights.warm_up()

    def listen(self, events: Events) -> None:
        """Begin to listen."""
        events.optimizer_enters.append(self._enters)
        events.optimizer_left.append(self._left)
        if self._has_gradients:
            events.gradients.append(self._gradients)
            events.clip.append(self._clip)
            events.scaler_step.append(self._scaler_step)
        events.starts_over.append(self._start_over)

    def _enters(self, optimizer: Optimizer) -> None:
        followed = self._followed[id(optimizer)]
        followed.refresh()
        watched = followed.watched
        grad_scale = getattr(optimizer, "grad_scale", None)  # a gradient scaler sets it on a fused optimiser
        if isinstance(grad_scale, Tensor):
            watched.numbers.add(Key(Part.GRAD_SCALE), grad_scale.detach().clone())  # which changes it in place
        if watched.sharing is not None:
            watched.sharing.begin()
        if self._has_weights and not watched.is_blind:
            followed.weights.copy()

    def _gradients(self, optimizer: Optimizer) -> None:
        followed = self._followed[id(optimizer)]
        if not followed.watched.is_blind:
            followed.gradients.use()

    def _left(self, optimizer: Optimizer) -> None:
        followed = self._followed[id(optimizer)]
        watched = followed.watched
        try:
            if self._has_weights and not watched.is_blind:
                followed.weights.read()
        finally:
            followed.gradients.let_go()
            if watched.sharing is not None:  # the other ranks wait for us, whatever went wrong
                watched.sharing.finish(watched.numbers)

    def _clip(self, clip: Clip) -> None:
        for followed in self._followed.values():
            followed.refresh()
            if not followed.watched.is_blind:
                followed.gradients.clip(clip)

    def _start_over(self, optimizer: Optimizer) -> None:
        followed = self._followed[id(optimizer)]
        followed.watched.numbers.forget_gradients()
        followed.gradients.begin()
        followed.weights.begin()

    def _scaler_step(self, event: ScalerStep) -> None:
        followed = self._followed.get(id(event.optimizer))
        if followed is not None and event.scale is not None:
            scale = event.scale.detach().clone()
            followed.watched.numbers.add(Key(Part.SCALE), scale)
            if event.unscaled_here:
                followed.watched.numbers.add(Key(Part.CLIP_SCALE), scale)

    def collect(self) -> Sequence[Reading]:
        """A reading for each optimiser that has numbers, then one of all together."""
        found = [reading for followed in self._followed.values() if (reading := self._reading(followed)) is not None]
        return [*found, self._flow_reading] if found else found

    def state_dict(self) -> dict[str, Any]:
        """What the next session needs to know of each optimiser, by its name."""
        return {each.watched.name: each.report.history.state_dict() for each in self._followed.values()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another session stopped; optimisers that it did not have begin anew."""
        for followed in self._followed.values():
            if followed.watched.name in state:
                followed.report.history.load_state_dict(state[followed.watched.name])

    def _reading(self, followed: _Followed) -> Reading | None:
        watched = followed.watched
        followed.gradients.begin()
        followed.weights.begin()
        if (vector := watched.take_plain()) is not None:
            report = partial(followed.report.plain, self._schedule.iteration, watched.names, vector)
            return Reading((), report, optimizer=watched.name)
        numbers = watched.take()
        if not (numbers.tensors or numbers.clips):
            return None
        keys, tensors, num_essential = numbers.in_order()
        note = StepNote(
            keys=keys,
            sizes=[tensor.numel() for tensor in tensors],
            iteration=self._schedule.iteration,
            clips=numbers.clips,
            is_incomplete=numbers.is_incomplete,
            has_whole_updates=numbers.has_whole_updates,
            has_layers=numbers.has_layers,
            infinite=numbers.infinite,
        )
        return Reading(tensors, partial(followed.report, note), optimizer=watched.name, num_essential=num_essential)

    def not_measured(self) -> Mapping[str, str]:
        """Said where it is found."""
        return {}

    def close(self) -> None:
        """Let go of the optimisers."""
        self._followed.clear()


def _labels(optimizers: Sequence[str]) -> dict[str, str]:
    """A part of a table's name for each optimiser: its own as far as that is allowed, its number where it is not."""
    plain = {name: re.sub(r"[^a-z0-9_-]", "-", name.lower())[:32] for name in optimizers}
    times = Counter(plain.values())
    return {
        name: label if times[label] == 1 and label == name.lower() else f"{i}-{label}"[:40]
        for i, (name, label) in enumerate(plain.items())
    }
