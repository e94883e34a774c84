"""`sonde.watch`: one line in any training loop."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Never

from torch import nn
from torch.optim import Optimizer

from sonde.config import ARGUMENT, Effective, effective
from sonde.console.terminals import Wanted as Console
from sonde.core.findings import Finding
from sonde.core.settings import check_text
from sonde.monitor import ranks
from sonde.monitor.moved_arguments import refuse
from sonde.monitor.session import Given, Watch
from sonde.probes.cadences import Cadences, intervals_of
from sonde.sinks.choices import Choice
from sonde.sinks.choices import read as read_sinks
from sonde.sinks.sink import Sink
from sonde.store import endings
from sonde.store.existing import IfExists, folder_for
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
    if_exists: IfExists = "continue",
    budget: float | None = None,
    cadence: Cadences | None = None,
    console: Console | None = None,
    on_finding: Callable[[Finding], None] | None = None,
    sinks: Sequence[Sink | str] | None = None,
    settings: Mapping[str, Any] | Effective | None = None,
    strict: bool = False,
    **moved: Never,
) -> Watch:
    """Record a training: the loss, and the gradients, weights and updates of every parameter.

    The training is left exactly as it is: losses and weights are bit-identical with and without.

    What is left out is as the configuration says: the environment, `sonde.toml`, `pyproject.toml` (see `sonde config`).

    Args:
        model: The model, or several by name (`{"G": g, "D": d}`); names prefix the tags.
        optimizer: The optimiser, or several by name.
        run: Folder of the run; `runs/<model>-<time>` where left out. Of several processes that train together the first
            records there, the others into `ranks/<rank>` inside, each a run of its own.
        config: Anything JSON can say about the run.
        if_exists: What becomes of a run that is in that folder already: `"continue"`: steps that go on where it ended
            join its line, steps that go back start a new branch, which is said. `"new"`: it is left alone, and this one
            is recorded into `<run>-2`, or the next number that is free. `"error"`: `RunNotWritable` is raised.
        budget: Share of the step time that the watching may take, by default 0.01; cadences are stretched to keep it.
            With `math.inf` they are kept as they are, whatever it costs.
        cadence: How often to measure; by default every layer at every step on a GPU, at every tenth on a CPU.
        console: What is shown, on stderr: `"live"` a view at the bottom of the terminal, `"lines"` a line now and then,
            `"verbose"` tables of all layers as well, `"quiet"` nothing. `"auto"`, the default, is live on a terminal
            and lines elsewhere: in a file, in CI, in notebooks, under `torchrun`. But for `"quiet"`, each alarm is
            printed when it is found, and at the end where the run is and what watching it took.
        on_finding: Called with each finding that is new or has got worse, information included, soon after the step
            that showed it; not on the training's thread.
        sinks: Loggers that are sent the run as well, by name or made by you: `["tensorboard", WandB("project")]`; fed
            in the background, on the first rank. At the end they have ten seconds.
        settings: Any settings of the configuration by name, as `sonde config` prints them: `{"doctor": "off",
            "rules.GRD001.growth": 50, "loss.micro": "sum", "total_steps": 1000}`. The arguments above go before them,
            they before the environment and files. Or a whole configuration that was looked for before
            (`sonde.config.effective`); by default it is that of the working directory.
        strict: Whether a fault of Sonde's own is raised (for tests) instead of being said once.
        moved: Nothing: arguments of older versions are refused with the setting that each is now.

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
    refuse(moved)
    models = model if isinstance(model, Mapping) else {"": model}
    optimizers = optimizer if isinstance(optimizer, Mapping) else {"": optimizer}
    for kind, things, wanted in (("model", models, nn.Module), ("optimizer", optimizers, Optimizer)):
        for name, thing in things.items():
            if not isinstance(thing, wanted):
                label = f"{kind}[{name!r}]" if name else kind
                raise TypeError(f"`watch({label})` must be a {wanted.__name__}, got {type(thing).__name__}.")
    found = _configuration(settings).over({"budget": budget, "console": console})
    chosen = found.config
    if run is not None:
        check_text("run", os.fspath(run))  # it is printed, logged and told to people
    call = ranks.Call()
    rank = ranks.rank()
    if if_exists == "new" and not call.can_meet:  # each would find a folder of its own
        raise ValueError('`watch(if_exists="new")` needs ranks that meet: initialise the process group before `watch`.')
    if run is None:
        folder = Path(call.folder(str(_default_folder(models, chosen.runs))))
    elif rank:  # the first one decides
        folder = Path(call.folder(os.fspath(run)) if if_exists == "new" else run)
    else:
        folder = folder_for(run, if_exists)
        if if_exists == "new":
            call.folder(str(folder))
    if rank:
        folder = folder / "ranks" / str(rank)
    named: Sequence[Sink | Choice | str] | None = [sinks] if isinstance(sinks, str) else sinks
    asked = [] if rank else chosen.sinks if named is None else named
    made = [_sink(sink) for sink in asked]  # what is not installed is said before anything is recorded
    stored = _stored(found, cadence, None if sinks is None else made)
    writer = Writer(folder, config=config, settings=stored, flush_s=_FLUSH_S)
    given = Given(config=config, cadence=cadence, on_finding=on_finding, sinks=made, strict=strict)
    try:
        return Watch(models, optimizers, writer, chosen, given, call)
    except BaseException as error:
        writer.end(*endings.describe(type(error), error))
        raise


def _configuration(settings: Mapping[str, Any] | Effective | None) -> Effective:
    if isinstance(settings, Effective):
        return settings
    if settings is not None and not isinstance(settings, Mapping):
        raise TypeError(f"`watch(settings=...)` must be a mapping of settings by name, got {type(settings).__name__}.")
    return effective().over(settings or {})


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
