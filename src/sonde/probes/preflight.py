"""A closer look at the first steps of a training, for mistakes of the loop and the wiring that show at once."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from torch import nn
from torch.optim import Optimizer

from sonde.probes.events import Events
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

_STEPS = 20
_GLANCE_STEPS = 500
_GLANCE_LENGTH = 4
"""A glance takes some iterations in a row: what must be confirmed is confirmed within it."""
_SYMMETRY_STEPS = 11


@final
class Preflight:
    """Watches the first iterations of a training, and a few every now and then, and says facts.

    A fact is a name of a check and a plain dictionary: `where` (names of parameters or modules), `value`, `line` (such
    as `train.py:42`, of the call that gave it away, where it can be known) and what else the check has to say. Each is
    said once. What the checks are is said where they are made: `Zeroing`, `Modes`, `OutputGradients`, `Membership`,
    `Players`, `Symmetry`, `FirstLooks` and `LossHazards`; here is made

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
        say: Callable[[str, Mapping[str, Any]], None],
        *,
        steps: int = _STEPS,
        glance_steps: int = _GLANCE_STEPS,
        clock: Stopwatch | None = None,
    ) -> None:
        self._steps, self._glance_steps = steps, glance_steps
        self._names = {id(optimizer): name for name, optimizer in optimizers.items()}
        self._say_it = say
        self._hooks = Hooks(clock)
        self._closed_models = sorted(n for n, model in models.items() if any(map(is_compiled, model.modules())))
        open_models = {} if self._closed_models else dict(models)
        self._modes = Modes(open_models, self._say, self._hooks)
        self._zeroing = Zeroing({} if self._closed_models else dict(optimizers), self._say, self._hooks)
        self._outputs = OutputGradients(open_models, self._say, self._hooks)
        self._looks = FirstLooks(open_models, self._say, self._hooks)
        self._hazards = LossHazards(open_models, self._say, self._hooks)
        self._membership = Membership(dict(models), dict(optimizers), self._say)
        self._players = Players(dict(models), dict(optimizers), self._say)
        self._symmetry = Symmetry(dict(models), self._say)
        self._iteration = -1
        self.is_armed = self._stepped = False
        """Whether this iteration is looked at."""
        self._clip_line: str | None = None
        self._clipped = self._said_clip = False
        self._pending: list[Reading] = []

    def listen(self, events: Events) -> None:
        """Be told of what happens in a training."""
        events.batch.append(self.batch)
        events.loss.append(self.loss)
        events.optimizer_enters.append(self.before_optimizer)
        events.optimizer_left.append(self.after_optimizer)
        events.clip.append(self.clipped)
        events.scaler_step.append(self.scaler_step)
        events.boundary.append(self.boundary)
        events.evaluated.append(self.evaluated)

    def arm(self) -> None:
        """An iteration begins. To be called at every one: which are looked at is decided here."""
        self._iteration += 1
        self.is_armed = self._is_looked_at(self._iteration)
        self._stepped = self._clipped = False
        self._hazards.attach(is_armed=self.is_armed)
        if not self.is_armed:
            self._zeroing.rest()
            return
        self._modes.attach()
        self._zeroing.attach()
        self._outputs.attach()
        self._looks.attach()
        if not self._closed_models:
            self._membership.attach(self._hooks)
        if self._iteration == 0:
            self._symmetry.begin()

    def _is_looked_at(self, iteration: int) -> bool:
        return iteration < self._steps or iteration % self._glance_steps < _GLANCE_LENGTH

    def batch(self, x: Any, y: Any) -> None:
        """A batch on its way: inputs and targets, as far as they can be told apart."""
        if self.is_armed:
            self._looks.batch(y)

    def loss(self, loss: Any) -> None:
        """The loss of an iteration or a micro-step, as given; to be called before `collect`."""
        self._modes.mark()
        if self.is_armed:
            self._outputs.loss(loss)
            self._hazards.loss(loss)
            self._players.loss(loss)

    def before_optimizer(self, optimizer: Optimizer) -> None:
        """An optimiser is about to make its step."""
        if self.is_armed:
            self._zeroing.before_optimizer(optimizer)
            if self._iteration < self._steps:
                self._membership.before_optimizer(optimizer)

    def after_optimizer(self, optimizer: Optimizer) -> None:
        """It has made its step."""
        self._stepped = True
        if self.is_armed:
            self._zeroing.after_optimizer(self._names.get(id(optimizer), ""), optimizer)

    def clipped(self, clip: Clip) -> None:
        """Torch is about to clip gradients, or has done so."""
        if self.is_armed and not clip.done:
            self._clipped = True
            if self._clip_line is None:
                self._clip_line = user_line()

    def scaler_step(self, event: ScalerStep) -> None:
        """A gradient scaler was asked for a step."""
        self._outputs.scaler_seen = True
        if self.is_armed and self._clipped and event.unscaled_here and event.scale is not None:
            self._pending.append(Reading([event.scale.detach().clone()], self._judge_clip))

    def _judge_clip(self, numbers: Any) -> Sequence[Any]:
        if numbers[0] > 1 and not self._said_clip:
            self._said_clip = True
            self._say("clip-before-unscale", {"where": [], "value": float(numbers[0]), "line": self._clip_line})
        return ()

    def boundary(self) -> None:
        """The data have come to an end, or an epoch has: what follows before the next step may be an evaluation."""
        self._modes.attach()

    def evaluated(self) -> None:
        """An evaluation was reported. To be called before `boundary`."""
        self._modes.evaluated()
        self._modes.attach()  # whether the model is left in eval mode

    def collect(self) -> Sequence[Reading]:
        """The iteration is over: nothing is hooked any more."""
        self._hooks.release()
        self._modes.collect(self._stepped)
        readings, self._pending = self._pending, []
        readings += self._hazards.collect()
        if not self.is_armed:
            return readings
        readings += self._zeroing.collect()
        readings += self._outputs.collect()
        readings += self._membership.collect()
        readings += self._looks.collect()
        if self._iteration == min(_SYMMETRY_STEPS, self._steps - 1):
            readings += self._symmetry.end()
        if self._iteration == self._steps - 1:
            self._membership.finish()
            self._players.finish()
            readings.append(Reading((), self._finish))
        self.is_armed = False
        return readings

    def _finish(self, _numbers: Any) -> Sequence[Any]:
        self._outputs.finish()
        return ()

    def not_measured(self) -> Mapping[str, str]:
        """Which checks cannot be made."""
        if not self._closed_models:
            return {}
        return {
            "preflight/*": "a watched model has a compiled part: modes, outputs and the fate of gradients are unseen"
        }

    def close(self) -> None:
        """Let go of models and optimisers; also in the middle of an iteration."""
        self.is_armed = False
        self._hooks.release()
        nothing: dict[str, Any] = {}
        self._modes = Modes(nothing, self._say, self._hooks)
        self._zeroing = Zeroing({}, self._say, self._hooks)
        self._outputs = OutputGradients(nothing, self._say, self._hooks)
        self._looks = FirstLooks(nothing, self._say, self._hooks)
        self._hazards = LossHazards(nothing, self._say, self._hooks)
        self._membership = Membership(nothing, nothing, self._say)
        self._players = Players(nothing, nothing, self._say)
        self._symmetry = Symmetry(nothing, self._say)

    def _say(self, check: str, fact: Mapping[str, Any]) -> None:
        plain = {key: _plain(value) for key, value in fact.items() if value is not None}
        self._say_it(check, {key: value for key, value in plain.items() if value is not None})


def _plain(value: Any) -> Any:
    if isinstance(value, bool | int | str | list):
        return value
    number = float(value)
    return number if math.isfinite(number) else None
