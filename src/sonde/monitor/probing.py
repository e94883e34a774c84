"""The probes of a training: which there are, and when each has its turn."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from sonde.monitor.schedule import Schedule
from sonde.probes.activations import Activations
from sonde.probes.allocators import Allocators
from sonde.probes.attention import Attention
from sonde.probes.batches import Batches, counts_of
from sonde.probes.calls import CALLS
from sonde.probes.devices import Devices
from sonde.probes.features import Features
from sonde.probes.gains import Gains
from sonde.probes.hosts import Hosts
from sonde.probes.logits import OutputLogits
from sonde.probes.memory import Memory
from sonde.probes.parameters import Watched
from sonde.probes.phases import Phases
from sonde.probes.preflight import Preflight
from sonde.probes.probe import Probe, Reading
from sonde.probes.second_moments import SecondMoments
from sonde.probes.settings import Settings
from sonde.probes.spectra import Spectra
from sonde.probes.stopwatch import Stopwatch


class Probing:
    """All probes, each armed as the schedule says. One that fails does not take the others with it.

    Args:
        models: By name.
        optimizers: By name.
        device: Where the training runs.
        schedule: What has its turn.
        guard: Keeps our faults from the training.
        not_measured: Says, once, what cannot be measured, and why.
        parameters: Those of all optimisers.
        names: Gives the name of every parameter of the models, by its id.
        say: Told a fact that the first look at a training has found, by the name of its check.
        event: Told what else happens, by its kind.
    """

    def __init__(
        self,
        models: Mapping[str, nn.Module],
        optimizers: Mapping[str, Optimizer],
        device: torch.device,
        schedule: Schedule,
        guard: AbstractContextManager[bool | None],
        not_measured: Callable[[str, str], None],
        parameters: Callable[[], Sequence[Watched]],
        names: Callable[[], Mapping[int, str]],
        say: Callable[[str, Mapping[str, Any]], None],
        event: Callable[[str, Mapping[str, Any]], None],
    ) -> None:
        self._schedule, self._guard, self._not_measured = schedule, guard, not_measured
        self.clock = clock = Stopwatch()
        """Runs while a hook of ours keeps a forward or backward pass waiting."""
        self._phases = Phases(models, device, clock=clock)
        self._memory = Memory(models, optimizers)
        self._moments = SecondMoments(optimizers, names, num_slots=schedule.cadences.rotating.interval_steps)
        self._batches = Batches(models, clock=clock)
        spectra = Spectra(parameters)
        self._probes: list[tuple[str, Probe]] = [
            ("blocks", Activations(models, clock=clock)),
            ("blocks", Gains(models, clock=clock)),
            ("blocks", Attention(models, clock=clock)),
            ("blocks", self._moments),
            ("process", self._phases),
            ("process", Hosts()),
            ("process", Allocators(lambda: [watched.parameter.device for watched in parameters()])),
            ("resources", self._memory),
            *([("resources", Devices([device]))] if device.type == "cuda" else []),
            ("inputs", self._batches),
            ("batches", Features(models, clock=clock)),
            ("batches", OutputLogits(models, clock=clock)),
            ("spectra", spectra),
        ]
        self.preflight = Preflight(models, optimizers, say, clock=clock)
        """Chooses its iterations itself, the first ones above all."""
        self.settings = Settings(optimizers, event)
        """Looks at every step of an optimiser."""
        self._late: list[Probe] = [self._phases, spectra]
        """What they find comes in a later iteration."""
        self._is_first = True
        self._let_go: Callable[[], None] = _nothing
        with guard:
            self._let_go = CALLS.hold()  # most trainings compile in the first iteration
        self._armed: list[Probe] = []
        self._version, self._last = -1, -1
        self._turns = [0] * len(self._probes)
        """The iteration in which each probe has its next turn."""
        self._begun: set[tuple[Probe, int]] = set()
        for _, probe in self._probes:
            self._tell(probe)

    def arm(self) -> bool:
        """An iteration begins; whether a slot has its first turn in it, for which a probe may prepare much.

        Nothing is armed in the first one, which is unlike all others: cadences begin at the second.
        """
        self._armed.clear()
        if self._is_first:
            self._is_first = False
            return False
        try:
            return self._arm()
        finally:
            self._let_go()

    def _arm(self) -> bool:
        schedule = self._schedule
        with self._guard:
            self.preflight.arm()
            if self.preflight.is_armed:
                schedule.wake()
        if schedule.rests:
            return False
        iteration = schedule.iteration
        # An iteration whose step was skipped comes again.
        is_known = self._version == schedule.version and self._last < iteration
        self._version, self._last = schedule.version, iteration
        num_begun = len(self._begun)
        for place, (family, probe) in enumerate(self._probes):
            if is_known and iteration < self._turns[place]:
                continue
            slots = schedule.slots(family, probe.num_slots)
            if slots:
                self._armed.append(probe)  # also where it fails: what it has hooked by then must go
                self._begun.update((probe, slot) for slot in slots)
                with self._guard:
                    probe.arm(slots)
            self._turns[place] = schedule.next_turn(family, probe.num_slots)
        return len(self._begun) > num_begun

    def rest(self, *, is_step: bool) -> bool:
        """An iteration that rests is over, or where it is none a micro-step, and the next begins.

        Returns:
            False where there is more to do than to count it: then nothing was done, and `collect` and `arm` are to be
            called.
        """
        if is_step:
            return self.preflight.rest()
        self.preflight.loss(None)
        return True

    def collect(self) -> list[Reading]:
        """It is over."""
        readings: list[Reading] = []
        if self._schedule.rests:
            with self._guard:
                readings += self.preflight.collect()
            return readings
        armed = self._armed
        for probe in [p for _, p in self._probes if p in armed or p in self._late] if armed else self._late:
            with self._guard:
                readings += probe.collect()
        with self._guard:
            readings += self.preflight.collect()
        with self._guard:
            readings += self.settings.collect()
        for probe in armed:
            with self._guard:
                self._tell(probe)
        return readings

    def _tell(self, probe: Probe) -> None:
        for tag, reason in probe.not_measured().items():
            self._not_measured(tag, reason)

    def before_optimizer(self, optimizer: Optimizer, *, has_closure: bool) -> None:
        """An optimiser is about to make its step."""
        self.preflight.before_optimizer(optimizer)
        self.settings.before_step(optimizer)
        if not self._armed:
            return
        self._phases.mark("monitor")
        if not has_closure:
            self._moments.before_step(optimizer)

    def at_optimizer(self) -> None:
        """Nothing of ours comes in between any more."""
        self._phases.mark("monitor-done")
        self._phases.mark("optimizer")

    def awaits_update(self) -> None:
        """The same where the script updates by hand: when that is seen, the gradients may be gone."""
        self._memory.mark("optimizer-done")
        self._phases.mark("monitor-done")

    def after_optimizer(self, optimizer: Optimizer, *, has_closure: bool) -> None:
        """It has made its step."""
        self.preflight.after_optimizer(optimizer)
        if not self._armed:
            return
        self._phases.mark("optimizer-done")
        self._phases.mark("monitor")
        self._memory.mark("optimizer-done")
        if has_closure:
            self._moments.before_step(optimizer)

    def clip(self, *, is_done: bool) -> None:
        """Torch clips gradients, or has: what we do about that is told by `pause` and `resume`."""
        self._phases.mark("clip-done" if is_done else "clip")

    def begin(self) -> None:
        """The iteration that was armed begins: the training goes on."""
        self._phases.begin()

    def pause(self) -> None:
        """The training waits for us."""
        self._phases.mark("monitor")

    def resume(self) -> None:
        """It goes on."""
        self._phases.mark("monitor-done")

    def waited(self, seconds: float) -> None:
        """The iteration has waited for data until now."""
        self._phases.waited(seconds)

    def batch(self, batch: Any) -> dict[str, int]:
        """A batch on its way to the model: how many samples and tokens it has, where that can be told."""
        samples, tokens = counts_of(batch)
        if not self._schedule.rests:
            targets = _targets(batch)
            self._batches.labels(targets)
            self.preflight.batch(batch, targets)
        found = {"samples": samples, "tokens": tokens}
        return {quantity: count for quantity, count in found.items() if count is not None}

    def close(self) -> None:
        """Let go of everything, also in the middle of an iteration."""
        for close in [*(probe.close for _, probe in self._probes), self.preflight.close, self.settings.close]:
            with self._guard:
                close()
        self._let_go()
        self._begun.clear()


def _nothing() -> None: ...


def _targets(batch: Any) -> Any:
    """The labels of a batch by the two customs there are: the second of a pair, or an entry with such a name."""
    if isinstance(batch, Mapping):
        return next((batch[name] for name in ("labels", "label", "targets", "target", "y") if name in batch), None)
    return batch[1] if isinstance(batch, tuple | list) and len(batch) == 2 else None
