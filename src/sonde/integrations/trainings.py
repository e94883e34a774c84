"""The trainings of a script, one after another: which optimisers belong to one, and where its run is."""

import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, final

from torch import nn
from torch.optim import Optimizer

from sonde.config import Effective
from sonde.integrations.epilogue import epilogue
from sonde.integrations.finding import Found, alive, find, name_in_script
from sonde.integrations.runner import Script
from sonde.monitor import ranks
from sonde.monitor.by_hand import UpdatedByHand
from sonde.monitor.watch import Watch, watch
from sonde.store import endings
from sonde.store.environment import redactor

_FOREIGN_STEPS = 3
_MOST_RUNS = 32  # a search over settings in one script may train hundreds of times


@final
class Trainings:
    """Begins to watch a training, and tells when another begins.

    An optimiser that comes later and trains parameters of a watched one, has its name in the script, or makes three
    steps in a row while those make none, begins another training, whose run is `<run>-2` and so on: folds, or a second
    phase. Other late ones are not measured.

    Args:
        script: What is run.
        start: The folder in which it was started.
        settings: By which it is watched.
        say: Prints a line of ours.
        optimizers: Gives those that there are.
        told: What the script was told: it stands in the run's configuration.
    """

    def __init__(
        self,
        script: Script,
        start: Path,
        settings: Effective,
        say: Callable[[str], None],
        optimizers: Callable[[], Sequence[Optimizer]],
        told: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self._told_script = told
        self._script, self._start, self._settings, self._say = script, start, settings, say
        self._all_optimizers = optimizers
        self._folder, self._num_runs = script.run, 0
        self.watch: Watch | None = None
        self.is_refused = False
        """Whether nothing can or is to be watched."""
        self.optimizers: dict[int, str] = {}
        """The names of those that are watched, by their `id` …"""
        self._watched: list[Optimizer] = []
        self._names: set[str] = set()
        """… and what the script called them when the watching began."""
        self._former: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        """Those of trainings that are over."""
        self._foreign: tuple[int, int] = (0, 0)
        """An optimiser that is not watched, as its `id`, and its steps since the last of one that is."""
        self._told: weakref.WeakSet[Optimizer] = weakref.WeakSet()

    def begin(self, called: Sequence[nn.Module], optimizer: Optimizer | None = None) -> Found | None:
        """Start to watch, if there is anything to watch: this optimiser, or all that there are.

        Args:
            called: Modules that were called by the script itself.
            optimizer: The only one to consider.

        Returns:
            What is watched from now on; None where the watching does not begin.
        """
        if self.watch is not None or self.is_refused:
            return None
        if self._num_runs == 0 and any(isinstance(run, Watch) for run in endings.watched()):
            self.is_refused = True
            self._say("Sonde: the script watches its training itself")
            return None
        if optimizer is None:
            optimizers = [one for one in self._all_optimizers() if not isinstance(one, UpdatedByHand)]
        else:
            optimizers = [optimizer]
        found = find(called, optimizers, lambda: alive(nn.Module), name_in_script)
        if not found.optimizers:
            return None
        try:
            self.watch = watch(
                found.models,
                found.optimizers,
                run=self._next_folder(),
                config={"script": self._script.target, "args": list(self._script.args), **self._told_script()},
                settings=self._settings.over({"loss.micro": "sum"}),
            )
        except Exception as error:  # the disk, another process that records there: the training goes on
            self.is_refused = True
            self._say(f"Sonde: this training is not watched: {redactor().text(str(error))}")
            return None
        self._watched = list(found.optimizers.values())
        self.optimizers = {id(optimizer): name for name, optimizer in found.optimizers.items()}
        self._names = {name for one in self._watched if (name := name_in_script(one)) is not None}
        if isinstance(optimizer, UpdatedByHand):
            said = f"no optimiser: weights are updated by hand; watching {_listed(found.models)}"
        else:
            said = f"watching {_listed(found.models)} with {_listed(found.optimizers)}"
        self._say(f"Sonde: {said}: {self.watch.path}")
        return found

    def _next_folder(self) -> Path | None:
        if self._folder is None and ranks.world_size() == 1:
            stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
            self._folder = self._start / self._settings.config.runs / f"{self._script.name}-{stamp}"
        self._num_runs += 1
        if self._folder is None or self._num_runs == 1:
            return self._folder
        return self._folder.with_name(f"{self._folder.name}-{self._num_runs}")

    @property
    def has_room(self) -> bool:
        """Whether another training may have a run of its own."""
        return self._num_runs < _MOST_RUNS

    def goes_on(self) -> None:
        """One of the watched optimisers is about to make a step."""
        self._foreign = (0, 0)

    def is_another(self, optimizer: Optimizer) -> bool:
        """Whether another training begins with the step that this optimiser, which is not watched, is about to make."""
        key, num = self._foreign
        self._foreign = id(optimizer), num + 1 if key == id(optimizer) else 1
        known = {id(p) for one in self._watched for group in one.param_groups for p in group["params"]}
        shares = any(id(p) in known for group in optimizer.param_groups for p in group["params"])
        replaces = optimizer not in self._former and name_in_script(optimizer) in self._names
        return (shares or replaces or self._foreign[1] >= _FOREIGN_STEPS) and self.has_room

    def leave_out(self, optimizer: Optimizer) -> None:
        """This optimiser belongs to no training that is watched; said once."""
        if optimizer not in self._told and self.watch is not None:
            self._told.add(optimizer)
            name = name_in_script(optimizer) or type(optimizer).__name__
            reason = "it was made after the watching had begun"
            self.watch.not_measured(f"grad/*@{name}", f"the optimiser {name} is not watched: {reason}")
            self._say(f"Sonde: the optimiser {name} is not watched: {reason}")

    def conclude(self) -> None:
        """Say what there is to say about a run that was closed."""
        if self.watch is not None:
            judged = self._settings.config.doctor != "off"
            self._say(epilogue(self.watch.path, self.watch.findings(), judged=judged))

    def forget(self) -> None:
        """The training that was watched is over, and its run closed."""
        self._former.update(self._watched)
        self.watch, self.optimizers, self._watched = None, {}, []


def _listed(things: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} ({type(thing).__name__})" if name else type(thing).__name__ for name, thing in things.items()
    )
