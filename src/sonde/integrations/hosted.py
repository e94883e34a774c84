"""A training that another library conducts: its watch from beginning to end, and what its checkpoints carry."""

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from torch import nn
from torch.optim import Optimizer

from sonde.config import Effective
from sonde.core.records import Ending
from sonde.monitor.watch import Watch

Begin = Callable[..., Watch]
"""`sonde.watch`, or a `functools.partial` of it with settings of one's own."""


@final
class Hosted:
    """Makes a watch when a training begins, lets go of it when it ends, and keeps its state for checkpoints.

    Args:
        begin: Makes the watch.
        run: Folder of the run; where left out, as `begin` has it.
    """

    def __init__(self, begin: Begin, run: str | os.PathLike[str] | None) -> None:
        self._begin = begin
        self._arguments: dict[str, Any] = {} if run is None else {"run": run}
        self._state: Mapping[str, Any] = {}
        self.watch: Watch | None = None
        """While the training lasts."""

    def begin(
        self,
        model: nn.Module,
        optimizers: Optimizer | Mapping[str, Optimizer],
        *,
        state: Mapping[str, Any],
        settings: Mapping[str, Any] | None = None,
    ) -> Watch:
        """Watch from now on; a training that an exception left without a word is closed first.

        Args:
            model: The model.
            optimizers: One, or several by name.
            state: Of a checkpoint, to go on from; empty where the training is new.
            settings: By name, that follow from how the library trains; they go before those of `begin`.
        """
        if self.watch is not None:
            self.watch.end(Ending.CRASHED, "another training began before this one had ended")
        self.watch = self._begin(model, optimizers, **self._arguments, **_added(self._begin, settings or {}))
        if state:
            self.watch.load_state_dict(state)
        return self.watch

    def state(self) -> Mapping[str, Any]:
        """For a checkpoint: of the training that goes on, or as the last one left it; empty where there was none."""
        return self._state if self.watch is None else self.watch.state_dict()

    def end(self, error: BaseException | None = None) -> None:
        """The training is over, by this exception if one left it."""
        if self.watch is None:
            return
        self._state, watch = self.state(), self.watch
        self.watch = None
        if error is None:
            watch.close()
        else:
            watch.__exit__(type(error), error, error.__traceback__)


def _added(begin: Begin, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The argument `settings` for `begin`: these over those that it brings along, which would be lost else."""
    if not settings:
        return {}
    own = begin.keywords.get("settings") if isinstance(begin, functools.partial) else None
    return {"settings": own.over(settings) if isinstance(own, Effective) else {**(own or {}), **settings}}


def named(model: nn.Module, optimizers: Sequence[Optimizer]) -> Optimizer | dict[str, Optimizer]:
    """A single optimiser as it is; several by the part of the model that each of them trains, else by their place.

    Example:
        >>> import torch
        >>> net = nn.ModuleDict({"G": nn.Linear(2, 1), "D": nn.Linear(2, 1)})
        >>> list(named(net, [torch.optim.SGD(net[part].parameters()) for part in ("D", "G")]))
        ['D', 'G']
    """
    if len(optimizers) == 1:
        return optimizers[0]
    parts = {name: {id(p) for p in part.parameters()} for name, part in model.named_children()}
    found: dict[str, Optimizer] = {}
    for place, optimizer in enumerate(optimizers):
        trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
        name = next((name for name, held in parts.items() if trained <= held and name not in found), str(place))
        found[name] = optimizer
    return found


def evaluated(watch: Watch, metrics: Mapping[str, Any], *, prefixes: Sequence[str], loss: str | None = None) -> None:
    """Tell a watch what a trainer has measured on its validation set.

    Args:
        watch: Whom to tell.
        metrics: As the trainer names them; what is not a number is left out.
        prefixes: Beginnings of names that only say that it was the validation set; the first that fits is taken off.
        loss: The name of the loss among them; where left out, what is `loss` without its prefix.
    """
    found: dict[str, Any] = {}
    for name, value in metrics.items():
        if isinstance(value, bool | str) or not hasattr(value, "__float__"):
            continue
        plain = next((name.removeprefix(prefix) for prefix in prefixes if name.startswith(prefix)), name)
        is_loss = name == loss if loss is not None else plain == "loss"
        found["loss" if is_loss else _word(plain if plain != "loss" else name)] = value
    watch.evaluate(loss=found.pop("loss", None), metrics=found)


def _word(name: str) -> str:
    """A name as tags have it."""
    words = ("".join(c if c.isascii() and (c.isalnum() or c in "_.+-") else "_" for c in w) for w in name.split("/"))
    return "/".join(word if word[0] not in ".+-" else f"_{word}" for word in words if word) or "value"
