"""`sonde.watch`: one line in any training loop."""

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from torch import nn
from torch.optim import Optimizer

from sonde.config import ARGUMENT, Effective, effective
from sonde.console.terminals import Wanted as Console
from sonde.core.findings import Finding
from sonde.core.settings import check_text
from sonde.monitor import ranks
from sonde.monitor.doctor.connections import Where
from sonde.monitor.session import Micro, Watch
from sonde.probes.cadences import Cadences, intervals_of
from sonde.sinks.choices import Choice
from sonde.sinks.choices import read as read_sinks
from sonde.sinks.sink import Sink
from sonde.store import endings
from sonde.store.writer import Writer

__all__ = ["Watch", "watch"]

# A step comes to the writer within half a second: together, what a killed process loses is a second's steps at most.
_FLUSH_S = 0.5


def watch(
    model: nn.Module | Mapping[str, nn.Module],
    optimizer: Optimizer | Mapping[str, Optimizer],
    *,
    run: str | os.PathLike[str] | None = None,
    config: Mapping[str, Any] | None = None,
    budget: float | None = None,
    cadence: Cadences | None = None,
    console: Console | None = None,
    on_finding: Callable[[Finding], None] | None = None,
    doctor: Where | None = None,
    rules: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    sinks: Sequence[Sink | str] | None = None,
    micro: Micro = "mean",
    floor_s: float | None = None,
    total_steps: int | None = None,
    total_epochs: int | None = None,
    console_s: float = 30.0,
    strict: bool = False,
    settings: Effective | None = None,
) -> Watch:
    """Record a training: the loss, and the gradients, weights and updates of every parameter.

    The training is left exactly as it is: losses and weights are bit-identical with and without.

    What is left out is as the configuration says: the environment, `sonde.toml`, `pyproject.toml` (see `sonde config`).
    Alerts are configured there alone.

    Args:
        model: The model, or several by name (`{"G": g, "D": d}`); names prefix the tags.
        optimizer: The optimiser, or several by name.
        run: Folder of the run; `runs/<model>-<time>` where left out. An existing run is continued. Of several processes
            that train together the first records there, the others into `ranks/<rank>` inside, each a run of its own.
        config: Anything JSON can say about the run.
        budget: Share of the step time that the watching may take, by default 0.01; cadences are stretched to keep it.
            With `math.inf` they are kept as they are, whatever it costs.
        cadence: How often to measure; by default every layer at every step on a GPU, at every tenth on a CPU.
        console: What is shown, on stderr: `"live"` a view at the bottom of the terminal, `"lines"` a line now and then,
            `"verbose"` tables of all layers as well, `"quiet"` nothing. `"auto"`, the default, is live on a terminal
            and lines elsewhere: in a file, in CI, in notebooks, under `torchrun`. But for `"quiet"`, each alarm is
            printed when it is found, and at the end where the run is and what watching it took.
        on_finding: Called with each finding that is new or has got worse, information included, soon after the step
            that showed it; not on the training's thread.
        doctor: Where rows are judged: in a small `"process"` of its own, which takes no time from the training; on a
            background `"thread"` of this one; or `"off"`, and `sonde diagnose` judges later. By default a process.
            Ranks but the first have none.
        rules: Settings of rules by name: `{"GRD001.growth": 50, "overfitting": False}` (`sonde explain` lists them), or
            the file of a profile that `sonde calibrate` wrote.
        sinks: Loggers that are sent the run as well, by name or made by you: `["tensorboard", WandB("project")]`; fed
            in the background, on the first rank. At the end they have ten seconds.
        micro: What the loss of an accumulated step is of its micro-losses: their `"mean"`, or their `"sum"` where they
            are given as they are differentiated.
        floor_s: Seconds a step that the watching may always take, whatever the share, above 0; smaller means that tiny
            steps are watched in less detail. Default: on a CPU 2 ms in the first 100 steps, then 0.15 ms; on a GPU
            0.2 ms.
        total_steps: How many steps there will be, for the time that is left; nothing else depends on it.
        total_epochs: How many epochs there will be, likewise: where `epoch` is called at the end of each, the steps are
            known after the first.
        console_s: Seconds between two of the console's lines, above 0.
        strict: Whether a fault of Sonde's own is raised (for tests) instead of being said once.
        settings: The configuration, where it was looked for before (`sonde.config.effective`); by default that of the
            working directory.

    Whatever is odd about the model raises nothing: parameters and modules that cannot be watched (lazy ones that are
    not used, names with control characters, a `named_parameters` that raises, a module inside itself) are left out,
    with one warning and an event `not-measured`. What is raised is about the arguments and the run:

    Raises:
        TypeError, ValueError: an argument is wrong; the message says which, and what is allowed.
        RunNotWritable, RunBusy, RunUnreadable: the run cannot be recorded there.
        SettingError, FormatError: the configuration is wrong, or `run` holds control characters; the message says
            where, and what is allowed.
        MissingExtra: a sink's package is not installed.
    """
    models = model if isinstance(model, Mapping) else {"": model}
    optimizers = optimizer if isinstance(optimizer, Mapping) else {"": optimizer}
    for kind, things, wanted in (("model", models, nn.Module), ("optimizer", optimizers, Optimizer)):
        for name, thing in things.items():
            if not isinstance(thing, wanted):
                label = f"{kind}[{name!r}]" if name else kind
                raise TypeError(f"`watch({label})` must be a {wanted.__name__}, got {type(thing).__name__}.")
    if micro not in get_args(Micro):
        raise ValueError(f"`watch(micro=...)` must be one of {', '.join(get_args(Micro))}, got {micro!r}.")
    overrides = {"profile": os.fspath(rules)} if isinstance(rules, str | os.PathLike) else {"rules": rules}
    found = (settings or effective()).over({"budget": budget, "console": console, "doctor": doctor, **overrides})
    chosen = found.config
    if floor_s is not None and not 0 < floor_s < math.inf:
        raise ValueError(f"`watch(floor_s=...)` must be above 0 and finite, got {floor_s}.")
    if not console_s > 0:
        raise ValueError(f"`watch(console_s=...)` must be above 0 seconds, got {console_s}.")
    for name, length in (("total_steps", total_steps), ("total_epochs", total_epochs)):
        if length is not None and length < 1:
            raise ValueError(f"`watch({name}=...)` must be at least 1, or None where it is not known, got {length}.")
    if run is not None:
        check_text("run", os.fspath(run))  # it is printed, logged and told to people
    call = ranks.Call()
    folder = Path(run) if run is not None else Path(call.folder(str(_default_folder(models, chosen.runs))))
    if rank := ranks.rank():
        folder = folder / "ranks" / str(rank)
    given: Sequence[Sink | Choice | str] | None = [sinks] if isinstance(sinks, str) else sinks
    asked = [] if rank else chosen.sinks if given is None else given
    made = [_sink(sink) for sink in asked]  # what is not installed is said before anything is recorded
    stored = _stored(found, cadence, None if sinks is None else made)
    writer = Writer(folder, config=config, settings=stored, flush_s=_FLUSH_S)
    try:
        return Watch(
            models,
            optimizers,
            writer,
            chosen,
            config=config,
            cadence=cadence,
            on_finding=on_finding,
            sinks=made,
            micro=micro,
            floor_s=floor_s,
            length={"total_steps": total_steps, "total_epochs": total_epochs},
            console_s=console_s,
            strict=strict,
            call=call,
        )
    except BaseException as error:
        writer.end(*endings.describe(type(error), error))
        raise


def _sink(sink: Sink | Choice | str) -> Sink:
    if isinstance(sink, str):
        (sink,) = read_sinks("sinks", [sink])
    return sink.make() if isinstance(sink, Choice) else sink


def _stored(found: Effective, cadence: Cadences | None, sinks: Sequence[Sink] | None) -> dict[str, Any]:
    """Settings for the run, objects that were given instead of settings among them."""
    stored = found.to_json()
    said = {f"cadence.{name}": steps for name, steps in (intervals_of(cadence) if cadence else {}).items()}
    for key, value in {**said, **({} if sinks is None else {"sinks": [sink.name for sink in sinks]})}.items():
        stored[key] = {"value": value, "from": ARGUMENT}
    return stored


def _default_folder(models: Mapping[str, nn.Module], runs: str) -> Path:
    name = type(next(iter(models.values()))).__name__.lower()
    return Path(runs) / f"{name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
