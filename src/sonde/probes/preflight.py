"""A closer look at the first steps of a training, for mistakes of the loop and the wiring that show at once."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from torch import nn
from torch.optim import Optimizer

from sonde.core.records import Float64
from sonde.probes.copied_targets import CopiedTargets
from sonde.probes.events import Events
from sonde.probes.facts import Facts, Say, judged_later
from sonde.probes.first_looks import FirstLooks
from sonde.probes.hooks import Hooks, is_compiled
from sonde.probes.loss_hazards import LossHazards
from sonde.probes.membership import Membership
from sonde.probes.modes import Modes
from sonde.probes.output_gradients import OutputGradients
from sonde.probes.players import Players
from sonde.probes.probe import Reading
from sonde.probes.seams import Clip, ScalerStep
from sonde.probes.stacks import user_line
from sonde.probes.stopwatch import Stopwatch
from sonde.probes.symmetry import Symmetry
from sonde.probes.zeroing import Zeroing

_GLANCE_LENGTH = 4
"""A glance takes some iterations in a row: what must be confirmed is confirmed within it."""
_SYMMETRY_STEPS = 11
_HAZARD_STEPS = 10
"""Between two looks at what a loss takes bare logarithms of."""


@final
class Preflight:
    """Watches the first iterations of a training, and a few every now and then, and says facts.

    A fact is a name of a check and a plain dictionary: `where` (names of parameters or modules), `value`, `line` (such
    as `train.py:42`, of the call that gave it away, where it can be known) and what else the check has to say. Each is
    said once. What the checks are is said where they are made: `Zeroing`, `Modes`, `OutputGradients`, `Membership`,
    `Players`, `Symmetry`, `FirstLooks`, `LossHazards` and `CopiedTargets`; here is made

    - `clip-before-unscale`: gradients were clipped and then reached the scaler's step still scaled, by more than 1.

    On CUDA nothing waits: numbers come home as readings, which yield no rows. Hooks are there in the iterations that
    are looked at and, on whole models only, from the end of an epoch to the next step, and in every tenth iteration
    where the loss takes bare logarithms. Where a watched model has a compiled part, no module, output or parameter is
    hooked: what needs that is not measured.

    Args:
        models: By name.
        optimizers: By name.
        say: Called with a check and its fact, from the training thread or from the background.
        steps: Iterations that are looked at from the start.
        glance_steps: After so many iterations, four are looked at again.
    """

    def __init__(
        self,
        models: Mapping[str, nn.Module],
        optimizers: Mapping[str, Optimizer],
        say: Say,
        *,
        steps: int = 20,
        glance_steps: int = 500,
        clock: Stopwatch | None = None,
    ) -> None:
        self._steps, self._glance_steps = steps, glance_steps
        self._facts, self._hooks = Facts(say), Hooks(clock)
        self._has_compiled = any(is_compiled(module) for model in models.values() for module in model.modules())
        self._look_at(models, optimizers)
        self._iteration = -1
        self.is_armed = self._stepped = self._clipped = False
        """Whether this iteration is looked at."""
        self._clip_line: str | None = None
        self._while_armed: list[tuple[list[Any], Callable[..., None]]] = []
        """Lists of listeners that it is in while it is armed, as what."""

    def _look_at(self, models: Mapping[str, nn.Module], optimizers: Mapping[str, Optimizer]) -> None:
        """Make the checks."""
        facts, hooks = self._facts, self._hooks
        hooked, hooked_optimizers = ({}, {}) if self._has_compiled else (models, optimizers)
        self._modes = Modes(hooked, facts, hooks)
        self._zeroing = Zeroing(hooked_optimizers, facts, hooks)
        self._outputs = OutputGradients(hooked, facts, hooks)
        self._looks = FirstLooks(hooked, facts, hooks)
        self._copied = CopiedTargets(hooked, facts, hooks)
        self._hazards = LossHazards(hooked, facts, hooks)
        self._membership = Membership(models, optimizers, facts)
        self._players = Players(models, optimizers, facts)
        self._symmetry = Symmetry(models, facts)

    def listen(self, events: Events) -> None:
        """Be told of what happens in a training, of most things in iterations only that are looked at."""
        self._while_armed = [
            (events.batch, self.batch),
            (events.optimizer_enters, self.before_optimizer),
            (events.clip, self.clipped),
            (events.scaler_step, self.scaler_step),
        ]
        events.loss.append(self.loss)
        events.optimizer_left.append(self.after_optimizer)
        events.boundary.append(self.boundary)
        events.evaluated.append(self.evaluated)

    def arm(self) -> None:
        """An iteration begins. To be called at every one: which are looked at is decided here."""
        self._iteration += 1
        self._stepped = self._clipped = False
        self.is_armed = self._is_looked_at(self._iteration)
        if self.is_armed:
            for listeners, listener in self._while_armed:
                if listener not in listeners:
                    listeners.append(listener)
            self._modes.attach()
            self._zeroing.attach()
            self._outputs.attach()
            self._looks.attach()
            self._copied.attach()
            if not self._has_compiled:
                self._membership.attach(self._hooks)
            if self._iteration == 0:
                self._symmetry.begin()
        elif (
            self._modes.missed
        ):  # where an evaluation comes without the end of an epoch before it, the next one is seen
            self._modes.attach(only_evaluations=True)
        if self.is_armed or self._iteration % _HAZARD_STEPS == 0:
            self._hazards.attach(self._iteration)

    def _is_looked_at(self, iteration: int) -> bool:
        return iteration < self._steps or iteration % self._glance_steps < _GLANCE_LENGTH

    def _disarm(self) -> None:
        self.is_armed = False
        if not self._is_looked_at(self._iteration + 1):
            self._zeroing.rest()
        for listeners, listener in self._while_armed:
            if listener in listeners:
                listeners.remove(listener)

    def batch(self, _x: Any, y: Any) -> None:
        """A batch on its way, in an iteration that is looked at: inputs and targets, as far as they are known."""
        self._looks.batch(y)

    def loss(self, loss: Any) -> None:
        """The loss of an iteration or a micro-step, as given; to be called before `collect`."""
        self._modes.mark()
        if self.is_armed:
            self._outputs.loss(loss)
            self._hazards.loss(loss)
            self._players.loss(loss)

    def before_optimizer(self, optimizer: Optimizer) -> None:
        """An optimiser is about to make its step, in an iteration that is looked at."""
        self._zeroing.before_optimizer(optimizer)
        if self._iteration < self._steps:
            self._membership.before_optimizer(optimizer)

    def after_optimizer(self, optimizer: Optimizer) -> None:
        """It has made its step."""
        self._stepped = True
        if self.is_armed:
            self._zeroing.after_optimizer(optimizer)

    def clipped(self, clip: Clip) -> None:
        """Torch is about to clip gradients, or has done so, in an iteration that is looked at."""
        if not clip.done:
            self._clipped = True
            self._clip_line = self._clip_line or user_line()

    def scaler_step(self, event: ScalerStep) -> None:
        """A gradient scaler was asked for a step, in an iteration that is looked at."""
        self._outputs.scaler_seen = True
        if self._clipped and event.unscaled_here and event.scale is not None:
            self._facts.judge([event.scale.detach().clone()], self._judge_clip)

    def _judge_clip(self, numbers: Float64) -> None:
        if numbers[0] > 1:
            self._facts.say_once("clip-before-unscale", value=numbers[0], line=self._clip_line)

    def boundary(self) -> None:
        """The data have come to an end, or an epoch has: what follows before the next step may be an evaluation."""
        self._modes.attach()

    def evaluated(self) -> None:
        """An evaluation was reported. To be called before `boundary`."""
        self._modes.evaluated()
        self._modes.attach()  # whether the model is left in eval mode

    def collect(self) -> Sequence[Reading]:
        """The iteration is over: nothing is hooked any more."""
        was_armed = self.is_armed
        if not was_armed and self._hooks.is_idle:
            return ()
        self._disarm()
        self._hooks.release()
        self._modes.collect(self._stepped)
        self._hazards.collect()
        if was_armed:
            self._outputs.collect()
            self._membership.collect()
            self._looks.collect()
            if self._iteration == min(_SYMMETRY_STEPS, self._steps - 1):
                self._symmetry.end()
            if self._iteration == self._steps - 1:
                self._membership.finish()
                self._players.finish()
                outputs = self._outputs  # `close` forgets them, and may come before they are judged
                return [*self._facts.collect(), judged_later(lambda _: outputs.finish())]
        return self._facts.collect()

    def not_measured(self) -> Mapping[str, str]:
        """Which checks cannot be made."""
        if not self._has_compiled:
            return {}
        return {
            "preflight/*": "a watched model has a compiled part: modes, outputs and the fate of gradients are unseen"
        }

    def close(self) -> None:
        """Let go of models and optimisers; also in the middle of an iteration."""
        self._disarm()
        self._hooks.release()
        self._look_at({}, {})
