"""The probes of a training: which there are, and when each has its turn."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from sonde.monitor.guard import Guard
from sonde.probes.activations import Activations
from sonde.probes.allocators import Allocators
from sonde.probes.attention import Attention
from sonde.probes.batches import Batches
from sonde.probes.blocks import blocks_of
from sonde.probes.calls import CALLS
from sonde.probes.devices import Devices
from sonde.probes.events import Events
from sonde.probes.features import Features
from sonde.probes.gains import Gains
from sonde.probes.hosts import Hosts
from sonde.probes.learning_rates import LearningRates
from sonde.probes.logits import OutputLogits
from sonde.probes.memory import Memory
from sonde.probes.optimizers import WatchedOptimizer
from sonde.probes.parameter_steps import ParameterSteps
from sonde.probes.parameters import Watched
from sonde.probes.phases import Phases
from sonde.probes.preflight import Preflight
from sonde.probes.probe import Probe, Reading, Standing
from sonde.probes.schedule import Schedule
from sonde.probes.second_moments import SecondMoments
from sonde.probes.settings import Settings
from sonde.probes.spectra import Spectra
from sonde.probes.stopwatch import Stopwatch


class ProbeSet:
    """All probes, each armed as the schedule says. One that fails does not take the others with it.

    Args:
        models: By name.
        optimizers: By name.
        watched: The same, with what is known of their parameters.
        device: Where the training runs.
        schedule: What has its turn.
        events: What the probes listen to.
        guard: Keeps our faults from the training.
        not_measured: Says, once, what cannot be measured, and why.
        names: Gives the name of every parameter of the models, by its id.
        say: Told a fact that the first look at a training has found, by the name of its check.
        put_event: Told what else happens, by its kind.
    """

    def __init__(
        self,
        models: Mapping[str, nn.Module],
        optimizers: Mapping[str, Optimizer],
        watched: Sequence[WatchedOptimizer],
        device: torch.device,
        schedule: Schedule,
        events: Events,
        guard: Guard,
        not_measured: Callable[[str, str], None],
        names: Callable[[], Mapping[int, str]],
        say: Callable[[str, Mapping[str, Any]], None],
        put_event: Callable[[str, Mapping[str, Any]], None],
    ) -> None:
        self._schedule, self._guard, self._not_measured = schedule, guard, not_measured

        def parameters() -> Sequence[Watched]:
            return [parameter for one in watched for parameter in one.watched]

        self.clock = clock = Stopwatch()
        """Runs while a hook of ours keeps a forward or backward pass waiting."""
        phases, spectra = Phases(models, device, clock=clock), Spectra(parameters)
        self._sampled: list[tuple[str, Probe]] = [
            ("blocks", Activations(models, clock=clock)),
            ("blocks", Gains(models, clock=clock)),
            ("blocks", Attention(models, clock=clock)),
            ("blocks", SecondMoments(optimizers, names, num_slots=schedule.cadences.rotating.interval_steps)),
            ("process", phases),
            ("process", Hosts()),
            ("process", Allocators(lambda: [parameter.device for _, parameter in parameters()])),
            ("resources", Memory(models, optimizers)),
            *([("resources", Devices([device]))] if device.type == "cuda" else []),
            ("inputs", Batches(models, clock=clock)),
            ("batches", Features(models, clock=clock)),
            ("batches", OutputLogits(models, clock=clock)),
            ("spectra", spectra),
        ]
        self._late: list[Probe] = [phases, spectra]
        """What they find comes in a later iteration."""
        self._preflight = Preflight(models, optimizers, say, clock=clock)
        blocks = [[block.name for block in blocks_of({name: model})] for name, model in models.items()]
        self._steps, self._rates = ParameterSteps(watched, schedule, blocks), LearningRates(optimizers)
        self._standing: list[Standing] = [
            self._rates,
            self._steps,
            self._preflight,
            Settings(optimizers, put_event),
        ]
        for probe in (*self._standing, *(probe for _, probe in self._sampled)):
            listen = getattr(probe, "listen", None)
            if listen is not None:
                listen(events)
        self._is_first = True
        self._let_go: Callable[[], None] = _nothing
        with guard:
            self._let_go = CALLS.hold()  # most trainings compile in the first iteration
        self._armed: list[Probe] = []
        self._begun: set[tuple[Probe, int]] = set()
        for _, probe in self._sampled:
            self._tell(probe)

    def arm(self) -> bool:
        """An iteration begins; whether a slot has its first turn in it, for which a probe may prepare much.

        Nothing is armed in the first one, which is unlike all others: cadences begin at the second.
        """
        self._armed.clear()
        if self._is_first:
            self._is_first = False
            return False
        num_begun = len(self._begun)
        with self._guard:
            self._preflight.arm()
        for family, probe in self._sampled:
            slots = self._schedule.slots(family, probe.num_slots)
            if slots:
                self._armed.append(probe)  # also where it fails: what it has hooked by then must go
                self._begun.update((probe, slot) for slot in slots)
                with self._guard:
                    probe.arm(slots)
        self._let_go()
        return len(self._begun) > num_begun

    def collect(self) -> list[Reading]:
        """An iteration with a step is over."""
        readings: list[Reading] = []
        armed = self._armed
        sampled = [p for _, p in self._sampled if p in armed or p in self._late] if armed else self._late
        everyone: list[Probe | Standing] = [*self._standing, *sampled]
        for probe in everyone:
            with self._guard:
                readings += probe.collect()
        for probe in armed:
            with self._guard:
                self._tell(probe)
        return readings

    def discard(self) -> list[Reading]:
        """A micro-step is over: what was read of parameters is not what will be applied."""
        for probe in (self._rates, self._steps):
            with self._guard:
                probe.collect()
        return []

    def state_dict(self) -> dict[str, Any]:
        """What the next session needs to go on without a jump."""
        return {"optimizers": self._steps.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another session stopped."""
        self._steps.load_state_dict(state.get("optimizers", {}))

    def _tell(self, probe: Probe) -> None:
        for tag, reason in probe.not_measured().items():
            self._not_measured(tag, reason)

    def close(self) -> None:
        """Let go of everything, also in the middle of an iteration."""
        everyone: list[Probe | Standing] = [*(probe for _, probe in self._sampled), *self._standing]
        for probe in everyone:
            with self._guard:
                probe.close()
        self._let_go()
        self._begun.clear()


def _nothing() -> None: ...
