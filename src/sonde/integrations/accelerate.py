"""Hugging Face Accelerate: a loop of one's own over prepared objects."""

# Where the library is missing its classes are unknown.
# mypy: disallow-subclassing-any=False, disable-error-code="import-not-found, import-untyped"

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.optim import Optimizer

from sonde.core.optional import available, require
from sonde.integrations.hosted import Begin, evaluated
from sonde.monitor.watch import Watch
from sonde.monitor.watch import watch as sonde_watch

if TYPE_CHECKING or available("accelerate"):
    from accelerate.tracking import GeneralTracker
else:

    class GeneralTracker:
        """Stands in where the library is missing."""


_PREFIXES = ("eval_", "eval/", "val_", "val/", "valid_", "valid/", "validation_", "validation/")


def watch_prepared(
    accelerator: Any,
    model: nn.Module | Mapping[str, nn.Module],
    optimizer: Optimizer | Mapping[str, Optimizer],
    run: str | os.PathLike[str] | None = None,
    *,
    watch: Begin = sonde_watch,
) -> Watch:
    """Watch what `accelerator.prepare` gave; call it on every process.

    The watch is used as that of `sonde.watch` is: give `step` the loss that `accelerator.backward` gets, which divides
    it itself, after every batch. Besides,

    - `accelerator.save_state` and `load_state` keep its state, and that of the first process is everybody's; as with
      every registered object, a folder that was saved without it cannot be loaded;
    - `accelerator.log` brings the values whose names begin with `eval` or `val` to `evaluate`; what it logs of the
      training is recorded anyway, and left out;
    - `accelerator.end_training` closes it.

    Args:
        accelerator: The `accelerate.Accelerator`.
        model: As prepared, or several by name.
        optimizer: As prepared, or several by name.
        run: Folder of the run, as for `sonde.watch`.
        watch: `sonde.watch`, or a `functools.partial` of it with other settings.

    Raises:
        MissingExtra: Accelerate is not installed.
    """
    require("accelerate", "huggingface")
    settings = {} if run is None else {"run": run}
    optimizers = (
        {name: _inner(each) for name, each in optimizer.items()}
        if isinstance(optimizer, Mapping)
        else _inner(optimizer)
    )
    watched = watch(model, optimizers, **settings)
    accelerator.register_for_checkpointing(watched)
    accelerator.trackers.append(Tracker(watched))
    return watched


class Tracker(GeneralTracker):
    """Stands among the trackers of an accelerator, and passes on to a watch what is logged (`watch_prepared`)."""

    name = "sonde"
    requires_logging_directory = False
    main_process_only = False

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        super().__init__()

    @property
    def tracker(self) -> Watch:
        """The watch."""
        return self._watch

    def log(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Evaluations belong to the last step that was made, whatever `step` says."""
        found = {name: value for name, value in values.items() if name.startswith(_PREFIXES)}
        if found:
            evaluated(self._watch, found, prefixes=_PREFIXES)

    def finish(self) -> None:
        """Close the run."""
        self._watch.close()


def _inner(optimizer: Optimizer) -> Optimizer:
    """What Accelerate has wrapped: its wrapper has no hooks of its own."""
    inner = getattr(optimizer, "optimizer", optimizer)
    return inner if isinstance(inner, Optimizer) else optimizer
