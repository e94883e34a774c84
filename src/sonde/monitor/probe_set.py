"""The probes of a training: which there are, and when each has its turn."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from sonde.monitor.guard import Guard
from sonde.monitor.notices import Notices
from sonde.probes.activations import Activations
from sonde.probes.allocators import Allocators
from sonde.probes.attention import Attention
from sonde.probes.batches import Batches
from sonde.probes.blocks import blocks_of
from sonde.probes.calls import CALLS
from sonde.probes.devices import Devices
from sonde.probes.events import Events
from sonde.probes.features import Features
from sonde.probes.flops import Flops
from sonde.probes.gains import Gains
from sonde.probes.hosts import Hosts
from sonde.probes.learning_rates import LearningRates
from sonde.probes.logits import OutputLogits
from sonde.probes.memory import Memory
from sonde.probes.module_shapes import ModuleShapes
from sonde.probes.operators import Operators
from sonde.probes.optimizers import WatchedOptimizer
from sonde.probes.parameter_steps import ParameterSteps
from sonde.probes.parameters import Watched, devices_of
from sonde.probes.phases import Phases
from sonde.probes.predictiveness import Predictiveness
from sonde.probes.preflight import Preflight
from sonde.probes.probe import Probe, Reading, Standing
from sonde.probes.reductions import Reductions
from sonde.probes.schedule import Schedule
from sonde.probes.second_moments import SecondMoments
from sonde.probes.settings import Settings
from sonde.probes.spectra import Spectra
from sonde.probes.stopwatch import Stopwatch
from sonde.probes.trivial_loss import TrivialLoss

_PROFILED_STEPS, _WARM_UP_STEPS = 3, 10  # where the configuration asks for it: the first steps are unlike others
_TAGS = {
    "learning_rates": ("lr*",),
    "gradients": ("grad/*", "clip/*", "amp/*"),
    "weights": ("weight/*", "update/*"),
    "preflight": ("preflight",),
}
"""What comes of those that do not say it themselves."""


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
        notices: Say what cannot be measured, and what the first look at a training has found.
        names: Gives the name of every parameter of the models, by its id.
        put_event: Told what else happens, by its kind.
        shapes: Notes those of modules at the first step.
        on: The names of the probes that measure: all others are switched off.
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
        notices: Notices,
        *,
        names: Callable[[], Mapping[int, str]],
        put_event: Callable[[str, Mapping[str, Any]], None],
        shapes: ModuleShapes,
        on: frozenset[str],
    ) -> None:
        self._schedule, self._guard, self._notices = schedule, guard, notices

        def parameters() -> Sequence[Watched]:
            return [parameter for one in watched for parameter in one.watched]

        self.clock = clock = Stopwatch()
        """Runs while a hook of ours keeps a forward or backward pass waiting."""
        phases, spectra = Phases(models, device, clock=clock), Spectra(parameters)
        sampled: dict[str, tuple[str, Probe]] = {
            "activations": ("blocks", Activations(models, clock=clock)),
            "gains": ("blocks", Gains(models, clock=clock)),
            "attention": ("blocks", Attention(models, clock=clock)),
            "second_moments": (
                "blocks",
                SecondMoments(optimizers, names, num_slots=schedule.cadences.rotating.interval_steps),
            ),
            "phases": ("process", phases),
            "predictiveness": ("process", Predictiveness(models, clock=clock)),
            "hosts": ("process", Hosts()),
            "allocators": ("process", Allocators(lambda: [parameter.device for _, parameter in parameters()])),
            "memory": ("resources", Memory(models, optimizers)),
            "flops": ("resources", Flops(models, clock=clock)),
            "reductions": ("resources", Reductions(models)),
            **({"devices": ("resources", Devices(devices_of(optimizers)))} if device.type == "cuda" else {}),
            "batches": ("inputs", Batches(models, clock=clock)),
            "trivial_loss": ("trivial_loss", TrivialLoss(models, clock=clock)),
            "features": ("batches", Features(models, clock=clock)),
            "logits": ("batches", OutputLogits(models, clock=clock)),
            "spectra": ("spectra", spectra),
        }
        self._preflight = Preflight(models, optimizers, notices.preflight, clock=clock)
        self._operators = Operators(device, put_event)
        blocks = [[block.name for block in blocks_of({name: model})] for name, model in models.items()]
        self._steps = ParameterSteps(watched, schedule, on, blocks)
        standing: dict[str, Standing] = {
            "learning_rates": LearningRates(optimizers),
            "parameters": self._steps,
            "preflight": self._preflight,
            "settings": Settings(optimizers, put_event),
            "operators": self._operators,
            "module_shapes": shapes,
        }
        if "operators" in on:
            self._operators.request(_PROFILED_STEPS, after=_WARM_UP_STEPS)
        on |= {"parameters", "operators", "module_shapes"}
        made: dict[str, Probe | Standing] = {**standing, **{name: probe for name, (_, probe) in sampled.items()}}
        for name in sorted((made.keys() | _TAGS.keys()) - on):
            for tag in _TAGS.get(name) or [f"{tag}*" for tag in getattr(made[name], "yields", ())]:
                notices.not_measured(tag, f"switched off: `probes.{name}` is false")
            if name in made:
                made[name].close()
        self._sampled = [one for name, one in sampled.items() if name in on]
        self._late: list[Probe] = [probe for _, probe in self._sampled if probe in (phases, spectra)]
        """What they find comes in a later iteration."""
        self._standing = [probe for name, probe in standing.items() if name in on]
        self._discarded = [probe for probe in self._standing if isinstance(probe, LearningRates | ParameterSteps)]
        """What they have read in a micro-step is not what will be applied."""
        for probe in (*self._standing, *(probe for _, probe in self._sampled)):
            listen = getattr(probe, "listen", None)
            if listen is not None:
                listen(events)
        self._is_first, self._is_preflight_on = True, "preflight" in on
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
            if self._is_preflight_on:
                self._preflight.arm()
            if self._operators.arm():
                return True
        if not (self._schedule.is_idle or self._operators.is_profiling):
            for family, probe in self._sampled:
                if slots := self._schedule.slots(family, probe.num_slots):
                    self._armed.append(probe)  # also where it fails: what it has hooked by then must go
                    self._begun.update((probe, slot) for slot in slots)
                    with self._guard:
                        probe.arm(slots)
        self._let_go()
        self._let_go = _nothing
        return len(self._begun) > num_begun

    def collect(self) -> list[Reading]:
        """An iteration with a step is over."""
        readings: list[Reading] = []
        armed = self._armed
        sampled = [p for _, p in self._sampled if p in armed or p in self._late] if armed else self._late
        everyone: list[Probe | Standing] = [*self._standing, *sampled]
        for probe in everyone:
            try:
                readings += probe.collect()
            except Exception as error:
                self._guard.failed(error)
        for probe in armed:
            with self._guard:
                self._tell(probe)
        if self._operators.reason:
            self._tell(self._operators)
        return readings

    def profile(self, num_steps: int) -> None:
        """Have the operators of the next steps timed; sampled probes rest in them."""
        self._operators.request(num_steps)

    def pass_over(self) -> None:
        """Something that is no part of the training is about to happen: what has its turn goes without it."""
        armed, self._armed = self._armed, []
        for probe in armed:
            with self._guard:
                probe.collect()

    def discard(self) -> list[Reading]:
        """A micro-step is over."""
        for probe in self._discarded:
            with self._guard:
                probe.collect()
        return []

    def state_dict(self) -> dict[str, Any]:
        """What the next session needs to go on without a jump."""
        return {"optimizers": self._steps.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another session stopped."""
        self._steps.load_state_dict(state.get("optimizers", {}))

    def _tell(self, probe: Probe | Standing) -> None:
        for tag, reason in probe.not_measured().items():
            self._notices.not_measured(tag, reason)

    def close(self) -> None:
        """Let go of everything, also in the middle of an iteration."""
        everyone: list[Probe | Standing] = [*(probe for _, probe in self._sampled), *self._standing]
        for probe in everyone:
            with self._guard:
                probe.close()
        self._let_go()
        self._begun.clear()


def _nothing() -> None: ...
